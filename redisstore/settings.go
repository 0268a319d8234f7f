package redisstore

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// How old what this process knows of settings may be: their versions, and
// settings whose version did not change.
const (
	versionsAge = 900 * time.Millisecond
	settingsAge = time.Minute
)

// settingsCache holds the settings of queues, and the versions that say
// whether they still hold.
type settingsCache struct {
	alone bool          // a cluster: versions lie on a server that may be away, so nobody reads them
	turn  chan struct{} // holds one while versions are read

	mu       sync.Mutex // guards all below
	versions map[string]int64
	readAt   time.Time // when versions was read
	queues   map[string]cachedSettings
}

type cachedSettings struct {
	settings dueq.Settings
	err      error // what could not be read of them
	readAt   time.Time
}

func (c *settingsCache) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.readAt) > versionsAge
}

// expire makes the next look at a queue's settings read them again.
func (c *settingsCache) expire(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readAt = time.Time{}
	if cached, ok := c.queues[queue]; ok && c.alone {
		cached.readAt = time.Time{}
		c.queues[queue] = cached
	}
}

func (c *settingsCache) sawVersions(fields map[string]string) {
	versions := make(map[string]int64, len(fields))
	for queue, v := range fields {
		versions[queue], _ = strconv.ParseInt(v, 10, 64)
	}
	c.mu.Lock()
	c.versions, c.readAt = versions, time.Now()
	c.mu.Unlock()
}

func (c *settingsCache) get(queue string) (cached cachedSettings, fresh bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.queues[queue]
	age := time.Since(cached.readAt)
	if c.alone {
		return cached, ok && age < versionsAge
	}
	return cached, ok && cached.settings.Version == c.versions[queue] && age < settingsAge
}

// last returns the settings that were read last, however old.
func (c *settingsCache) last(queue string) (dueq.Settings, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cached, ok := c.queues[queue]
	return cached.settings, ok
}

func (c *settingsCache) forget(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, queue)
}

func (c *settingsCache) put(queue string, s dueq.Settings, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = map[string]cachedSettings{}
	}
	c.queues[queue] = cachedSettings{s, err, time.Now()}
}

// Settings implements dueq.Store.
func (s *Store) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	if err := dueq.ValidateQueue(queue); err != nil {
		return dueq.Settings{}, err
	}
	if err := s.usable(ctx); err != nil {
		return dueq.Settings{}, s.wrap(ctx, "settings", s.keysOf(queue), err)
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	if err := s.readVersions(ctx); err != nil {
		return dueq.Settings{}, s.wrap(ctx, "settings", s.keysOf(queue), err)
	}
	if known, ok := s.settings.get(queue); ok {
		return known.settings, known.err
	}
	return s.readSettings(ctx, queue)
}

// readVersions reads the versions of settings if they are stale: one caller
// does, for all who ask at that time.
func (s *Store) readVersions(ctx context.Context) error {
	if s.settings.alone || !s.settings.stale() {
		return nil
	}
	select {
	case s.settings.turn <- struct{}{}:
		defer func() { <-s.settings.turn }()
	case <-ctx.Done():
		return &unsent{context.Cause(ctx)}
	}
	if !s.settings.stale() {
		return nil
	}
	versions := s.versionsCmd(ctx)
	if err := s.do(ctx, versions); err != nil {
		return err
	}
	s.noteVersions(versions)
	return nil
}

func (s *Store) versionsCmd(ctx context.Context) *redis.MapStringStringCmd {
	return redis.NewMapStringStringCmd(ctx, "hgetall", s.versionsKey())
}

func (s *Store) noteVersions(cmd *redis.MapStringStringCmd) {
	if cmd.Err() == nil {
		s.settings.sawVersions(cmd.Val())
	}
}

// learnSettings reads the settings of queues as far as their servers answer.
func (s *Store) learnSettings(ctx context.Context, queues []*keys) {
	cmds := make([]redis.Cmder, len(queues))
	for i, k := range queues {
		cmds[i] = settingsCmd(ctx, k)
	}
	if s.send(ctx, cmds) != nil {
		return
	}
	for i, k := range queues {
		if fields := cmds[i].(*redis.MapStringStringCmd).Val(); fields != nil { // see command.answer
			_, _ = s.decode(k.queue, fields)
		}
	}
}

func settingsCmd(ctx context.Context, k *keys) *redis.MapStringStringCmd {
	return redis.NewMapStringStringCmd(ctx, "hgetall", k.names[settingsKey])
}

func (s *Store) readSettings(ctx context.Context, queue string) (dueq.Settings, error) {
	k := s.keysOf(queue)
	fields := settingsCmd(ctx, k)
	if err := s.do(ctx, fields); err != nil {
		return dueq.Settings{}, s.wrap(ctx, "settings", k, err)
	}
	return s.decode(queue, fields.Val())
}

// decode reads settings and remembers them, together with what is wrong.
func (s *Store) decode(queue string, fields map[string]string) (dueq.Settings, error) {
	settings, err := dueq.DecodeSettings(fields)
	if err != nil {
		err = &dueq.CallError{Op: "settings", Queue: queue, Err: err}
	}
	s.settings.put(queue, settings, err)
	return settings, err
}

// SetSettings implements dueq.Store.
func (s *Store) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	if err := dueq.ValidateQueue(queue); err != nil {
		return dueq.Settings{}, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	for {
		old, err := s.readSettings(ctx, queue)
		if err != nil && !errors.Is(err, dueq.ErrInvalid) { // what is invalid may be what is to be mended
			return dueq.Settings{}, err
		}
		if len(patch) == 0 {
			return old, nil
		}
		next, err := old.With(patch)
		if err != nil {
			return dueq.Settings{}, err
		}
		args := []any{old.Version}
		for field, value := range next.Encode(patch) {
			args = append(args, field, value)
		}
		reply, err := s.timed(ctx, "settings", &invocation{script: settingsScript, keys: s.keysOf(queue)}, args...)
		if err != nil {
			return dueq.Settings{}, err
		}
		if reply[0].(int64) == 0 {
			return s.announce(ctx, queue, reply[2:])
		}
	}
}

// announce tells every process that a queue's settings changed.
func (s *Store) announce(ctx context.Context, queue string, reply []any) (dueq.Settings, error) {
	fields := make(map[string]string, len(reply)/2)
	for i := 0; i+1 < len(reply); i += 2 {
		fields[reply[i].(string)] = reply[i+1].(string)
	}
	settings, unread := s.decode(queue, fields)
	if s.settings.alone {
		s.later(func() {}, "publish", s.wakeChannel(), "0 "+queue) // its server may be away, too
		return settings, unread
	}
	version := redis.NewIntCmd(ctx, "hset", s.versionsKey(), queue, settings.Version)
	err := s.send(ctx, []redis.Cmder{version, redis.NewIntCmd(ctx, "publish", s.wakeChannel(), "0 "+queue)})
	if err == nil {
		err = version.Err()
	}
	s.settings.expire(queue)
	if err != nil {
		return settings, s.wrap(ctx, "settings", s.keysOf(queue), err)
	}
	return settings, unread
}
