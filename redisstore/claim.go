package redisstore

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// A token is the entry in the active set with which the lease began: its end in
// seconds × deliveries + the number of the delivery. onceToken marks tasks that
// were claimed at most once.
const (
	deliveries            = 1_000_000
	onceToken  dueq.Token = -1
)

// numberOf is what stays of a token when the lease is extended.
func numberOf(t dueq.Token) int64 {
	if t == onceToken {
		return int64(t)
	}
	return int64(t) % deliveries
}

// Claim implements dueq.Store.
func (s *Store) Claim(ctx context.Context, req dueq.ClaimRequest) (dueq.Claim, error) {
	if err := validateClaim(req); err != nil {
		return dueq.Claim{}, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	in := &invocation{script: claimScript, keys: s.keysOf(req.Queue), where: once}
	reply, err := s.handOut(ctx, "claim", in, s.wakeChannel(), req.Queue, req.Max, micros(req.Lease))
	if err != nil {
		return dueq.Claim{}, err
	}
	if reply[0].(int64) == 2 {
		return dueq.Claim{}, leaseOver(req.Lease, reply[2].(int64))
	}
	return readClaim(req.Queue, reply[1].(int64), reply[2:])
}

func validateClaim(req dueq.ClaimRequest) error {
	if err := validMax(req.Queue, req.Max); err != nil || req.Lease == 0 {
		return err
	}
	return validLease(req.Lease)
}

func validMax(queue string, most int) error {
	if err := dueq.ValidateQueue(queue); err != nil {
		return err
	}
	if most < 0 || most > dueq.MaxItems {
		return &dueq.FieldError{Field: "max", Reason: fmt.Sprintf("%d is not 0 to %d", most, dueq.MaxItems)}
	}
	return nil
}

func validLease(d time.Duration) error {
	if d < time.Second {
		return &dueq.FieldError{Field: "lease", Reason: fmt.Sprintf("%v is under 1s", d)}
	}
	return nil
}

func leaseOver(d time.Duration, maxMilli int64) error {
	limit := dueq.FormatDuration(time.Duration(maxMilli) * time.Millisecond)
	return &dueq.FieldError{Field: "lease", Reason: fmt.Sprintf("%v is over the queue's lease_max, %s", d, limit)}
}

func micros(d time.Duration) int64 { return (d + time.Microsecond - 1).Microseconds() }

// handOut runs a script that takes due tasks.
func (s *Store) handOut(ctx context.Context, op string, in *invocation, args ...any) ([]any, error) {
	if err := s.probe(ctx, op, in.keys); err != nil {
		return nil, err
	}
	reply, err := s.timed(ctx, op, in, args...)
	if err != nil {
		in.keys.peer.suspect.Store(errors.Is(err, dueq.ErrUnavailable))
	}
	return reply, err
}

// probe asks a server that left a claim unanswered whether it is there before
// it is given another: what a stopped server finds in its socket it runs later.
func (s *Store) probe(ctx context.Context, op string, k *keys) error {
	if !k.peer.suspect.Load() {
		return nil
	}
	if err := s.ping(ctx, k); err != nil {
		err = s.wrap(ctx, op, k, err)
		var call *dueq.CallError
		if errors.As(err, &call) {
			call.MayHaveHappened = false
		}
		return err
	}
	k.peer.suspect.Store(false)
	return nil
}

func (s *Store) ping(ctx context.Context, k *keys) error {
	n, err := s.nodeOf(ctx, k)
	if err != nil {
		return err
	}
	return s.doAt(ctx, n, redis.NewStatusCmd(ctx, "ping"))
}

// readClaim reads the answer of claim.lua after the clock.
func readClaim(queue string, clock int64, reply []any) (dueq.Claim, error) {
	leases := reply[0].(int64)
	claim := dueq.Claim{
		Now: time.UnixMicro(clock), Wait: waitOf(reply[1], clock), Previous: previousOf(reply[2]), Paused: reply[3].(int64) == 1,
	}
	taken := reply[4].(string)
	if taken == "" {
		return claim, nil
	}
	if leases > 0 {
		claim.LeaseEnds = time.Unix(leases/deliveries, 0)
	}
	tries, _ := reply[5].([]any)
	bodies, _ := reply[6].([]any)
	tasks := make([]dueq.Task, (strings.Count(taken, " ")+1)/2)
	claim.Tasks = make([]*dueq.Task, len(tasks))
	for i := range tasks {
		var member, score string
		member, taken, _ = strings.Cut(taken, " ")
		score, taken, _ = strings.Cut(taken, " ")
		t := &tasks[i]
		if err := readTask(t, member, score, clock); err != nil {
			return claim, fmt.Errorf("claim %s: %w", queue, err)
		}
		t.Queue, t.Lease.Token = queue, dueq.Token(leases)
		if tries != nil {
			var failures int
			failures, t.Round = readTries(tries[i])
			t.Attempt += failures
		}
		if bodies != nil {
			t.Body = readBody(bodies[i])
		}
		claim.Tasks[i] = t
	}
	return claim, nil
}

// waitOf is how long it is until there is more.
func waitOf(v any, clock int64) time.Duration {
	more := v.(int64)
	if more < 0 {
		return -1
	}
	us := min(max(more*1000-clock, 0), math.MaxInt64/int64(time.Microsecond))
	return time.Duration(us) * time.Microsecond
}

// previousOf is when somebody claimed before, or zero.
func previousOf(v any) time.Time {
	if last := v.(int64); last > 0 {
		return time.UnixMilli(last)
	}
	return time.Time{}
}

func readTask(t *dueq.Task, member, score string, clock int64) error {
	var err error
	if *t, err = dueq.ParseMember(member); err != nil {
		return err // the script let through what it should have set aside
	}
	due, err := readDue(score)
	if err != nil {
		return err
	}
	t.Due = time.UnixMilli(due)
	t.Age = time.Duration(clock-due*1000) * time.Microsecond
	t.Attempt = 1
	t.Lease.Member = member
	return nil
}

// readDue rounds a score up to whole ms; what no task can be due at becomes the
// nearest time that one can, or 1970.
func readDue(score string) (int64, error) {
	if due, err := strconv.ParseInt(score, 10, 64); err == nil && due >= 0 && due <= dueq.MaxDueMilli {
		return due, nil
	}
	f, err := strconv.ParseFloat(score, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, fmt.Errorf("score %q: %w", score, err)
	}
	return int64(min(max(math.Ceil(f), 0), dueq.MaxDueMilli)), nil
}

// readTries reads failures/rounds; the mark of a cancelled run is neither.
func readTries(v any) (failures, rounds int) {
	text, _ := v.(string)
	f, r, _ := strings.Cut(text, "/")
	failures, _ = strconv.Atoi(f)
	rounds, _ = strconv.Atoi(r)
	return max(failures, 0), rounds
}

func readBody(v any) []byte {
	if text, ok := v.(string); ok {
		return []byte(text)
	}
	return nil
}
