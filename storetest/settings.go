package storetest

import (
	"maps"
	"time"

	"github.com/dueq/dueq"
)

func settingsTests() []test {
	return []test{
		{"a queue has the defaults until somebody sets something", settingsDefaults},
		{"every setting can be set, read and put back", settingsAll},
		{"a bad patch changes nothing", settingsBad},
		{"each change takes another version", settingsVersion},
		{"settings of one queue are not those of another", settingsApart},
		{"a change takes effect with the next call", settingsLive},
	}
}

func (q *queue) settings() dueq.Settings {
	q.Helper()
	s, err := q.Store.Settings(q.Context(), q.name)
	q.must("Settings", err)
	return s
}

func settingsDefaults(q *queue) {
	same(q, "settings", q.settings(), dueq.DefaultSettings())
	q.put("x", dueq.In(time.Hour))
	same(q, "settings of a queue with a task", q.settings(), dueq.DefaultSettings())
}

func settingsAll(q *queue) {
	want := map[string]string{
		"batch": "7", "concurrency": "9", "timeout": "1.5s", "lease": "2m", "lease_max": "2d", "retries": "11",
		"retry_first": "250ms", "retry_factor": "1.25", "retry_cap": "30d", "retry_jitter": "33.3%", "delivery": "at_most_once",
		"max_late": "3h", "priority": "on", "dead_keep": "90d", "body_max": "123456", "paused": "on",
		"wait_replicas": "0", // more takes a store with replicas
		"forward":       "list:out", "push": "https://example.org/hook",
	}
	var pairs []string
	for name, value := range want {
		pairs = append(pairs, name, value)
	}
	answer := q.set(pairs...)
	if got := answer.Format(); !maps.Equal(got, want) {
		q.Errorf("answer: got %v, want %v", got, want)
	}
	same(q, "settings read back", q.settings(), answer)
	for _, name := range dueq.SettingNames() {
		if _, ok := want[name]; !ok {
			q.Errorf("setting %s is not tested", name)
		}
		q.set(name, dueq.Default)
	}
	got := q.settings()
	got.Version = 0
	same(q, "settings put back one by one", got, dueq.DefaultSettings())
}

func settingsBad(q *queue) {
	before := q.set("lease", "10s", "retries", "5")
	for _, patch := range []dueq.SettingsPatch{
		{"no_such": "1"}, {"retries": "x"}, {"retries": "-1"}, {"retries": "100001"}, {"retries": ""}, {"lease": "999ms"},
		{"lease": "25h"}, {"lease": "10"}, {"timeout": "0s"}, {"timeout": "1us"}, {"retry_jitter": "101%"}, {"retry_factor": "NaN"},
		{"delivery": "exactly_once"}, {"paused": "perhaps"}, {"max_late": "-1s"}, {"batch": "0"}, {"batch": "1001"},
		{"lease_max": "9s"}, {"retries": "7", "lease": "x"}, {"retries": "7", "zzz": "1"}, {"Retries": "7"}, {"version": "9"},
	} {
		_, err := q.Store.SetSettings(q.Context(), q.name, patch)
		q.fails("patch", err, dueq.ErrInvalid)
		if same(q, "settings after a bad patch", q.settings(), before); q.Failed() {
			q.Fatalf("patch %v", patch)
		}
	}
}

func settingsVersion(q *queue) {
	last := q.settings().Version
	same(q, "version of a queue that nobody set", last, 0)
	for _, value := range []string{"5", "6", "6", "default"} {
		got := q.set("retries", value).Version
		if got <= last {
			q.Errorf("version %d after %d", got, last)
		}
		same(q, "version read back", q.settings().Version, got)
		last = got
	}
}

func settingsApart(q *queue) {
	other := q.other(":other")
	q.set("retries", "5", "paused", "on")
	same(q, "settings of the other queue", other.settings(), dueq.DefaultSettings())
	other.put("x", dueq.In(0))
	other.ack(other.one(0))
	other.check()
}

func settingsLive(q *queue) {
	q.put("x", dueq.In(0), "body")
	q.set("paused", "on")
	same(q, "paused", q.none().Paused, true)
	q.set("paused", "off", "lease", "7s", "retries", "1")
	c := q.claim(1, 0)
	sameTime(q, "end of the lease", c.LeaseEnds, q.Now().Add(7*time.Second))
	q.end(c.Tasks[0], dueq.VerdictRetry, 0, "e", dueq.StatusDone)
	task := q.one(0)
	q.set("retries", "2", "retry_first", "9s", "retry_factor", "2", "retry_jitter", "0%")
	o := q.end(task, dueq.VerdictRetry, dueq.ByPolicy, "e", dueq.StatusDone)
	sameTime(q, "due", o.Due, q.Now().Add(18*time.Second))
	q.set("retries", "0")
	q.Advance(18 * time.Second)
	q.end(q.one(0), dueq.VerdictRetry, 0, "e", dueq.StatusDone)
	same(q, "state", q.get("x").State, dueq.StateDead)
	q.set("body_max", "3")
	q.refused("four bytes", q.schedule(q.item("y", dueq.In(0), "four"))[0], dueq.ErrTooLarge)
	q.set("priority", "on")
	q.put("y:p3", dueq.In(time.Hour))
	q.set("lease_max", "30s", "lease", "1s")
	_, err := q.Store.Claim(q.Context(), dueq.ClaimRequest{Queue: q.name, Max: 1, Lease: 31 * time.Second})
	q.fails("a lease over lease_max", err, dueq.ErrInvalid)
}
