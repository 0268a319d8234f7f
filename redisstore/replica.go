package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// With wait_replicas a call is answered when so many replicas have what it
// wrote: what is scheduled, changed, and on queues that are at_most_once also
// what is claimed and put back. What is lost of other claims and verdicts makes
// a task run again, which at_least_once allows.

// Which queues a call waits on.
func always(dueq.Settings) bool { return true }
func once(s dueq.Settings) bool { return s.Delivery == dueq.AtMostOnce }

// maxRedirects is how often a call follows its slot to another server.
const maxRedirects = 5

// replicasOf is how many replicas a call has to wait for, as far as this
// process knows; a script says if that is no longer so.
func (s *Store) replicasOf(ctx context.Context, k *keys, where func(dueq.Settings) bool) int {
	settings, known := s.settings.last(k.queue)
	if !known {
		settings, _ = s.readSettings(ctx, k.queue) // if nobody answers, the call itself will say so
	}
	if !where(settings) {
		return 0
	}
	return settings.WaitReplicas
}

// checkReplicas takes notice when the setting is another than was known. It is
// an error if nothing was known, and so nobody waited.
func (s *Store) checkReplicas(ctx context.Context, op string, in *invocation, now int64) error {
	if int64(in.replicas) == now {
		return nil
	}
	_, known := s.settings.last(in.keys.queue)
	s.settings.forget(in.keys.queue)
	if known || now == 0 {
		return nil
	}
	return s.wrap(ctx, op, in.keys, &unreplicated{want: int(now)})
}

// runReplicated runs a script and waits for replicas, on one connection: a
// server counts by what it wrote for that connection.
func (s *Store) runReplicated(ctx context.Context, in *invocation) {
	to, err := s.nodeOf(ctx, in.keys)
	if err != nil {
		in.err = err
		return
	}
	prepare, asking := (*invocation).evalsha, false
	for range maxRedirects {
		s.execReplicated(ctx, in, to, prepare, asking)
		if noScript(in.err) {
			prepare = (*invocation).eval
			continue
		}
		addr, ask := redirection(in.err)
		if addr == "" {
			return
		}
		if to = s.nodeAt(ctx, addr); to == nil {
			return
		}
		asking = ask
	}
}

func (s *Store) execReplicated(ctx context.Context, in *invocation, to node, prepare func(*invocation) command, asking bool) {
	script := prepare(in)
	wait := redis.NewIntCmd(ctx, "wait", in.replicas, s.waitTime(ctx).Milliseconds())
	cmds := []redis.Cmder{script, wait}
	if asking {
		cmds = append([]redis.Cmder{redis.NewStatusCmd(ctx, "asking")}, cmds...)
	}
	if in.script.names && s.unregistered(in.keys.queue) {
		cmds = s.register(ctx, cmds, in.keys.queue)
	}
	if in.err = s.sendTo(ctx, to, cmds); in.err != nil {
		return
	}
	in.reply, in.err = script.Slice()
	if in.err == nil && in.reply[0].(int64) == 0 && wait.Val() < int64(in.replicas) {
		in.err = &unreplicated{wait.Val(), in.replicas, wait.Err()}
	}
}

// waitTime leaves the answer a little time to come. Zero would be for ever.
func (s *Store) waitTime(ctx context.Context) time.Duration {
	patience := s.timeout
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end))
	}
	return max(patience*9/10, time.Millisecond)
}

// redirection reads where a cluster says that a slot is, for good or only for
// the call.
func redirection(err error) (addr string, ask bool) {
	if err == nil {
		return "", false
	}
	fields := strings.Fields(err.Error())
	if len(fields) != 3 || fields[0] != "MOVED" && fields[0] != "ASK" {
		return "", false
	}
	return fields[2], fields[0] == "ASK"
}

// nodeAt is a client of the master at an address, nil if there is none.
func (s *Store) nodeAt(ctx context.Context, addr string) (found node) {
	s.cluster.ReloadState(ctx)
	var mu sync.Mutex
	_ = s.cluster.ForEachMaster(ctx, func(_ context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		if c.Options().Addr == addr {
			found = c
		}
		return nil
	})
	return found
}

// unreplicated says that what was written may be lost with its server.
type unreplicated struct {
	got  int64
	want int
	err  error
}

func (e *unreplicated) Error() string {
	if e.err != nil {
		return fmt.Sprintf("waiting for %d replicas: %v", e.want, e.err)
	}
	return fmt.Sprintf("%d of %d replicas have it so far", e.got, e.want)
}
