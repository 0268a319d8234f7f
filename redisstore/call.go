package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// registerEvery is how often a queue's name is written again, in case the
// database was emptied.
const registerEvery = 30 * time.Second

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

// within bounds a call: the store's time-out, or the caller's if sooner.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// deadline is the server time in ms after which the caller of ctx no longer
// waits.
func (s *Store) deadline(ctx context.Context) int64 {
	patience := s.timeout
	if end, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(end))
	}
	return s.clock.deadline(patience)
}

// invoke runs one script and returns its answer: 0 or another code of its own,
// the clock, and the rest.
func (s *Store) invoke(ctx context.Context, op string, script *script, queue string, args ...any) ([]any, error) {
	in := &invocation{script: script, keys: s.keysOf(queue), args: args}
	s.run(ctx, []*invocation{in})
	return s.answer(ctx, op, in)
}

// timed is invoke for a script whose first argument is its deadline. One that
// came too late, by a clock we misjudged, is sent once more.
func (s *Store) timed(ctx context.Context, op string, script *script, queue string, args ...any) ([]any, error) {
	for try := 0; ; try++ {
		in := append([]any{s.deadline(ctx)}, args...)
		reply, err := s.invoke(ctx, op, script, queue, in...)
		if !errors.Is(err, errLate) || try > 0 || ctx.Err() != nil {
			return reply, err
		}
	}
}

var errLate = errors.New("the server ran the script after its deadline, so it did nothing")

// run sends scripts in one round trip, and those that the server did not know
// once more with their source. Each holds its answer or error.
func (s *Store) run(ctx context.Context, ins []*invocation) {
	s.exec(ctx, ins, (*invocation).evalsha)
	var unknown []*invocation
	for _, in := range ins {
		if noScript(in.err) {
			unknown = append(unknown, in)
		}
	}
	if len(unknown) > 0 {
		s.exec(ctx, unknown, (*invocation).eval)
	}
}

func (s *Store) exec(ctx context.Context, ins []*invocation, prepare func(*invocation) command) {
	cmds := make([]redis.Cmder, 0, len(ins)+1)
	versions := s.versionsIfStale(ctx, ins)
	if versions != nil {
		cmds = append(cmds, versions)
	}
	made := make([]command, len(ins))
	for i, in := range ins {
		made[i] = prepare(in)
		cmds = append(cmds, made[i])
		if in.script.names && s.register(in.keys.queue) {
			cmds = append(cmds, redis.NewIntCmd(ctx, "sadd", s.queuesKey(), in.keys.queue))
		}
	}
	err := s.send(ctx, cmds)
	for i, in := range ins {
		if in.err = err; err == nil {
			in.reply, in.err = made[i].Slice()
		}
	}
	if err == nil && versions != nil {
		s.noteVersions(versions) // if they cannot be read, whoever needs them reads again
	}
}

// versionsIfStale lets the versions of settings ride with reads of stats, which
// an idle worker makes once a second.
func (s *Store) versionsIfStale(ctx context.Context, ins []*invocation) *redis.MapStringStringCmd {
	if ins[0].script != statsScript || !s.settings.stale() {
		return nil
	}
	return s.versionsCmd(ctx)
}

// register says, now and then, that a queue's name should be written.
func (s *Store) register(queue string) bool {
	now := time.Now()
	if at, ok := s.registered.Load(queue); ok && now.Sub(at.(time.Time)) < registerEvery {
		return false
	}
	s.registered.Store(queue, now)
	return true
}

// send processes commands in one round trip. It returns when they hold their
// answers or errors, or an error when ctx ended first, whatever the client does
// with contexts; the commands must not be touched then.
func (s *Store) send(ctx context.Context, cmds []redis.Cmder) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if !s.race {
		s.process(ctx, cmds)
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.process(ctx, cmds)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// do is send for one command, whose error it returns.
func (s *Store) do(ctx context.Context, cmd redis.Cmder) error {
	if err := s.send(ctx, []redis.Cmder{cmd}); err != nil {
		return err
	}
	return cmd.Err()
}

func (s *Store) usable(ctx context.Context) error {
	if s.closed.Load() {
		return dueq.ErrClosed
	}
	if ctx.Err() != nil {
		return &unsent{context.Cause(ctx)}
	}
	return nil
}

func (s *Store) process(ctx context.Context, cmds []redis.Cmder) {
	if len(cmds) == 1 {
		_ = s.client.Process(ctx, cmds[0])
		return
	}
	pipe := s.client.Pipeline()
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	if err == nil || slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return cmd.Err() != nil }) {
		return
	}
	for _, cmd := range cmds { // go-redis does not when the server refused the connection
		cmd.SetErr(err)
	}
}

// unsent is the cause of a call that was given up before it was sent.
type unsent struct{ cause error }

func (e *unsent) Error() string { return e.cause.Error() }
func (e *unsent) Unwrap() error { return e.cause }

// answer checks the reply of a script and learns the server's clock from it.
func (s *Store) answer(ctx context.Context, op string, in *invocation) ([]any, error) {
	if in.err != nil {
		return nil, s.wrap(ctx, op, in.keys, in.err)
	}
	s.clock.saw(in.reply[1].(int64))
	if in.reply[0].(int64) == 1 {
		return nil, &dueq.CallError{Op: op, Queue: in.keys.queue, Err: dueq.Unavailable(errLate)}
	}
	return in.reply, nil
}

// Answers of a server that cannot do it now but may later.
var transient = []string{"OOM", "MISCONF", "NOREPLICAS", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY",
	"max number of clients reached"}

// wrap says what a failed call means for its caller.
func (s *Store) wrap(ctx context.Context, op string, k *keys, err error) error {
	call := &dueq.CallError{Op: op, Err: err}
	if k != nil {
		call.Queue = k.queue
	}
	var answered redis.Error
	switch {
	case errors.Is(err, dueq.ErrClosed), errors.Is(err, redis.ErrClosed):
		call.Err = dueq.ErrClosed
	case errors.As(err, &answered):
		call.Err = s.explain(ctx, k, err)
	default:
		call.Err = dueq.Unavailable(err)
		call.MayHaveHappened = !neverSent(err)
	}
	return call
}

func (s *Store) explain(ctx context.Context, k *keys, err error) error {
	for _, prefix := range transient {
		if redis.HasErrorPrefix(err, prefix) {
			return dueq.Unavailable(err)
		}
	}
	if redis.HasErrorPrefix(err, "WRONGTYPE") && k != nil {
		if named := s.wrongKey(ctx, k); named != nil {
			return named
		}
	}
	return err
}

// wrongKey finds the key of a queue that holds something else.
func (s *Store) wrongKey(ctx context.Context, k *keys) error {
	cmds := make([]redis.Cmder, keyCount)
	for i, name := range k.names {
		cmds[i] = redis.NewStatusCmd(ctx, "type", name)
	}
	if s.send(ctx, cmds) != nil {
		return nil
	}
	for i, cmd := range cmds {
		got := cmd.(*redis.StatusCmd).Val()
		if got != "" && got != "none" && got != keyTypes[i] {
			return &wrongTypeError{k.names[i].(string), got, keyTypes[i]}
		}
	}
	return nil
}

// wrongTypeError names the key that somebody uses for something else.
type wrongTypeError struct{ key, got, want string }

func (e *wrongTypeError) Error() string {
	return "WRONGTYPE key " + e.key + " is a " + e.got + ", not a " + e.want
}

func neverSent(err error) bool {
	var early *unsent
	if errors.As(err, &early) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) {
		return true
	}
	var op *net.OpError
	return errors.As(err, &op) && (op.Op == "dial" || strings.HasPrefix(op.Op, "lookup"))
}
