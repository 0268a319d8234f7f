package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

// Get implements dueq.Store. Where bodies are long it takes several requests.
func (c *Client) Get(ctx context.Context, queue string, members []string) ([]dueq.Info, error) {
	r := clientRequest{op: "get", queue: queue, method: http.MethodPost, path: queuePath(queue, "/tasks/get")}
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	if err = dueq.ValidateQueue(queue); err == nil {
		err = countWithin("members", len(members))
	}
	if err != nil {
		return nil, r.failed(err)
	}
	infos := make([]dueq.Info, len(members))
	for left := textFirst(members); len(left) > 0; {
		var got foundTasks
		r.in = wireMembers(members, left)
		if err := c.do(ctx, r, &got); err != nil {
			return nil, err
		}
		if n := len(got.Tasks); n == 0 || n > len(left) {
			return nil, r.unanswered(fmt.Errorf("the answer has %d tasks of %d", n, len(left)), true)
		}
		for i, t := range got.Tasks {
			infos[left[i]] = taskInfo(queue, t.Task)
			infos[left[i]].Body = t.Bytes()
		}
		left = left[len(got.Tasks):]
	}
	return infos, nil
}

// textFirst returns the places of members in the order in which they are asked
// for: those that JSON cannot write come last.
func textFirst(members []string) (places []int) {
	for _, text := range []bool{true, false} {
		for i, m := range members {
			if utf8.ValidString(m) == text {
				places = append(places, i)
			}
		}
	}
	return places
}

func wireMembers(members []string, places []int) getRequest {
	asked := getRequest{Members: []string{}}
	for _, i := range places {
		if utf8.ValidString(members[i]) {
			asked.Members = append(asked.Members, members[i])
		} else {
			asked.MembersBase64 = append(asked.MembersBase64, []byte(members[i]))
		}
	}
	return asked
}

// taskInfo reads a task, without its body.
func taskInfo(queue string, t view.Task) dueq.Info {
	member := t.Member
	if t.MemberBase64 != nil {
		member = string(t.MemberBase64)
	}
	task, err := dueq.ParseMember(member)
	info := dueq.Info{
		Task: task, Member: member, Malformed: err, State: states[t.State],
		Again: t.ScheduledAgain, Cancelled: t.Cancelled, LeaseEnds: instantOf(t.LeaseEndsAt), DiedAt: instantOf(t.DiedAt),
		Failures: t.Failures, LastError: t.LastError, HasBody: t.HasBody,
	}
	info.Queue, info.Due, info.Round = queue, instantOf(t.DueAt), t.Round
	if info.State != dueq.StateNone {
		info.Attempt = t.Failures + 1
	}
	return info
}

// List implements dueq.Store.
func (c *Client) List(ctx context.Context, q dueq.ListQuery) (dueq.Page, error) {
	r := clientRequest{op: "list", queue: q.Queue, method: http.MethodGet}
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return dueq.Page{}, err
	}
	defer end()
	if err := validList(q); err != nil {
		return dueq.Page{}, r.failed(err)
	}
	r.path = queuePath(q.Queue, "/tasks?"+listParams(q).Encode())
	var got taskList
	if err := c.do(ctx, r, &got); err != nil {
		return dueq.Page{}, err
	}
	page := dueq.Page{Cursor: got.Cursor}
	for _, t := range got.Tasks {
		page.Tasks = append(page.Tasks, taskInfo(q.Queue, t))
	}
	return page, nil
}

func validList(q dueq.ListQuery) error {
	if err := dueq.ValidateQueue(q.Queue); err != nil {
		return err
	}
	if q.Limit < 0 || q.Limit > dueq.MaxItems {
		return &dueq.FieldError{Field: "limit", Reason: fmt.Sprintf("%d is not 1 to %d", q.Limit, dueq.MaxItems)}
	}
	if q.State < dueq.StateScheduled || q.State > dueq.StateDead {
		return &dueq.FieldError{Field: "state", Reason: "is not scheduled, active or dead"}
	}
	return nil
}

func listParams(q dueq.ListQuery) url.Values {
	params := url.Values{"state": {q.State.String()}}
	if q.Overdue && q.State == dueq.StateScheduled {
		params.Set("state", "overdue")
	}
	if q.Limit > 0 {
		params.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Cursor != "" {
		params.Set("cursor", q.Cursor)
	}
	if q.Error != "" {
		params.Set("error", q.Error)
	}
	return params
}

// statsBytes is how long names of queues may be together in one request, so
// that it gets through where lines are limited.
const statsBytes = 6 << 10

// Stats implements dueq.Store. Up to 200 queues share a request, as far as their
// names are 6 KiB together.
func (c *Client) Stats(ctx context.Context, queues ...string) ([]dueq.QueueStats, error) {
	r := clientRequest{op: "stats", method: http.MethodGet, path: "/v1/queues"}
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return nil, err
	}
	defer end()
	for _, queue := range queues {
		if err := dueq.ValidateQueue(queue); err != nil {
			return nil, r.failed(err)
		}
	}
	if len(queues) == 0 {
		return c.stats(ctx, r)
	}
	var all []dueq.QueueStats
	failed := 0
	for left := queues; len(left) > 0; {
		n := namesWithin(left)
		some, err := c.stats(ctx, r, left[:n]...)
		if err != nil {
			some = unread(left[:n], err)
			failed += n
		}
		all, left = append(all, some...), left[n:]
	}
	if failed == len(queues) {
		return nil, all[0].Err
	}
	return all, nil
}

// unread are the stats of queues that could not be asked about.
func unread(queues []string, why error) []dueq.QueueStats {
	stats := make([]dueq.QueueStats, len(queues))
	for i, queue := range queues {
		stats[i] = dueq.QueueStats{Queue: queue, Err: why}
	}
	return stats
}

// namesWithin returns how many names go into one request.
func namesWithin(queues []string) int {
	total := 0
	for i, queue := range queues[:min(len(queues), maxQueues)] {
		if total += len("queue=&") + len(queue); i > 0 && total > statsBytes {
			return i
		}
	}
	return min(len(queues), maxQueues)
}

func (c *Client) stats(ctx context.Context, r clientRequest, queues ...string) ([]dueq.QueueStats, error) {
	if len(queues) > 0 {
		r.path += "?queue=" + strings.Join(queues, "&queue=") // they need no escaping
	}
	var got queueList
	if err := c.do(ctx, r, &got); err != nil {
		return nil, err
	}
	if len(queues) > 0 && len(got.Queues) != len(queues) {
		return nil, r.unanswered(fmt.Errorf("the answer has %d queues, not %d", len(got.Queues), len(queues)), true)
	}
	var all []dueq.QueueStats
	for _, s := range got.Queues {
		all = append(all, s.stats())
	}
	return all, nil
}

func (s queueStats) stats() dueq.QueueStats {
	if s.Problem != nil {
		call := &dueq.CallError{Op: "stats", Queue: s.Queue, Err: s.Problem}
		return dueq.QueueStats{Queue: s.Queue, Err: call}
	}
	return dueq.QueueStats{
		Queue: s.Queue, Now: instantOf(s.Now),
		Scheduled: s.Scheduled, Overdue: s.Overdue, Active: s.Active, Dead: s.Dead,
		NextDue: instantOf(s.NextDueAt), NextLease: instantOf(s.NextLeaseAt), LastClaim: instantOf(s.LastClaimAt),
		Paused: s.Paused, Totals: dueq.Totals(s.Totals),
	}
}

func instantOf(i view.Instant) time.Time { return time.Time(i) }
