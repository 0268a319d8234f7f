package history

import (
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

// story makes a history by hand. Instants are ms from its beginning; the
// store's clock shows start at zero.
type story struct{ History }

var start = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

const (
	q    = "order:close"
	name = "a:k"
)

var taskA = Key{q, name}

func ms(n int) Instant          { return Instant(time.Hour).add(time.Duration(n) * time.Millisecond) }
func clock(n int) time.Time     { return start.Add(time.Duration(n) * time.Millisecond) }
func newStory() *story          { return &story{History{Final: Final{Tasks: map[Key]Place{}}}} }
func (s *story) check() *Report { return Check(&s.History) }

// ask adds a call that took effect, or not, between two instants.
func (s *story) ask(do Do, from, to int, status dueq.Status) *Call {
	c := &Call{Process: "producer", Do: do, Key: taskA, Asked: ms(from), Answered: ms(to), Answer: Acknowledged, Status: status}
	if status == dueq.StatusUnknown {
		c.Answer = Unknown
	}
	s.Calls = append(s.Calls, c)
	return c
}

func (s *story) schedule(from, to int, mark string, due int, status dueq.Status) *Call {
	c := s.ask(Schedule, from, to, status)
	c.Mark, c.Delay = mark, time.Duration(due-from)*time.Millisecond
	if status != dueq.StatusUnknown {
		c.Due = clock(due)
	}
	return c
}

// deliver adds a delivery that ran and was acknowledged 10 ms after its claim.
func (s *story) deliver(worker, mark string, at, due int) *Delivery {
	d := s.claim(worker, mark, at, due)
	d.Ended = ms(at + 8)
	d.settles = []*Call{{Do: Settle, Key: taskA, Asked: ms(at + 9), Answered: ms(at + 10), Answer: Acknowledged, Status: dueq.StatusDone}}
	return d
}

// claim adds a delivery that started and never ended.
func (s *story) claim(worker, mark string, at, due int) *Delivery {
	d := &Delivery{
		Process: worker, Key: taskA, Mark: mark, Token: dueq.Token(len(s.Deliveries)), Attempt: 1,
		Due: clock(due), Now: clock(at), LeaseEnds: clock(at + 3000), Asked: ms(at - 1), Answered: ms(at + 1), Started: ms(at + 2),
	}
	s.Deliveries = append(s.Deliveries, d)
	return d
}

func (s *story) fault(kind, process string, from, until int) *Fault {
	s.Faults = append(s.Faults, Fault{Kind: kind, Process: process, From: ms(from), Until: ms(until)})
	return &s.Faults[len(s.Faults)-1]
}

func (s *story) leasesEnded(n int64) {
	s.Final.Queues = []dueq.QueueStats{{Queue: q, Totals: dueq.Totals{
		Scheduled: 1, Claimed: int64(len(s.Deliveries)), Ended: n, Acked: int64(len(s.Deliveries)) - n,
	}}}
}

// expect fails unless the history has one finding of that kind and no other.
func (s *story) expect(t *testing.T, want What) {
	t.Helper()
	if r := s.check(); len(r.Findings) != 1 || r.Count(want) != 1 {
		t.Errorf("got %v, want one that is %q\n%s", r.Findings, want, s.Tell(taskA))
	}
}

func (s *story) expectNothing(t *testing.T) *Report {
	t.Helper()
	r := s.check()
	if len(r.Findings) > 0 {
		t.Errorf("got %v, want nothing\n%s", r.Findings, s.Tell(taskA))
	}
	return r
}

func TestCheck_lost(t *testing.T) {
	t.Parallel()

	t.Run("an_acknowledged_task_that_is_nowhere", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.expect(t, Lost)
		s.Final.Tasks[taskA] = Place{dueq.StateDead, "1"}
		s.expectNothing(t)
	})
	t.Run("one_whose_only_worker_died_with_it", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.claim("w1", "1", 100, 100)
		s.fault("worker killed", "w1", 110, 110)
		s.expect(t, Lost)
	})
	t.Run("not_one_that_may_have_been_cancelled", func(t *testing.T) {
		s := newStory()
		s.schedule(10, 15, "1", 100, dueq.StatusScheduled)
		cancel := s.ask(Cancel, 0, 5, dueq.StatusUnknown)
		s.expectNothing(t)
		cancel.Answer = Refused
		s.expect(t, Lost)
		cancel.Answer, cancel.Status = Acknowledged, dueq.StatusDone
		s.expect(t, Lost) // it was over before the schedule began
		cancel.Asked, cancel.Answered = ms(20), ms(25)
		s.expectNothing(t)
		cancel.Status = dueq.StatusNotFound
		s.expect(t, Lost)
	})
	t.Run("not_one_that_was_replaced", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.schedule(4, 9, "2", 200, dueq.StatusReplaced)
		s.deliver("w1", "2", 200, 200)
		s.expectNothing(t)
	})
	t.Run("two_that_replaced_each_other", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 9, "1", 100, dueq.StatusReplaced)
		s.schedule(4, 9, "2", 200, dueq.StatusReplaced)
		if r := s.check(); r.Count(Lost) != 2 {
			t.Errorf("got %v, want both lost", r.Findings)
		}
	})
	t.Run("one_that_a_later_schedule_did_not_find", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.schedule(50, 55, "2", 200, dueq.StatusScheduled)
		s.deliver("w1", "2", 200, 200)
		s.expect(t, Lost)
	})
	t.Run("an_unknown_schedule_may_be_nowhere", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusUnknown)
		s.expectNothing(t)
	})
	t.Run("not_replicated_when_a_failover_may_have_lost_it", func(t *testing.T) {
		s := newStory()
		c := s.schedule(0, 5, "1", 5000, dueq.StatusScheduled)
		s.fault("failover", "", 900, 1500).Loses = time.Second
		s.expect(t, NotReplicated)
		c.Safe = true
		s.expect(t, Lost)
		c.Safe, s.Faults[0].Loses = false, 800*time.Millisecond
		s.expect(t, Lost)
	})
}

func TestCheck_early(t *testing.T) {
	t.Parallel()

	t.Run("before_the_due_time_that_was_acknowledged", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.deliver("w1", "1", 99, 90)
		s.expect(t, Early)
	})
	t.Run("before_the_due_time_that_was_asked_for", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 500, dueq.StatusScheduled).Due = clock(300)
		s.deliver("w1", "1", 310, 300)
		s.expect(t, Early)
		s.Calls[0].Delay, s.Calls[0].At = 0, clock(500)
		s.expect(t, Early)
	})
	t.Run("before_the_due_time_it_was_claimed_with", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 50, dueq.StatusScheduled)
		s.deliver("w1", "1", 99, 100)
		s.expect(t, Early)
	})
	t.Run("before_the_delay_of_an_unknown_schedule", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 500, dueq.StatusUnknown)
		s.deliver("w1", "1", 490, 490)
		s.expect(t, Early)
		s.Deliveries = nil
		s.deliver("w1", "1", 510, 505)
		s.expectNothing(t)
	})
	t.Run("before_a_retry_is_due", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		d := s.deliver("w1", "1", 100, 100)
		d.Verdict, d.settles[0].Verdict, d.settles[0].Due = dueq.VerdictRetry, dueq.VerdictRetry, clock(300)
		s.deliver("w1", "1", 250, 100)
		s.expect(t, Early)
	})
	t.Run("not_a_retry_by_a_clock_that_was_set_back", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 500, dueq.StatusScheduled)
		s.claim("w1", "1", 500, 500)
		s.fault("step", "", 600, 600).Step = -time.Second
		again := s.deliver("w1", "1", 4000, 500)
		again.Now, again.Due = clock(450), clock(400)
		s.leasesEnded(1)
		s.expectNothing(t)
		s.Faults = nil
		s.fault("worker killed", "w1", 600, 600)
		if r := s.check(); r.Count(Early) != 1 {
			t.Errorf("got %v, want one early", r.Findings)
		}
	})
	t.Run("not_when_it_may_have_been_rescheduled", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 900, dueq.StatusScheduled)
		s.ask(Reschedule, 10, 20, dueq.StatusUnknown).Delay = 50 * time.Millisecond
		s.deliver("w1", "1", 100, 70)
		s.expectNothing(t)
	})
	t.Run("not_when_the_clock_was_set_by_that_much", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 500, dueq.StatusUnknown)
		s.fault("step", "", 200, 210).Step = -time.Second
		s.deliver("w1", "1", 500, 480)
		s.expectNothing(t)
	})
}

// twice is a task that was delivered twice, the first time settled with or
// without an answer.
func twice(settled bool) (*story, *Delivery) {
	s := newStory()
	s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
	d := s.deliver("w1", "1", 100, 100)
	if !settled {
		d.settles[0].Answer = Unknown
	}
	s.deliver("w2", "1", 4000, 100)
	s.leasesEnded(1)
	return s, d
}

func TestCheck_second_runs(t *testing.T) {
	t.Parallel()

	t.Run("unexplained_without_a_fault", func(t *testing.T) {
		s, _ := twice(false)
		s.expect(t, Unexplained)
	})
	t.Run("unexplained_after_an_acknowledged_end", func(t *testing.T) {
		s, _ := twice(true)
		s.leasesEnded(0)
		s.fault("worker killed", "w1", 500, 500)
		s.expect(t, Unexplained)
	})
	t.Run("unexplained_when_another_worker_was_hit", func(t *testing.T) {
		s, _ := twice(false)
		s.fault("worker killed", "w3", 500, 500)
		s.expect(t, Unexplained)
	})
	t.Run("unexplained_when_the_fault_was_before_or_after", func(t *testing.T) {
		s, _ := twice(false)
		s.fault("outage", "", 10, 98)
		s.fault("outage", "", 4002, 5000)
		s.expect(t, Unexplained)
		s.Faults[0].Until = ms(99)
		s.expectNothing(t)
	})
	t.Run("explained_by_the_end_of_its_worker", func(t *testing.T) {
		s, _ := twice(false)
		s.fault("outage", "", 200, 300)
		s.fault("worker killed", "w1", 500, 500)
		if r := s.expectNothing(t); r.Explained("worker killed") != 1 {
			t.Errorf("explained: got %v, want by the worker's end", r.Second)
		}
	})
	t.Run("one_lease_that_ended_explains_one_only", func(t *testing.T) {
		s, _ := twice(false)
		s.Deliveries[1].settles[0].Answer = Unknown
		s.deliver("w3", "1", 8000, 100)
		s.fault("outage", "", 90, 7000)
		s.leasesEnded(1)
		s.expect(t, Unexplained)
		s.leasesEnded(2)
		s.expectNothing(t)
	})
	t.Run("explained_by_a_failover_that_lost_the_end", func(t *testing.T) {
		s, d := twice(true)
		s.fault("failover", "", 1600, 2000).Loses = time.Second
		d.settles[0].Answered = ms(1000)
		if r := s.expectNothing(t); r.Explained("failover") != 1 {
			t.Errorf("explained: got %v, want by the failover", r.Second)
		}
	})
	t.Run("a_retry_is_none", func(t *testing.T) {
		s, d := twice(true)
		d.Verdict, d.settles[0].Verdict = dueq.VerdictRetry, dueq.VerdictRetry
		s.Final.Queues[0].Totals = dueq.Totals{Scheduled: 1, Claimed: 2, Retried: 1, Acked: 1}
		s.expectNothing(t)
	})
	t.Run("explained_by_a_failover_that_lost_the_claim", func(t *testing.T) {
		s, d := twice(true)
		d.settles[0].Asked, d.settles[0].Answered = ms(2000), ms(2001)
		s.fault("failover", "", 600, 1500).Loses = time.Second
		if r := s.expectNothing(t); r.Explained("failover") != 1 {
			t.Errorf("explained: got %v, want by the failover", r.Second)
		}
		s.Faults[0].Loses = 10 * time.Millisecond
		s.expect(t, Unexplained)
	})
}

func TestCheck_beside_itself(t *testing.T) {
	t.Parallel()

	t.Run("beside_itself_within_a_lease", func(t *testing.T) {
		s, d := twice(false)
		d.settles = nil
		d.extends = []*Call{{Do: Extend, Answered: ms(3000), Answer: Acknowledged, Status: dueq.StatusDone, Due: clock(6000)}}
		s.fault("worker killed", "w1", 500, 500)
		s.expect(t, Beside)
		stop := s.ask(Stop, 200, 205, dueq.StatusDone)
		if r := s.check(); r.Count(Beside) != 0 || r.Count(Cancelled) != 1 {
			t.Errorf("got %v, want a run after a stop, not one beside itself", r.Findings)
		}
		stop.Status = dueq.StatusNotFound
		if r := s.check(); r.Count(Beside) != 1 {
			t.Errorf("got %v, want a run beside itself", r.Findings)
		}
	})
	t.Run("beside_itself_unless_the_lease_may_have_become_shorter", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		d := s.claim("w1", "1", 100, 100)
		s.deliver("w2", "1", 2500, 100)
		s.fault("worker killed", "w1", 500, 500)
		s.leasesEnded(1)
		s.expect(t, Beside)
		renewal := &Call{Do: Extend, Asked: ms(300), Answered: ms(310), Answer: Acknowledged, Status: dueq.StatusDone, Due: clock(2000)}
		d.extends = []*Call{renewal}
		s.expectNothing(t)
		renewal.Answer = Unknown
		s.expect(t, Beside)
		s.fault("step", "", 290, 290).Step = -time.Hour
		s.expectNothing(t)
	})
	t.Run("not_beside_itself_when_a_small_step_took_a_second_off_a_lease", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 1, dueq.StatusScheduled)
		d := s.claim("w1", "1", 1, 1)
		d.LeaseEnds = clock(4000) // whole seconds, rounded up; the renewal made it 3000
		d.extends = []*Call{{Do: Extend, Asked: ms(5), Answered: ms(9), Answer: Unknown}}
		s.deliver("w2", "1", 3100, 1)
		s.fault("worker killed", "w1", 500, 500)
		s.leasesEnded(1)
		s.expect(t, Beside)
		s.fault("step", "", 3, 3).Step = -10 * time.Millisecond
		s.expectNothing(t)
	})
	t.Run("beside_itself_even_if_the_clock_was_set_by_less_than_the_lease_had_left", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.claim("w1", "1", 100, 100)
		s.deliver("w2", "1", 2000, 100)
		s.fault("worker killed", "w1", 500, 500)
		s.leasesEnded(1)
		s.fault("step", "", 1000, 1000).Step = 500 * time.Millisecond
		s.expect(t, Beside)
		s.Faults[1].Step = 2 * time.Second
		s.expectNothing(t)
	})
	t.Run("the_clock_orders_claims_that_overlap", func(t *testing.T) {
		s, d := twice(false)
		d.Answered, d.Started, d.Ended = ms(4500), ms(4501), ms(4502)
		d.settles[0].Asked, d.settles[0].Answered = ms(4503), ms(4504)
		d.settles[0].Answer, d.settles[0].Status = Acknowledged, dueq.StatusLeaseLost
		d.Asked, s.Deliveries[1].Asked = ms(99), ms(98)
		s.fault("worker frozen", "w1", 99, 4499)
		s.expectNothing(t)
	})
}

func TestCheck_cancelled(t *testing.T) {
	t.Parallel()

	for _, do := range []Do{Cancel, Stop, Delete} {
		t.Run("run_after_"+string(do), func(t *testing.T) {
			s := newStory()
			s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
			c := s.ask(do, 10, 20, dueq.StatusDone)
			d := s.deliver("w1", "1", 100, 100)
			s.expect(t, Cancelled)
			c.Status = dueq.StatusNotFound
			s.expect(t, Cancelled)
			c.Answer = Unknown
			s.expectNothing(t)
			c.Answer, c.Status, d.Asked = Acknowledged, dueq.StatusDone, ms(19)
			s.expectNothing(t)
		})
	}
	t.Run("not_when_a_step_may_have_let_the_schedule_come_after_the_cancel", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 1000, "1", 100, dueq.StatusUnknown)
		s.ask(Cancel, 4001, 4010, dueq.StatusNotFound)
		s.deliver("w1", "1", 6000, 5000)
		s.expect(t, Cancelled)
		s.fault("step", "", 500, 500).Step = -2 * time.Second
		s.expectNothing(t)
	})
	t.Run("retried_after_a_cancel_of_the_run", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		d := s.deliver("w1", "1", 100, 100)
		d.Verdict, d.settles[0].Verdict = dueq.VerdictRetry, dueq.VerdictRetry
		s.ask(Cancel, 103, 104, dueq.StatusRunning)
		s.deliver("w1", "1", 200, 100)
		s.expect(t, Cancelled)
	})
	t.Run("run_after_a_replacement", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		c := s.schedule(10, 20, "2", 200, dueq.StatusReplaced)
		s.deliver("w1", "1", 100, 100)
		s.deliver("w1", "2", 200, 200)
		s.expect(t, Cancelled)
		c.Asked = ms(3)
		s.expectNothing(t)
	})
	t.Run("not_replicated_when_a_failover_may_have_lost_the_cancel", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.ask(Cancel, 10, 20, dueq.StatusDone)
		s.fault("failover", "", 30, 40).Loses = time.Second
		s.deliver("w1", "1", 100, 100)
		s.expect(t, NotReplicated)
	})
}

func TestCheck_strangers_and_totals(t *testing.T) {
	t.Parallel()

	t.Run("nobody_scheduled_it", func(t *testing.T) {
		s := newStory()
		s.deliver("w1", "1", 100, 100)
		s.expect(t, Stranger)
	})
	t.Run("its_schedule_was_refused", func(t *testing.T) {
		s := newStory()
		c := s.schedule(0, 5, "1", 100, dueq.StatusUnknown)
		s.deliver("w1", "1", 110, 110)
		s.expectNothing(t)
		c.Answer = Refused
		s.expect(t, Stranger)
	})
	t.Run("claims_and_their_ends_differ", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.deliver("w1", "1", 100, 100)
		s.leasesEnded(0)
		s.expectNothing(t)
		s.Final.Queues[0].Totals.Acked++
		if r := s.check(); r.Count(Wrong) != 2 || !strings.Contains(r.Findings[0].String(), "1 were claimed, 2 ended") {
			t.Errorf("got %v, want sums and acks wrong", r.Findings)
		}
		s.Final.Queues[0].Totals.Acked, s.Final.Queues[0].Totals.Ended = 0, 1
		s.expect(t, Wrong) // the sum is right, an acknowledged end is missing
	})
	t.Run("places_and_their_counts_differ", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		s.Final.Tasks[taskA] = Place{dueq.StateDead, "1"}
		s.leasesEnded(0)
		s.expect(t, Wrong)
	})
}
