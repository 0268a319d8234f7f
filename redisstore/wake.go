package redisstore

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

const (
	wakeBuffer = 256              // hints waiting for a slow reader; more are dropped
	wakeIdle   = 15 * time.Second // silence after which the connection is tried
	wakeRetry  = time.Second      // between attempts to subscribe
	wakeDenied = time.Minute      // … for who has no right to
)

// Wake implements dueq.Store. Without the right to subscribe no hint ever
// comes.
func (s *Store) Wake(ctx context.Context) (<-chan dueq.Hint, error) {
	if ctx.Err() != nil {
		return nil, &dueq.CallError{Op: "wake", Err: dueq.Unavailable(context.Cause(ctx))}
	}
	ctx, cancel := context.WithCancel(ctx)
	hints := make(chan dueq.Hint, wakeBuffer)
	ok := s.spawn(func() {
		defer close(hints)
		defer cancel()
		s.subscribe(ctx, hints)
	})
	ok = ok && s.spawn(func() {
		select {
		case <-s.closing:
			cancel()
		case <-ctx.Done():
		}
	})
	if !ok {
		cancel()
		return nil, &dueq.CallError{Op: "wake", Err: dueq.ErrClosed}
	}
	return hints, nil
}

// subscribe listens until ctx ends, over as many connections as it takes.
func (s *Store) subscribe(ctx context.Context, hints chan<- dueq.Hint) {
	for ctx.Err() == nil {
		wait := wakeRetry
		err := s.listen(ctx, hints)
		if err != nil && redis.HasErrorPrefix(err, "NOPERM") {
			wait = wakeDenied
		} else if s.cluster != nil {
			s.cluster.ReloadState(ctx) // the server may have been replaced
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// listen passes hints on until the connection fails.
func (s *Store) listen(ctx context.Context, hints chan<- dueq.Hint) error {
	client, err := s.subscriber(ctx)
	if err != nil {
		return err
	}
	sub := client.Subscribe(ctx, s.wakeChannel())
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	for silent := false; ; {
		message, err := sub.ReceiveTimeout(ctx, wakeIdle)
		switch {
		case err != nil && (!isTimeout(err) || silent):
			return err
		case err != nil:
			silent = true
			if err := sub.Ping(ctx); err != nil {
				return err
			}
			continue
		}
		silent = false
		if m, ok := message.(*redis.Message); ok {
			s.pass(m.Payload, hints)
		}
	}
}

// subscriber is a client to listen with. All servers of a cluster know of all
// hints, so it is another one each time.
func (s *Store) subscriber(ctx context.Context) (interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}, error) {
	if s.cluster == nil {
		return s.client, nil
	}
	return s.cluster.MasterForKey(ctx, itoa(rand.Int64()))
}

func isTimeout(err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ok && t.Timeout()
}

// pass reads a hint: due in ms and queue; due 0 says that settings changed.
func (s *Store) pass(payload string, hints chan<- dueq.Hint) {
	due, queue, ok := strings.Cut(payload, " ")
	ms, err := strconv.ParseInt(due, 10, 64)
	if !ok || err != nil || dueq.ValidateQueue(queue) != nil {
		return
	}
	if ms == 0 {
		s.settings.expire(queue)
	}
	select {
	case hints <- dueq.Hint{Queue: queue, Due: time.UnixMilli(ms)}:
	default:
	}
}
