package redisstore

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// peer is what is known of the server on which a queue lies.
type peer struct {
	clock   clock
	suspect atomic.Bool // it left a claim without answer: PING before the next one
}

// clock follows the server's clock between answers.
type clock struct {
	state atomic.Pointer[reading]
}

type reading struct {
	micro int64     // the server's clock
	at    time.Time // ours, monotonic
}

func (c *clock) saw(micro int64) { c.state.Store(&reading{micro, time.Now()}) }

// deadline is the server time in ms after which a caller with so much patience
// no longer waits, or 0 while the clock is unknown.
func (c *clock) deadline(patience time.Duration) int64 {
	r := c.state.Load()
	if r == nil {
		return 0
	}
	return (r.micro + (time.Since(r.at) + patience).Microseconds()) / 1000
}

// deadline is the server time in ms after which the caller of ctx no longer
// waits.
func (s *Store) deadline(ctx context.Context, k *keys) int64 {
	return k.peer.clock.deadline(s.patience(ctx))
}

// patience is how long the caller of ctx waits yet.
func (s *Store) patience(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(s.timeout, time.Until(end))
	}
	return s.timeout
}

// meet learns what calls have to know of queues: the clocks of their servers
// and their settings. It leaves them half the time: of a server that does not
// answer the call itself will say so, and not to the cost of the others.
func (s *Store) meet(ctx context.Context, queues ...*keys) {
	var clocks []*invocation
	var settings []*keys
	for _, k := range queues {
		if k.peer.clock.state.Load() == nil {
			clocks = append(clocks, &invocation{script: statsScript, keys: k, args: totalNames})
		}
		if _, known := s.settings.last(k.queue); !known {
			settings = append(settings, k)
		}
	}
	if len(clocks)+len(settings) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, s.patience(ctx)/2)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	if len(settings) > 0 {
		group.Go(func() { s.learnSettings(ctx, settings) })
	}
	if len(clocks) > 0 {
		s.readClocks(ctx, clocks)
	}
}

func (s *Store) readClocks(ctx context.Context, ins []*invocation) {
	s.run(ctx, ins)
	for _, in := range ins {
		_, _ = s.answer(ctx, "stats", in)
	}
}

// node is a client of the one server on which a queue lies.
type node interface {
	Process(ctx context.Context, cmd redis.Cmder) error
	Pipeline() redis.Pipeliner
}

func (s *Store) nodeOf(ctx context.Context, k *keys) (node, error) {
	if s.cluster == nil {
		return s.client, nil
	}
	return s.cluster.MasterForKey(ctx, k.names[0].(string))
}
