package main

import (
	"testing"
	"time"
)

func TestMembersAre28BytesAndReadBack(t *testing.T) {
	t.Parallel()
	for _, i := range []int{0, 7, 10_000_000} {
		member := memberOf(i)
		if len(member) != 28 {
			t.Errorf("%q has %d bytes", member, len(member))
		}
		if got, err := indexOf(member); err != nil || got != i {
			t.Errorf("%q reads back as %d, %v", member, got, err)
		}
	}
	if _, err := indexOf("order"); err == nil {
		t.Error("a member that is too short reads as one of ours")
	}
}

// The client in JavaScript computes the same numbers; these are what node says.
func TestScatterIsTheSameInBothLanguages(t *testing.T) {
	t.Parallel()
	for i, want := range map[int]uint32{0: 2462723854, 1: 2527132011, 123456: 2013670859} {
		if got := scatter(i); got != want {
			t.Errorf("scatter(%d) = %d, want %d", i, got, want)
		}
	}
}

func TestDueTimesAreSpreadEvenly(t *testing.T) {
	t.Parallel()
	plan := Plan{FromMs: 1000, SpreadMs: 4000}
	var quarters [4]int
	for i := range 40_000 {
		quarters[(plan.offsetMs(i)-1000)/1000]++
	}
	for q, n := range quarters {
		if n < 9_500 || n > 10_500 {
			t.Errorf("quarter %d has %d of 40,000", q, n)
		}
	}
}

func TestPacedTasksAreSentAheadOfTheirDueTime(t *testing.T) {
	t.Parallel()
	plan := Plan{FromMs: time.Now().UnixMilli(), EachUs: 1000, SpreadMs: 1000, LeadMs: 1000}
	for _, i := range []int{0, 1, 4999} {
		ahead := plan.offsetMs(i) - plan.sendAt(i).UnixMilli()
		if ahead < 1000 || ahead >= 2000 {
			t.Errorf("task %d is sent %d ms ahead", i, ahead)
		}
	}
}

func TestPlannedTasksCarryWhatThePlanSays(t *testing.T) {
	t.Parallel()
	relative := Plan{After: true, FromMs: 50, Body: 3, Queues: 2}
	tasks := relative.tasks(5, 2)
	for k, task := range tasks {
		if task.Member != memberOf(5+k) || task.ID+":"+kind != task.Member || task.Queue != (5+k)%2 {
			t.Errorf("task %d is %+v", 5+k, task)
		}
		if task.After != 50*time.Millisecond || string(task.Body) != "bbb" {
			t.Errorf("task %d is due after %v with body %q", 5+k, task.After, task.Body)
		}
	}
	absolute := Plan{FromMs: 1_800_000_000_000}
	if got := absolute.tasks(0, 1)[0]; got.Due.UnixMilli() != 1_800_000_000_000 || got.Body != nil {
		t.Errorf("the absolute one is due at %v with body %v", got.Due, got.Body)
	}
}
