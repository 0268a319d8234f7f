package redisstore

import (
	"context"
	"fmt"
	"strings"
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

// unknown is the number of replicas while the settings could not be read.
const unknown = -1

// setReplicas notes how many replicas a call has to wait for, as far as this
// process knows; a script says if that is no longer so.
func (s *Store) setReplicas(in *invocation) {
	settings, known := s.settings.last(in.keys.queue)
	switch {
	case in.where == nil:
	case !known:
		in.replicas = unknown
	case in.where(settings):
		in.replicas = settings.WaitReplicas
	default:
		in.replicas = 0
	}
}

// checkReplicas takes notice when the setting is another than was known. It is
// an error if nothing was known, and so nobody waited.
func (s *Store) checkReplicas(ctx context.Context, op string, in *invocation, now int64) error {
	if int64(in.replicas) == now {
		return nil
	}
	s.settings.forget(in.keys.queue)
	if in.replicas == unknown && now > 0 {
		return s.wrap(ctx, op, in.keys, &unreplicated{want: int(now)})
	}
	return nil
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
		addr, ask := redirection(in.err)
		switch {
		case noScript(in.err):
			prepare = (*invocation).eval
		case addr != "" && s.cluster != nil:
			other := s.at(ctx, addr, to)
			defer other.Close()
			to, asking = other, ask
		default:
			return
		}
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
	in.reply, in.err = script.answer()
	if in.err == nil && in.reply[0].(int64) == 0 && wait.Val() < int64(in.replicas) {
		in.err = &unreplicated{wait.Val(), in.replicas, wait.Err()}
	}
}

// waitTime leaves the answer some time to come: an idle server looks at its
// clock ten times a second. Zero would be for ever.
func (s *Store) waitTime(ctx context.Context) time.Duration {
	return max(s.patience(ctx)*4/5, time.Millisecond)
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

// at is a client of another server of the cluster, for one call. The cluster's
// client has none for a server without slots, to which the first is on its way.
func (s *Store) at(ctx context.Context, addr string, like node) *redis.Client {
	s.cluster.ReloadState(ctx)
	options := *like.(*redis.Client).Options()
	options.Addr, options.MinIdleConns = addr, 0
	return redis.NewClient(&options)
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
