package push

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/dueq/dueq"
)

// answer is what a receiver said.
type answer struct {
	status int
	text   string        // the beginning of the body
	after  time.Duration // until it wants to be asked again; zero if it does not say
}

// verdict returns what the answer means as a handler's error: nil for 2xx,
// Dead for 410, RetryIn for 429 and 503 that say when, else a failure by the
// queue's policy. They all count as failures, so each comes to an end.
func (a answer) verdict(s dueq.Settings, first time.Time) error {
	if a.status/100 == 2 {
		return nil
	}
	text := strings.TrimSpace(fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)))
	if a.text != "" {
		text += ": " + a.text
	}
	err := withFirst(first, fmt.Errorf("answer %s", text))
	switch {
	case a.status == http.StatusGone:
		return dueq.Dead(err)
	case a.after > 0 && (a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable):
		d := min(a.after, s.RetryCap)
		return dueq.RetryIn(d+time.Duration(s.RetryJitter*rand.Float64()*float64(d)), err)
	}
	return err
}

// retryAfter reads the header Retry-After, seconds or a date by the receiver's
// clock. What is past or cannot be read is zero.
func retryAfter(h http.Header, now time.Time) time.Duration {
	const most = 365 * 24 * time.Hour
	value := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(most/time.Second))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		now = date
	}
	return min(max(at.Sub(now), 0), most)
}
