package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/view"
)

// Settings implements dueq.Store.
func (c *Client) Settings(ctx context.Context, queue string) (dueq.Settings, error) {
	r := settingsRequest("settings", queue)
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return dueq.Settings{}, err
	}
	defer end()
	if err := dueq.ValidateQueue(queue); err != nil {
		return dueq.Settings{}, r.failed(err)
	}
	if known, ok := c.settings.get(queue); ok {
		return known.settings, known.err
	}
	return c.askSettings(ctx, r)
}

// SetSettings implements dueq.Store.
func (c *Client) SetSettings(ctx context.Context, queue string, patch dueq.SettingsPatch) (dueq.Settings, error) {
	r := settingsRequest("set settings", queue)
	ctx, end, err := c.begin(ctx, r)
	if err != nil {
		return dueq.Settings{}, err
	}
	defer end()
	if err := dueq.ValidateQueue(queue); err != nil {
		return dueq.Settings{}, r.failed(err)
	}
	old, err := c.askSettings(ctx, r)
	if len(patch) == 0 || err != nil && !errors.Is(err, dueq.ErrInvalid) { // what is invalid may be what is to be mended
		return old, err
	}
	next, err := old.With(patch)
	if err == nil {
		r.in, err = wireSettings(next, patch)
	}
	if err != nil {
		return dueq.Settings{}, r.failed(err)
	}
	r.method, r.writes = http.MethodPatch, true
	return c.askSettings(ctx, r)
}

func settingsRequest(op, queue string) clientRequest {
	return clientRequest{op: op, queue: queue, method: http.MethodGet, path: queuePath(queue, "/settings")}
}

// askSettings makes a request that is answered with settings, and remembers
// them.
func (c *Client) askSettings(ctx context.Context, r clientRequest) (dueq.Settings, error) {
	known := knownSettings{asked: time.Now()}
	var got settingsAnswer
	if err := c.do(ctx, r, &got); err != nil {
		if r.writes {
			c.settings.forget(r.queue)
		}
		return dueq.Settings{}, err
	}
	known.settings = settingsOf(got.QueueSettings)
	if got.Problem != nil {
		known.err = r.failed(got.Problem)
	}
	c.settings.put(r.queue, known)
	return known.settings, known.err
}

// wireSettings writes the values of s that the patch names, null where it asks
// for the default.
func wireSettings(s dueq.Settings, patch dueq.SettingsPatch) (map[string]any, error) {
	text, err := json.Marshal(view.NewSettings(s))
	if err != nil {
		return nil, err
	}
	var all map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&all); err != nil {
		return nil, err
	}
	some := map[string]any{}
	for name, value := range patch {
		for _, field := range []string{name, name + "_ms", name + "_percent"} {
			if v, ok := all[field]; ok {
				some[field] = v
				if strings.TrimSpace(value) == dueq.Default {
					some[field] = nil
				}
			}
		}
	}
	return some, nil
}

// settingsOf reads what view.NewSettings wrote.
func settingsOf(q view.QueueSettings) dueq.Settings {
	v := q.Settings
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	delivery := dueq.AtLeastOnce
	if v.Delivery == dueq.AtMostOnce.String() {
		delivery = dueq.AtMostOnce
	}
	return dueq.Settings{
		Batch: v.Batch, Concurrency: v.Concurrency,
		Timeout: ms(v.TimeoutMs), Lease: ms(v.LeaseMs), LeaseMax: ms(v.LeaseMaxMs),
		Retries: v.Retries, RetryFirst: ms(v.RetryFirstMs), RetryFactor: v.RetryFactor,
		RetryCap: ms(v.RetryCapMs), RetryJitter: math.Round(v.RetryJitterPercent*1e4) / 1e6,
		Delivery: delivery, MaxLate: ms(v.MaxLateMs), Priority: v.Priority,
		DeadKeep: ms(v.DeadKeepMs), BodyMax: v.BodyMax, Paused: v.Paused, WaitReplicas: v.WaitReplicas,
		Forward: v.Forward, Push: v.Push, Version: q.Version,
	}
}

// settingsAge is how old what this process knows of settings may be: a worker
// reads them before every claim.
const settingsAge = 900 * time.Millisecond

// settingsCache holds the settings of queues that were read lately.
type settingsCache struct {
	mu     sync.Mutex // guards queues
	queues map[string]knownSettings
}

type knownSettings struct {
	settings dueq.Settings
	err      error     // what could not be read of them
	asked    time.Time // when the request that answered them was made
}

func (c *settingsCache) get(queue string) (knownSettings, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.queues[queue]
	return known, ok && time.Since(known.asked) < settingsAge
}

// put notes an answer, unless one to a later request is known.
func (c *settingsCache) put(queue string, known knownSettings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues == nil {
		c.queues = map[string]knownSettings{}
	}
	if !c.queues[queue].asked.After(known.asked) {
		c.queues[queue] = known
	}
}

// forget makes the next look at a queue's settings read them again.
func (c *settingsCache) forget(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.queues, queue)
}
