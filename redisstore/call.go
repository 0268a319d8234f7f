package redisstore

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// registerEvery is how often a queue's name is written again, in case the
// database was emptied.
const registerEvery = 30 * time.Second

// within bounds a call: the store's time-out, or the caller's if sooner.
func (s *Store) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// invoke runs one script and returns its answer: 0 or another code of its own,
// the clock, and the rest.
func (s *Store) invoke(ctx context.Context, op string, in *invocation) ([]any, error) {
	s.run(ctx, []*invocation{in})
	return s.answer(ctx, op, in)
}

// timed is invoke for a script whose first argument is its deadline, before
// args. One that came too late, by a clock we misjudged, is sent once more.
func (s *Store) timed(ctx context.Context, op string, in *invocation, args ...any) ([]any, error) {
	s.meet(ctx, in.keys)
	s.setReplicas(in)
	for try := 0; ; try++ {
		in.args = append([]any{s.deadline(ctx, in.keys)}, args...)
		reply, err := s.invoke(ctx, op, in)
		if !errors.Is(err, errLate) || try > 0 || ctx.Err() != nil {
			return reply, err
		}
	}
}

var errLate = errors.New("the server ran the script after its deadline, so it did nothing")

// movePause is how long a call waits for a slot that is on its way to another
// server.
const movePause = 10 * time.Millisecond

// run runs scripts. Each holds its answer or error then. Those that met their
// slot on its way to another server did nothing, and are sent again while their
// caller waits.
func (s *Store) run(ctx context.Context, ins []*invocation) {
	for s.runOnce(ctx, ins); s.cluster != nil; s.runOnce(ctx, ins) {
		if ins = onTheMove(ins); len(ins) == 0 {
			return
		}
		select {
		case <-time.After(movePause):
		case <-ctx.Done():
			return
		}
	}
}

func onTheMove(ins []*invocation) (moving []*invocation) {
	for _, in := range ins {
		if in.err != nil && redis.HasErrorPrefix(in.err, "TRYAGAIN") {
			moving = append(moving, in)
		}
	}
	return moving
}

// runOnce runs scripts in one round trip, but for those that wait for replicas.
func (s *Store) runOnce(ctx context.Context, ins []*invocation) {
	if !slices.ContainsFunc(ins, (*invocation).waits) {
		s.runTogether(ctx, ins)
		return
	}
	var group sync.WaitGroup
	var others []*invocation
	for _, in := range ins {
		if in.waits() {
			group.Go(func() { s.runReplicated(ctx, in) })
		} else {
			others = append(others, in)
		}
	}
	if len(others) > 0 {
		s.runTogether(ctx, others)
	}
	group.Wait()
}

// runTogether sends scripts in one round trip, and those that the server did
// not know once more with their source.
func (s *Store) runTogether(ctx context.Context, ins []*invocation) {
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
		if in.script.names && s.unregistered(in.keys.queue) {
			cmds = s.register(ctx, cmds, in.keys.queue)
		}
	}
	err := s.send(ctx, cmds)
	for i, in := range ins {
		if in.err = err; err == nil {
			in.reply, in.err = made[i].answer()
		}
	}
	if err == nil && versions != nil {
		s.noteVersions(versions) // if they cannot be read, whoever needs them reads again
	}
}

// versionsIfStale lets the versions of settings ride with reads of stats, which
// an idle worker makes once a second.
func (s *Store) versionsIfStale(ctx context.Context, ins []*invocation) *redis.MapStringStringCmd {
	if ins[0].script != statsScript || s.cluster != nil || !s.settings.stale() {
		return nil
	}
	return s.versionsCmd(ctx)
}

// unregistered says, now and then, that a queue's name should be written.
func (s *Store) unregistered(queue string) bool {
	now := time.Now()
	if at, ok := s.registered.Load(queue); ok && now.Sub(at.(time.Time)) < registerEvery {
		return false
	}
	s.registered.Store(queue, now)
	return true
}

// register writes the name of a queue, along with cmds. In a cluster it goes to
// another server, which may be away: nobody waits for that.
func (s *Store) register(ctx context.Context, cmds []redis.Cmder, queue string) []redis.Cmder {
	if s.cluster == nil {
		return append(cmds, redis.NewIntCmd(ctx, "sadd", s.queuesKey(), queue))
	}
	s.later(func() { s.registered.Delete(queue) }, "sadd", s.queuesKey(), queue)
	return cmds
}

// later sends a command that nobody waits for but Close.
func (s *Store) later(failed func(), args ...any) {
	s.spawn(func() {
		ctx, cancel := s.within(context.Background())
		defer cancel()
		cmd := redis.NewIntCmd(ctx, args...)
		if s.process(ctx, s.client, []redis.Cmder{cmd}); cmd.Err() != nil {
			failed()
		}
	})
}

// send processes commands in one round trip. It returns when they hold their
// answers or errors, or an error when ctx ended first, whatever the client does
// with contexts; the commands must not be touched then.
func (s *Store) send(ctx context.Context, cmds []redis.Cmder) error {
	return s.sendTo(ctx, s.client, cmds)
}

// sendTo is send to one server, or to the client that knows where to.
func (s *Store) sendTo(ctx context.Context, to node, cmds []redis.Cmder) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	if !s.race {
		s.process(ctx, to, cmds)
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.process(ctx, to, cmds)
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
	return s.doAt(ctx, s.client, cmd)
}

func (s *Store) doAt(ctx context.Context, to node, cmd redis.Cmder) error {
	if err := s.sendTo(ctx, to, []redis.Cmder{cmd}); err != nil {
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

func (s *Store) process(ctx context.Context, to node, cmds []redis.Cmder) {
	defer s.relocate(ctx, cmds)
	if len(cmds) == 1 {
		_ = to.Process(ctx, cmds[0])
		return
	}
	pipe := to.Pipeline()
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

// relocate has a cluster's client look where the slots are, when a server did
// not answer: it may have been replaced.
func (s *Store) relocate(ctx context.Context, cmds []redis.Cmder) {
	if s.cluster == nil {
		return
	}
	for _, cmd := range cmds {
		var answered redis.Error
		if err := cmd.Err(); err != nil && !errors.As(err, &answered) {
			s.cluster.ReloadState(ctx)
			return
		}
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
	in.keys.peer.clock.saw(in.reply[1].(int64))
	if in.reply[0].(int64) == 1 {
		return nil, &dueq.CallError{Op: op, Queue: in.keys.queue, Err: dueq.Unavailable(errLate)}
	}
	return in.reply, nil
}

// Answers of a server that cannot do it now but may later.
var transient = []string{"OOM", "MISCONF", "NOREPLICAS", "READONLY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "BUSY",
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
	case errors.As(err, &answered) && !brokeOff(err):
		call.Err = s.explain(ctx, k, err)
	default:
		call.Err = dueq.Unavailable(err)
		call.MayHaveHappened = !neverSent(err)
	}
	return call
}

// brokeOff: a script emptied a key and came back to it while the slot was on its
// way to another server, which has that key now. What it wrote stays; rule 2
// sees to it that no task is lost.
func brokeOff(err error) bool { return strings.Contains(err.Error(), "non local key") }

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
