// Package redisstore keeps dueq's queues in Redis (7.0 or later) or Valkey (7.2
// or later): one atomic script per transition, see docs/design.md for the keys.
package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// Options configure a Store.
type Options struct {
	Prefix  string        // of every key; letters, digits and _ . : -; defaults to DefaultPrefix
	Timeout time.Duration // of one call, at least 10 ms; defaults to 1 s
}

// Store is a dueq.Store on Redis. It is safe for concurrent use.
type Store struct {
	client   redis.UniversalClient
	owned    bool // the client is ours to close
	race     bool // the client does not honour contexts by itself
	prefix   string
	timeout  time.Duration
	cluster  *redis.ClusterClient // the client, if it is one
	peer     *peer                // the server; nil in a cluster, where each queue has its own
	settings settingsCache

	keys       sync.Map      // queue → *keys
	registered sync.Map      // queue → time.Time its name was last written
	closed     atomic.Bool   // set once
	closing    chan struct{} // closed by Close
	mu         sync.Mutex    // held to begin something in the background, and to close
	background sync.WaitGroup
}

var _ dueq.Store = (*Store)(nil)

// Open connects to Redis by URL and checks its version:
//
//	redis://[user:password@]host:port[/db]
//	redis+cluster://[user:password@]host:port,host:port,…
//	redis+sentinel://[user:password@]host:port,host:port,…/master[/db]
//
// and the same with rediss over TLS. User and password are those of the
// servers that hold the data. Parameters, after a question mark: ca, the file
// of the CA to trust instead of the system's; prefix, where Options name none;
// sentinel_user and sentinel_password; and those of go-redis, as pool_size.
// protocol=2 is for what stands before Redis and hangs up at a HELLO: none is
// sent.
//
// Errors: ErrInvalid naming store or prefix, ErrUnavailable when nobody
// answers, what the server says, and for a user who lacks rights all commands
// that are missing.
func Open(rawURL string, opts Options) (*Store, error) {
	src, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	opts.Prefix = cmp.Or(opts.Prefix, src.prefix)
	if err := opts.validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	s := newStore(src.connect(opts.Timeout), opts)
	s.owned = true
	if err := s.check(); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

// New makes a Store of a client, which stays the caller's to close, and checks
// the server's version. Errors are those of Open.
func New(client redis.UniversalClient, opts Options) (*Store, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	if _, ok := client.(*redis.Ring); ok {
		return nil, &dueq.FieldError{Field: "client", Reason: "is a Ring, which tells nobody when tasks move to another server"}
	}
	s := newStore(client, opts.withDefaults())
	s.race = !honoursContext(client)
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

func newStore(client redis.UniversalClient, opts Options) *Store {
	s := &Store{client: client, prefix: opts.Prefix, timeout: opts.Timeout, closing: make(chan struct{})}
	if s.cluster, _ = client.(*redis.ClusterClient); s.cluster == nil {
		s.peer = &peer{}
	}
	s.settings.alone, s.settings.turn = s.cluster != nil, make(chan struct{}, 1)
	return s
}

func (o Options) validate() error {
	for i := range len(o.Prefix) {
		c := o.Prefix[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.:-", c) >= 0) {
			return &dueq.FieldError{Field: "prefix", Reason: fmt.Sprintf("%q may have letters, digits and _ . : - only", o.Prefix)}
		}
	}
	if o.Timeout != 0 && o.Timeout < 10*time.Millisecond {
		return &dueq.FieldError{Field: "timeout", Reason: fmt.Sprintf("%v is under 10ms", o.Timeout)}
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Timeout == 0 {
		o.Timeout = time.Second
	}
	return o
}

func honoursContext(client redis.UniversalClient) bool {
	switch c := client.(type) {
	case *redis.Client:
		return c.Options().ContextTimeoutEnabled
	case *redis.ClusterClient:
		return c.Options().ContextTimeoutEnabled
	}
	return false
}

// check finds out that the server can do what the scripts need, loads them and
// reads its clock.
func (s *Store) check() error {
	ctx, cancel := s.within(context.Background())
	defer cancel()
	if s.cluster != nil {
		if err := s.greetAll(ctx); err != nil {
			return err
		}
		return s.checkAccess(ctx) // each server gets the scripts when it needs them
	}
	now, err := s.greet(ctx, s.client)
	if err != nil {
		return err
	}
	if err := s.checkAccess(ctx); err != nil {
		return err
	}
	s.peer.clock.saw(now.UnixMicro())
	return s.loadScripts(ctx)
}

// greet finds out that a server is there and new enough.
func (s *Store) greet(ctx context.Context, to node) (time.Time, error) {
	now := redis.NewTimeCmd(ctx, "time")
	info := redis.NewStringCmd(ctx, "info", "server")
	if err := s.sendTo(ctx, to, []redis.Cmder{now, info}); err != nil {
		return time.Time{}, s.wrap(ctx, "open", nil, err)
	}
	if err := checkVersion(info.Val()); err != nil {
		return time.Time{}, err
	}
	if err := now.Err(); err != nil && !isDenied(err) {
		return time.Time{}, s.wrap(ctx, "open", nil, err)
	}
	return now.Val(), nil
}

// greetAll is greet for a cluster, of which some server has to be there. It
// takes half the time, so that one that hangs leaves some for the others.
func (s *Store) greetAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.patience(ctx)/2)
	defer cancel()
	var mu sync.Mutex // guards met and failure
	var met bool
	var failure error
	err := s.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		_, err := s.greet(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		met = met || err == nil
		if err != nil && (failure == nil || !errors.Is(err, dueq.ErrUnavailable)) {
			failure = err
		}
		return nil
	})
	switch {
	case err != nil:
		return s.wrap(ctx, "open", nil, err)
	case met && errors.Is(failure, dueq.ErrUnavailable):
		return nil
	}
	return failure
}

// loadScripts is a round trip of its own: of a client that has not
// authenticated a server reads only so much before it hangs up. Who may not
// load sends the sources when they are needed.
func (s *Store) loadScripts(ctx context.Context) error {
	cmds := make([]redis.Cmder, len(scripts))
	for i, script := range scripts {
		cmds[i] = redis.NewStringCmd(ctx, "script", "load", script.source)
	}
	if err := s.send(ctx, cmds); err != nil {
		return s.wrap(ctx, "open", nil, err)
	}
	return nil
}

// checkVersion reads INFO; a server that does not tell gets the benefit of the
// doubt.
func checkVersion(info string) error {
	name, version, low := "Redis", infoField(info, "redis_version"), 7
	if v := infoField(info, "valkey_version"); v != "" {
		name, version = "Valkey", v
	}
	major, err := strconv.Atoi(strings.SplitN(version, ".", 2)[0])
	if err != nil || major >= low {
		return nil
	}
	return fmt.Errorf("open: %s %s is too old, dueq needs Redis 7.0 or Valkey 7.2 or later", name, version)
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Close ends the Store's calls and, if Open made it, its connections.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed.Swap(true)
	s.mu.Unlock()
	if closed {
		return nil
	}
	close(s.closing)
	s.background.Wait()
	if s.owned {
		return s.client.Close()
	}
	return nil
}

// spawn begins something in the background that ends soon after closing does,
// and reports false if the Store is closed already.
func (s *Store) spawn(run func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed.Load() {
		return false
	}
	s.background.Go(run)
	return true
}
