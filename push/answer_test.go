package push

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, code := range []int{200, 201, 202, 204, 299} {
		onMemory(t, fmt.Sprintf("%d acknowledges", code), func(t *testing.T, store dueq.Store) {
			rec := receive(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(code) })
			set(t, store, "q", quick(rec.URL))
			start(t, store, anywhere)
			schedule(t, store, "q", dueq.Task{ID: "t"})
			awaitAcked(t, store, "q", 1)
		})
	}
	onStores(t, "410 makes a dead letter at once", func(t *testing.T, store dueq.Store) {
		rec := receive(t, status(410, "no such shop"))
		set(t, store, "q", quick(rec.URL))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		wantError(t, awaitDead(t, store, "q", "t"), "answer 410 Gone: no such shop")
		if n := len(rec.all()); n != 1 {
			t.Errorf("%d requests, want 1", n)
		}
	})
	for _, code := range []int{400, 401, 404, 429, 500, 503, 599} {
		onMemory(t, fmt.Sprintf("%d is tried again, then dead", code), func(t *testing.T, store dueq.Store) {
			rec := receive(t, status(code, "no\r\n\x1b[31mred\x00\xff"))
			set(t, store, "q", quick(rec.URL, "retries", "2"))
			start(t, store, anywhere)
			schedule(t, store, "q", dueq.Task{ID: "t"})
			wantError(t, awaitDead(t, store, "q", "t"), fmt.Sprintf("answer %d", code), `: no\r\n\x1b[31mred\x00`)
			for i, got := range rec.await(t, 3) {
				if got.header.Get("Dueq-Attempt") != fmt.Sprint(i+1) {
					t.Errorf("request %d is attempt %s", i+1, got.header.Get("Dueq-Attempt"))
				}
			}
		})
	}
	for _, code := range []int{301, 302, 303, 307, 308} {
		onMemory(t, fmt.Sprintf("%d is a failure and not followed", code), func(t *testing.T, store dueq.Store) {
			target := receive(t, nil)
			rec := receive(t, func(w http.ResponseWriter, r *http.Request, _ int) { http.Redirect(w, r, target.URL, code) })
			set(t, store, "q", quick(rec.URL, "retries", "1"))
			start(t, store, anywhere)
			schedule(t, store, "q", dueq.Task{ID: "t"})
			wantError(t, awaitDead(t, store, "q", "t"), fmt.Sprintf("answer %d ", code))
			if n := len(target.all()); n != 0 {
				t.Errorf("the target of the redirect saw %d requests", n)
			}
		})
	}
	onStores(t, "at most once, a failure loses the task", func(t *testing.T, store dueq.Store) {
		rec := receive(t, status(500, ""))
		set(t, store, "q", quick(rec.URL, "delivery", "at_most_once"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		eventually(t, "the failure is counted", func() bool { return stats(t, store, "q").Totals.Retried == 1 })
		if got := get(t, store, "q", "t"); got.State != dueq.StateNone {
			t.Errorf("the task is %v", got.State)
		}
	})
}

func onMemory(t *testing.T, name string, f func(t *testing.T, store dueq.Store)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		f(t, inMemory(t))
	})
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	inSeconds := func(time.Time) string { return "1" }
	asDate := func(now time.Time) string { return now.Add(2500 * time.Millisecond).UTC().Format(http.TimeFormat) }
	for _, code := range []int{429, 503} {
		for form, value := range map[string]func(time.Time) string{"seconds": inSeconds, "a date": asDate} {
			onStores(t, fmt.Sprintf("of a %d in %s is heeded", code, form), func(t *testing.T, store dueq.Store) {
				rec := receive(t, func(w http.ResponseWriter, _ *http.Request, n int) {
					if n == 1 {
						w.Header().Set("Retry-After", value(time.Now()))
						w.WriteHeader(code)
					}
				})
				set(t, store, "q", quick(rec.URL))
				start(t, store, anywhere)
				schedule(t, store, "q", dueq.Task{ID: "t"})
				awaitAcked(t, store, "q", 1)
				got := rec.all()
				if gap := got[1].at.Sub(got[0].at); gap < time.Second {
					t.Errorf("tried again after %v, want at least 1 s", gap)
				}
				if got[1].header.Get("Dueq-Attempt") != "2" {
					t.Errorf("attempt %s, want 2: it counts as a failure", got[1].header.Get("Dueq-Attempt"))
				}
			})
		}
	}
	onMemory(t, "is bounded by retry_cap and by the retries", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Retry-After", "99999999")
			w.WriteHeader(http.StatusTooManyRequests)
		})
		set(t, store, "q", quick(rec.URL, "retry_cap", "30ms"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		awaitDead(t, store, "q", "t")
		if n := len(rec.all()); n != 4 {
			t.Errorf("%d requests, want 4", n)
		}
	})
	onMemory(t, "of another status is not heeded", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("Retry-After", "3600")
			w.WriteHeader(http.StatusInternalServerError)
		})
		set(t, store, "q", quick(rec.URL, "retries", "1"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		awaitDead(t, store, "q", "t")
	})
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		value, date string
		want        time.Duration
	}{
		{"", "", 0},
		{"0", "", 0},
		{"120", "", 2 * time.Minute},
		{"-5", "", 0},
		{"+5", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"9999999999", "", year},
		{"18446744073709551615", "", year},
		{"99999999999999999999999", "", 0},
		{"Wed, 02 Jan 2030 03:05:05 GMT", "", time.Minute},
		{"Wed, 02 Jan 2030 03:03:05 GMT", "", 0},
		{"Wed, 02 Jan 2999 03:03:05 GMT", "", year},
		{"Wed, 02 Jan 2030 03:05:05 GMT", "Wed, 02 Jan 2030 03:04:55 GMT", 10 * time.Second},
		{"Wed, 02 Jan 2030 03:05:05 GMT", "rubbish", time.Minute},
		{"Wednesday, 02-Jan-30 03:05:05 GMT", "", time.Minute},
	} {
		h := http.Header{"Retry-After": {c.value}, "Date": {c.date}}
		if got := retryAfter(h, now); got != c.want {
			t.Errorf("%q at %q: %v, want %v", c.value, c.date, got, c.want)
		}
	}
}

func TestVerdictSpreadsRetryAfterByTheJitterAndNeverEarlier(t *testing.T) {
	t.Parallel()
	s := dueq.DefaultSettings()
	s.RetryJitter = 0.5
	least, most := time.Hour, time.Duration(0)
	for range 1000 {
		_, d, _ := dueq.VerdictOf(answer{status: 429, after: time.Minute}.verdict(s, time.Now()))
		least, most = min(least, d), max(most, d)
	}
	if least < time.Minute || most > 90*time.Second || most-least < 10*time.Second {
		t.Errorf("from %v to %v, want within 1m and 1m30s", least, most)
	}
}

func TestAnswersOfAnySizeAndSpeed(t *testing.T) {
	t.Parallel()
	for _, code := range []int{200, 500} {
		name := map[int]string{200: "an acknowledgement", 500: "a failure"}[code]
		onMemory(t, name+" that never stops coming is read a little", func(t *testing.T, store dueq.Store) {
			sent := make(chan int64, 1)
			rec := receive(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
				w.WriteHeader(code)
				n, _ := io.Copy(w, forever{})
				sent <- n
			})
			set(t, store, "q", quick(rec.URL, "retries", "0"))
			start(t, store, anywhere)
			schedule(t, store, "q", dueq.Task{ID: "t"})
			awaitEnd(t, store, code)
			if n := <-sent; n > 16<<20 {
				t.Errorf("%d bytes were taken", n)
			}
		})
		onMemory(t, name+" whose body drips counts all the same", func(t *testing.T, store dueq.Store) {
			rec := receive(t, func(w http.ResponseWriter, r *http.Request, _ int) {
				w.WriteHeader(code)
				drip(w, r)
			})
			set(t, store, "q", quick(rec.URL, "retries", "0", "timeout", "1m"))
			start(t, store, anywhere)
			schedule(t, store, "q", dueq.Task{ID: "t"})
			awaitEnd(t, store, code)
		})
	}
	onMemory(t, "headers without end are a failure", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, _ *http.Request, _ int) {
			w.Header().Set("X-Long", strings.Repeat("x", 2*headersMax))
		})
		set(t, store, "q", quick(rec.URL, "retries", "0"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		wantError(t, awaitDead(t, store, "q", "t"), "headers")
	})
}

// awaitEnd waits for what an answer with that status means to task t.
func awaitEnd(t *testing.T, store dueq.Store, code int) {
	t.Helper()
	if code == 200 {
		awaitAcked(t, store, "q", 1)
	} else {
		wantError(t, awaitDead(t, store, "q", "t"), "answer 500 Internal Server Error: ...")
	}
}

// drip writes a byte now and then until the request is given up.
func drip(w http.ResponseWriter, r *http.Request) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_, _ = io.WriteString(w, ".")
			_ = http.NewResponseController(w).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// forever is a text without end.
type forever struct{}

func (forever) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = '.'
	}
	return len(b), nil
}
