package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dueq/dueq"
)

func backlogTests() []test {
	return []test{
		{"a claim removes exactly what it returns", claimsExactly},
		{"30,000 tasks due at one millisecond are each delivered once", thirtyThousand},
		{"many claimers at once never get the same task", manyClaimers},
		{"20,000 tasks of a dead worker come back", deadWorker},
		{"tasks of all due times come out in order", shuffled},
	}
}

func claimsExactly(q *queue) {
	const n, batch = 5000, 500
	q.align(0)
	items := q.items("t", n, dueq.In(0))
	q.schedule(items...)
	past := q.inMilli(0) - 1000
	delivered := map[string]bool{}
	waiting := q.dump().Scheduled
	for round := range n/batch + 1 {
		for i := range 40 { // arrives with a past due meanwhile
			m := fmt.Sprintf("late%d:%d", round, i)
			q.add(m, past)
			waiting[m] = past
		}
		c := q.claim(batch, time.Hour)
		for _, m := range membersOf(c) {
			if _, ok := waiting[m]; !ok || delivered[m] {
				q.Fatalf("%q was delivered, waiting: %v, delivered before: %v", m, ok, delivered[m])
			}
			delete(waiting, m)
			delivered[m] = true
		}
		s := q.dump()
		q.length("still scheduled", len(s.Scheduled), len(waiting))
		q.length("active", len(s.Active), len(delivered))
	}
	for len(waiting) > 0 {
		got := membersOf(q.claim(batch, time.Hour))
		if len(got) == 0 {
			q.Fatalf("%d tasks are stuck", len(waiting))
		}
		for _, m := range got {
			delete(waiting, m)
		}
	}
}

func thirtyThousand(q *queue) {
	const n = 30_000
	q.align(0)
	q.schedule(q.items("t", n, dueq.In(time.Second))...)
	q.none()
	q.Advance(time.Second)
	tasks := q.drain(2, dueq.MaxItems)
	q.length("deliveries", len(tasks), n)
	results := make([]dueq.Result, 0, n)
	for _, task := range tasks {
		results = append(results, dueq.Result{Task: task, Verdict: dueq.VerdictAck})
	}
	for _, o := range q.settle(results...) {
		if o.Status != dueq.StatusDone {
			q.Fatalf("ack: got %v", o.Status)
		}
	}
	same(q, "left", q.dump().String(), "")
}

func manyClaimers(q *queue) {
	const n = 5000
	q.align(0)
	q.schedule(q.items("t", n, dueq.In(0))...)
	tasks := q.drain(64, 10)
	q.length("deliveries", len(tasks), n)
	for _, task := range tasks {
		if task.Attempt != 1 {
			q.Fatalf("%s is at attempt %d", task.ID, task.Attempt)
		}
	}
}

// drain claims from several goroutines until nothing is due. A task that is
// delivered twice is a failure.
func (q *queue) drain(claimers, max int) []*dueq.Task {
	var mu sync.Mutex // guards seen and tasks
	var tasks []*dueq.Task
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range claimers {
		wg.Go(func() {
			for {
				c, err := q.Store.Claim(q.Context(), dueq.ClaimRequest{Queue: q.name, Max: max, Lease: time.Hour})
				if err != nil || len(c.Tasks) == 0 {
					if err != nil {
						q.T.Errorf("Claim: %v", err)
					}
					return
				}
				mu.Lock()
				for _, task := range c.Tasks {
					if seen[task.Lease.Member] {
						q.T.Errorf("%s was delivered twice", task.Lease.Member)
					}
					seen[task.Lease.Member] = true
				}
				tasks = append(tasks, c.Tasks...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return tasks
}

func deadWorker(q *queue) {
	const n = 20_000
	q.align(0)
	q.schedule(q.items("t", n, dueq.In(0))...)
	for range n / dueq.MaxItems {
		q.length("first deliveries", len(q.claim(dueq.MaxItems, 30*time.Second).Tasks), dueq.MaxItems)
	}
	q.claimEverySecond(29 * time.Second)
	q.Advance(time.Second)
	second := map[string]bool{}
	for range n/200 + 10 {
		c := q.claim(dueq.MaxItems, time.Hour)
		for _, task := range c.Tasks {
			if second[task.Lease.Member] || task.Attempt != 2 {
				q.Fatalf("%s: attempt %d, delivered twice: %v", task.ID, task.Attempt, second[task.Lease.Member])
			}
			second[task.Lease.Member] = true
		}
		if len(second) < n && c.Wait != 0 {
			q.Fatalf("wait is %v with %d leases to take back", c.Wait, n-len(second))
		}
	}
	q.length("second deliveries", len(second), n)
	same(q, "ended in total", q.stats().Totals.Ended, n)
}

func shuffled(q *queue) {
	const n = 2000
	q.align(0)
	items := q.items("t", n, dueq.When{})
	for i, j := range rand.Perm(n) {
		items[i].When = dueq.In(time.Duration(j) * 3 * time.Millisecond)
	}
	q.schedule(items...)
	q.Advance(n * 3 * time.Millisecond)
	var dues []float64
	for range n/70 + 1 {
		for _, task := range q.claim(70, time.Hour).Tasks {
			dues = append(dues, score(task.Due))
		}
	}
	q.length("deliveries", len(dues), n)
	if !slices.IsSorted(dues) {
		q.Error("not in the order of due times")
	}
}
