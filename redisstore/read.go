package redisstore

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
)

// described is how many values info.lua says of one task.
const described = 9

// Get implements dueq.Store.
func (s *Store) Get(ctx context.Context, queue string, members []string) ([]dueq.Info, error) {
	if err := validCall(queue, "members", len(members)); err != nil {
		return nil, err
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	infos := make([]dueq.Info, 0, len(members))
	for len(infos) < len(members) {
		args := make([]any, 0, len(members))
		for _, m := range members[len(infos):] {
			args = append(args, m)
		}
		reply, err := s.invoke(ctx, "get", &invocation{script: getScript, keys: s.keysOf(queue), args: args})
		if err != nil {
			return nil, err
		}
		for values := range slices.Chunk(reply[2:], described) {
			infos = append(infos, readInfo(queue, values, true))
		}
	}
	return infos, nil
}

// readInfo reads what info.lua describes.
func readInfo(queue string, v []any, withBody bool) dueq.Info {
	member := v[0].(string)
	t, err := dueq.ParseMember(member)
	info := dueq.Info{Task: t, Member: member, Malformed: err}
	info.Queue = queue
	info.Failures, info.Round = readTries(v[5])
	info.Attempt = info.Failures + 1
	info.Cancelled = v[8].(int64) == 1
	info.LastError, _ = v[6].(string)
	info.HasBody = v[7] != nil
	if withBody {
		info.Body = readBody(v[7])
	}
	if due, ok := scoreOf(v[2]); ok {
		info.Due, info.State = time.UnixMilli(due), dueq.StateScheduled
	}
	if due, ok := scoreOf(v[1]); ok {
		info.Due, info.State = time.UnixMilli(due), dueq.StateScheduled
	}
	if died, ok := scoreOf(v[4]); ok {
		info.DiedAt = time.UnixMilli(died)
		if info.State == dueq.StateNone {
			info.State = dueq.StateDead
		}
	}
	if lease, ok := v[3].(int64); ok {
		info.Again = info.State == dueq.StateScheduled
		info.State, info.LeaseEnds = dueq.StateActive, time.Unix(lease/1_000_000, 0)
	}
	if info.State == dueq.StateNone { // side data of a plain ZREM says nothing
		return dueq.Info{Task: t, Member: member, Malformed: err}
	}
	return info
}

func scoreOf(v any) (int64, bool) {
	text, ok := v.(string)
	if !ok {
		return 0, false
	}
	due, err := readDue(text)
	return due, err == nil
}

// List implements dueq.Store.
func (s *Store) List(ctx context.Context, q dueq.ListQuery) (dueq.Page, error) {
	q, score, member, err := validateList(q)
	if err != nil {
		return dueq.Page{}, err
	}
	overdue := "0"
	if q.Overdue {
		overdue = "1"
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	page := dueq.Page{}
	for left := q.Limit; ; {
		args := []any{q.State.String(), left, overdue, score, member}
		reply, err := s.invoke(ctx, "list", &invocation{script: listScript, keys: s.keysOf(q.Queue), args: args})
		if err != nil {
			return dueq.Page{}, err
		}
		for values := range slices.Chunk(reply[4:], described) {
			left--
			if info := readInfo(q.Queue, values, false); strings.Contains(info.LastError, q.Error) {
				page.Tasks = append(page.Tasks, info)
			}
		}
		if score, member = reply[2].(string), reply[3].(string); score == "" {
			return page, nil
		}
		if left == 0 {
			page.Cursor = base64.RawURLEncoding.EncodeToString([]byte(score + " " + member))
			return page, nil
		}
	}
}

func validateList(q dueq.ListQuery) (_ dueq.ListQuery, score, member string, err error) {
	if err := dueq.ValidateQueue(q.Queue); err != nil {
		return q, "", "", err
	}
	if q.Limit == 0 {
		q.Limit = 100
	}
	if q.Limit < 1 || q.Limit > dueq.MaxItems {
		return q, "", "", &dueq.FieldError{Field: "limit", Reason: fmt.Sprintf("%d is not 1 to %d", q.Limit, dueq.MaxItems)}
	}
	if q.State < dueq.StateScheduled || q.State > dueq.StateDead {
		return q, "", "", &dueq.FieldError{Field: "state", Reason: "is not scheduled, active or dead"}
	}
	if q.Cursor == "" {
		return q, "", "", nil
	}
	text, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	score, member, ok := strings.Cut(string(text), " ")
	if err != nil || !ok || !isScore(score) {
		return q, "", "", &dueq.FieldError{Field: "cursor", Reason: "is not one that List gave"}
	}
	return q, score, member, nil
}

// isScore accepts numbers as Redis writes them, not all that ParseFloat reads.
func isScore(text string) bool {
	_, err := readDue(text)
	return err == nil && strings.Trim(text, "0123456789.e+-inf") == ""
}

// Names of the totals in a queue's stats, and where they go.
var totals = []struct {
	name  string
	field func(*dueq.Totals) *int64
}{
	{"scheduled", func(t *dueq.Totals) *int64 { return &t.Scheduled }},
	{"claimed", func(t *dueq.Totals) *int64 { return &t.Claimed }},
	{"forwarded", func(t *dueq.Totals) *int64 { return &t.Forwarded }},
	{"acked", func(t *dueq.Totals) *int64 { return &t.Acked }},
	{"retried", func(t *dueq.Totals) *int64 { return &t.Retried }},
	{"again", func(t *dueq.Totals) *int64 { return &t.Again }},
	{"released", func(t *dueq.Totals) *int64 { return &t.Released }},
	{"died", func(t *dueq.Totals) *int64 { return &t.Died }},
	{"ended", func(t *dueq.Totals) *int64 { return &t.Ended }},
	{"stopped", func(t *dueq.Totals) *int64 { return &t.Stopped }},
	{"superseded", func(t *dueq.Totals) *int64 { return &t.Superseded }},
	{"refused", func(t *dueq.Totals) *int64 { return &t.Refused }},
	{"requeued", func(t *dueq.Totals) *int64 { return &t.Requeued }},
	{"cancelled", func(t *dueq.Totals) *int64 { return &t.Cancelled }},
	{"deleted", func(t *dueq.Totals) *int64 { return &t.Deleted }},
	{"trimmed", func(t *dueq.Totals) *int64 { return &t.Trimmed }},
}

var totalNames = func() []any {
	names := make([]any, len(totals))
	for i, t := range totals {
		names[i] = t.name
	}
	return names
}()

// Stats implements dueq.Store. Versions of settings ride in the same round
// trip when they are due to be read.
func (s *Store) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	if len(queues) == 0 {
		var err error
		if queues, err = s.queues(ctx); err != nil || len(queues) == 0 {
			return nil, err
		}
	}
	ins := make([]*invocation, len(queues))
	for i, queue := range queues {
		if err := dueq.ValidateQueue(queue); err != nil {
			return nil, err
		}
		ins[i] = &invocation{script: statsScript, keys: s.keysOf(queue), args: totalNames}
	}
	s.run(ctx, ins)
	out := make([]dueq.QueueStats, len(queues))
	failed := 0
	for i, in := range ins {
		reply, err := s.answer(ctx, "stats", in)
		if err != nil {
			out[i] = dueq.QueueStats{Queue: queues[i], Err: err}
			failed++
			continue
		}
		out[i] = readStats(queues[i], reply)
	}
	if failed == len(queues) {
		return nil, out[0].Err
	}
	return out, nil
}

func (s *Store) queues(ctx context.Context) ([]string, error) {
	cmd := redis.NewStringSliceCmd(ctx, "smembers", s.queuesKey())
	if err := s.do(ctx, cmd); err != nil {
		return nil, s.wrap(ctx, "stats", nil, err)
	}
	names := slices.DeleteFunc(cmd.Val(), func(name string) bool { return dueq.ValidateQueue(name) != nil })
	slices.Sort(names)
	return names, nil
}

func readStats(queue string, v []any) dueq.QueueStats {
	st := dueq.QueueStats{
		Queue: queue, Now: time.UnixMicro(v[1].(int64)),
		Scheduled: v[2].(int64), Overdue: v[3].(int64), Active: v[4].(int64), Dead: v[5].(int64),
		Paused: v[8].(int64) == 1,
	}
	if due, ok := scoreOf(v[6]); ok {
		st.NextDue = time.UnixMilli(due)
	}
	if ends := v[7].(int64); ends >= 0 {
		st.NextLease = time.Unix(ends, 0)
	}
	if last, ok := scoreOf(v[9]); ok {
		st.LastClaim = time.UnixMilli(last)
	}
	for i, total := range totals {
		*total.field(&st.Totals) = v[10+i].(int64)
	}
	return st
}
