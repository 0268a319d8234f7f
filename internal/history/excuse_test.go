package history

import (
	"errors"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestCheck_what_a_fault_excuses(t *testing.T) {
	t.Parallel()

	t.Run("not_a_cancel_that_replicas_have", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		cancel := s.ask(Cancel, 10, 20, dueq.StatusDone)
		cancel.Safe = true
		s.fault("failover", "", 30, 40).Loses = time.Second
		s.deliver("w1", "1", 100, 100)
		s.expect(t, Cancelled)
	})
	t.Run("a_cancel_that_found_nothing_and_so_wrote_nothing", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		cancel := s.ask(Cancel, 10, 20, dueq.StatusNotFound)
		cancel.Safe = true
		s.fault("failover", "", 30, 40).Loses = time.Second
		s.deliver("w1", "1", 100, 100)
		s.expect(t, NotReplicated)
	})
	t.Run("a_claim_from_a_master_that_was_deposed_after_a_cancel_on_the_next", func(t *testing.T) {
		s := newStory()
		s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
		cancel := s.ask(Cancel, 40, 50, dueq.StatusDone)
		cancel.Safe = true
		f := s.fault("freeze", "", 30, 110)
		f.Loses, f.Deposes = time.Second, true
		s.deliver("w1", "1", 100, 100)
		s.expect(t, NotReplicated)
		f.Until = ms(90)
		s.expect(t, Cancelled)
	})
	t.Run("no_second_run_if_it_spares_the_living", func(t *testing.T) {
		s, _ := twice(false)
		s.fault("step", "", 200, 210)
		s.expectNothing(t)
		s.Faults[0].Spares = true
		s.expect(t, Unexplained)
	})
}

func TestCheck_the_number_orders_claims_that_overlap_while_the_clock_is_set(t *testing.T) {
	t.Parallel()
	s := newStory()
	s.schedule(0, 5, "1", 100, dueq.StatusScheduled)
	first := s.deliver("w1", "1", 110, 100)
	first.Verdict, first.settles[0].Verdict, first.settles[0].Due = dueq.VerdictRetry, dueq.VerdictRetry, clock(125)
	second := s.deliver("w2", "1", 130, 125)
	second.Asked, second.Attempt = first.Asked-1, 2
	s.fault("step", "", 105, 2000).Step = 500 * time.Millisecond
	s.expectNothing(t)
	first.Token, second.Token = 999_999, 3 // after the last number comes the first
	s.expectNothing(t)
}

func TestCheck_an_error_that_callers_cannot_tell_from_others(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err error
		odd bool
	}{
		{nil, false},
		{dueq.Unavailable(errors.New("MOVED 1 127.0.0.1:1")), false},
		{&dueq.CallError{Op: "cancel", Err: dueq.ErrRunning}, false},
		{errors.New("MOVED 1 127.0.0.1:1"), true},
	} {
		rec := NewRecorder("w1")
		call := rec.asked(Call{Do: Cancel, Key: taskA})
		rec.answered(call, dueq.Outcome{}, c.err)
		if got := Check(rec.History(Final{})).Count(Odd) == 1; got != c.odd {
			t.Errorf("%v is odd: got %v, want %v", c.err, got, c.odd)
		}
	}
}
