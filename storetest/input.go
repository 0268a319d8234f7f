package storetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

func inputTests() []test {
	return []test{
		{"bad queue names are refused everywhere", badQueues},
		{"odd but good queue names are distinct", oddQueues},
		{"calls of more than a thousand are refused and change nothing", tooMany},
		{"calls of nothing answer nothing", nothing},
		{"a call whose context has ended did not happen", endedContext},
	}
}

// call is a method of a store with some arguments.
type call struct {
	name string
	run  func(ctx context.Context, queue string) error
}

// calls are all methods that take a queue, with one item each.
func (q *queue) calls(lease dueq.Lease) []call {
	s := q.Store
	return []call{
		{"Schedule", func(ctx context.Context, queue string) error {
			outcomes, err := s.Schedule(ctx, []dueq.Item{{Queue: queue, Task: dueq.Task{ID: "new"}}})
			if err == nil {
				err = outcomes[0].Err
			}
			return err
		}},
		{"Change", func(ctx context.Context, queue string) error {
			_, err := s.Change(ctx, queue, dueq.OpDelete, []dueq.Target{{Member: "there"}})
			return err
		}},
		{"Claim", func(ctx context.Context, queue string) error {
			_, err := s.Claim(ctx, dueq.ClaimRequest{Queue: queue, Max: 1})
			return err
		}},
		{"Settle", func(ctx context.Context, queue string) error {
			_, err := s.Settle(ctx, queue, []dueq.Result{{Task: &dueq.Task{Lease: lease}}})
			return err
		}},
		{"Extend", func(ctx context.Context, queue string) error {
			_, err := s.Extend(ctx, queue, []dueq.Lease{lease}, time.Minute)
			return err
		}},
		{"Get", func(ctx context.Context, queue string) error {
			_, err := s.Get(ctx, queue, []string{"there"})
			return err
		}},
		{"List", func(ctx context.Context, queue string) error {
			_, err := s.List(ctx, dueq.ListQuery{Queue: queue, State: dueq.StateScheduled})
			return err
		}},
		{"Stats", func(ctx context.Context, queue string) error {
			_, err := s.Stats(ctx, queue)
			return err
		}},
		{"Settings", func(ctx context.Context, queue string) error {
			_, err := s.Settings(ctx, queue)
			return err
		}},
		{"SetSettings", func(ctx context.Context, queue string) error {
			_, err := s.SetSettings(ctx, queue, dueq.SettingsPatch{"retries": "7"})
			return err
		}},
	}
}

func badQueues(q *queue) {
	bad := []string{"", " ", "a b", "{}", "{a}", "a{b}c", "{x", "x}", "{a}{b}", "trace", "trace:x", ":a", "-a", ".a", "_a", "@queues",
		"a@1", "a/b", "a*", "a\n", "a\x00", "\xff", "é", "a#b", "a,b", strings.Repeat("q", dueq.QueueMax+1)}
	for _, call := range q.calls(dueq.Lease{Member: "x", Token: 1}) {
		for _, name := range bad {
			q.fails(fmt.Sprintf("%s of %.20q", call.name, name), call.run(q.Context(), name), dueq.ErrInvalid)
		}
	}
	all, err := q.Store.Stats(q.Context())
	q.must("Stats", err)
	for _, s := range all {
		if dueq.ValidateQueue(s.Queue) != nil {
			q.Errorf("queue %q is known", s.Queue)
		}
	}
}

func oddQueues(q *queue) {
	long := strings.Repeat("q", dueq.QueueMax)
	names := []string{"CamelCase", "camelcase", "CAMELCASE", "0", "a:b", "a.b", "a-b", "a_b", "a:b:active", "tracer", "a:trace", long[1:] + "x", long}
	for _, name := range names {
		one := &queue{T: q.T, Fixture: q.Fixture, name: name}
		one.put("x", dueq.In(0), "body of "+name)
	}
	for _, name := range names {
		one := &queue{T: q.T, Fixture: q.Fixture, name: name}
		task := one.one(0)
		same(q, "queue", task.Queue, name)
		same(q, "body", string(task.Body), "body of "+name)
		one.end(task, dueq.VerdictRetry, 0, "e", dueq.StatusDone)
		one.end(one.one(0), dueq.VerdictDead, 0, "e", dueq.StatusDone)
		same(q, "scheduled in total", one.stats().Totals.Scheduled, 1)
		one.status("delete", one.changeOne(dueq.OpDelete, "x"), dueq.StatusDone)
		one.check()
	}
}

func tooMany(q *queue) {
	const n = dueq.MaxItems + 1
	items := q.items("t", n, dueq.In(0))
	var targets []dueq.Target
	var results []dueq.Result
	var leases []dueq.Lease
	var members []string
	for _, item := range items {
		m := item.Task.Member()
		targets, members = append(targets, dueq.Target{Member: m}), append(members, m)
		leases = append(leases, dueq.Lease{Member: m, Token: 1})
		results = append(results, dueq.Result{Task: &dueq.Task{Lease: dueq.Lease{Member: m, Token: 1}}})
	}
	q.put(members[0], dueq.In(time.Hour))
	before := q.dump().String()
	_, err := q.Store.Schedule(q.Context(), items)
	q.fails("Schedule", err, dueq.ErrInvalid)
	_, err = q.Store.Change(q.Context(), q.name, dueq.OpDelete, targets)
	q.fails("Change", err, dueq.ErrInvalid)
	_, err = q.Store.Settle(q.Context(), q.name, results)
	q.fails("Settle", err, dueq.ErrInvalid)
	_, err = q.Store.Extend(q.Context(), q.name, leases, time.Minute)
	q.fails("Extend", err, dueq.ErrInvalid)
	_, err = q.Store.Get(q.Context(), q.name, members)
	q.fails("Get", err, dueq.ErrInvalid)
	same(q, "after calls of too many", q.dump().String(), before)
}

func nothing(q *queue) {
	ctx := q.Context()
	outcomes, err := q.Store.Schedule(ctx, nil)
	q.must("Schedule", err)
	q.length("outcomes", len(outcomes), 0)
	outcomes, err = q.Store.Change(ctx, q.name, dueq.OpCancel, nil)
	q.must("Change", err)
	q.length("outcomes", len(outcomes), 0)
	outcomes, err = q.Store.Settle(ctx, q.name, []dueq.Result{})
	q.must("Settle", err)
	q.length("outcomes", len(outcomes), 0)
	outcomes, err = q.Store.Extend(ctx, q.name, nil, time.Minute)
	q.must("Extend", err)
	q.length("outcomes", len(outcomes), 0)
	infos, err := q.Store.Get(ctx, q.name, nil)
	q.must("Get", err)
	q.length("infos", len(infos), 0)
	same(q, "left", q.dump().String(), "")
}

func endedContext(q *queue) {
	q.put("there", dueq.In(0))
	task := q.one(0)
	q.put("there", dueq.In(0))
	before, settings := q.dump().String(), q.settings()
	ctx, cancel := context.WithCancel(q.Context())
	cancel()
	for _, call := range q.calls(task.Lease) {
		err := call.run(ctx, q.name)
		q.fails(call.name, err, dueq.ErrUnavailable)
		if failed := (*dueq.CallError)(nil); errors.As(err, &failed) && failed.MayHaveHappened {
			q.Errorf("%s: %v", call.name, err)
		}
	}
	same(q, "after calls that did not happen", q.dump().String(), before)
	same(q, "settings", q.settings(), settings)
}
