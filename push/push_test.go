package push

import (
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	quickcheck "testing/quick"
	"time"

	webhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/dueq/dueq"
)

func secretOf(fill byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(fill), 32)))
}

func TestDelivery(t *testing.T) {
	t.Parallel()
	onStores(t, "carries the task in body and headers, signed", func(t *testing.T, store dueq.Store) {
		rec := receive(t, nil)
		secret := secretOf('a')
		set(t, store, "order:close", quick(rec.URL+"/hooks/close?shop=7"))
		start(t, store, Options{AllowPrivate: true, Version: "1.2.3", Secrets: func(string) []string { return []string{secret} }})
		before := time.Now()
		schedule(t, store, "order:close", dueq.Task{ID: "order_123456", Kind: "pay_timeout", Body: []byte(`{"sum": 1.50}`)})
		awaitAcked(t, store, "order:close", 1)
		got := rec.await(t, 1)[0]
		if got.path != "/hooks/close" || string(got.body) != `{"sum": 1.50}` {
			t.Errorf("path %q, body %q", got.path, got.body)
		}
		want := map[string]string{
			"Content-Type": "application/json", "Content-Length": "13", "User-Agent": "dueq/1.2.3",
			"Dueq-Queue": "order:close", "Dueq-Id": "order_123456", "Dueq-Kind": "pay_timeout", "Dueq-Attempt": "1", "Dueq-Round": "0",
		}
		for name, value := range want {
			if got.header.Get(name) != value {
				t.Errorf("%s is %q, want %q", name, got.header.Get(name), value)
			}
		}
		due, err := time.Parse("2006-01-02T15:04:05.000Z", got.header.Get("Dueq-Due"))
		if err != nil || due.Before(before.Add(-time.Second)) || due.After(time.Now().Add(time.Second)) {
			t.Errorf("Dueq-Due is %q, %v", got.header.Get("Dueq-Due"), err)
		}
		if want := fmt.Sprintf("order:close/order_123456:pay_timeout/0/%d", due.UnixMilli()); got.header.Get("webhook-id") != want {
			t.Errorf("webhook-id is %q, want %q", got.header.Get("webhook-id"), want)
		}
		verify(t, got, secret, true)
		verify(t, got, secretOf('b'), false)
		got.body = append(got.body, ' ')
		verify(t, got, secret, false)
	})
	t.Run("says what the body is", func(t *testing.T) {
		t.Parallel()
		store, rec := inMemory(t), receive(t, nil)
		set(t, store, "q", quick(rec.URL))
		start(t, store, anywhere)
		bodies := map[string][]byte{"none": nil, "empty": {}, "json": []byte(`[1]`), "text": []byte("[1"), "bytes": {0, 255, '\n'}}
		for id, body := range bodies {
			schedule(t, store, "q", dueq.Task{ID: id, Body: body})
		}
		awaitAcked(t, store, "q", int64(len(bodies)))
		for _, got := range rec.all() {
			id, kind := got.header.Get("Dueq-Id"), "application/octet-stream"
			if id == "json" {
				kind = "application/json"
			}
			if got.header.Get("Content-Type") != kind || string(got.body) != string(bodies[id]) {
				t.Errorf("%s arrived as %q of type %s", id, got.body, got.header.Get("Content-Type"))
			}
		}
	})
}

// verify checks the signature as a receiver would, with the library.
func verify(t *testing.T, got request, secret string, want bool) {
	t.Helper()
	hook, err := webhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := hook.Verify(got.body, got.header); (err == nil) != want {
		t.Errorf("verified with %s: %v, want %v", secret, err, want)
	}
}

func TestIDsCannotBreakOutOfHeaders(t *testing.T) {
	t.Parallel()
	store, rec := inMemory(t), receive(t, nil)
	set(t, store, "q", quick(rec.URL, "priority", "on"))
	start(t, store, anywhere)
	tasks := []dueq.Task{
		{ID: "plain", Kind: "k"},
		{ID: "a.b/c?d&e=%0d%0aX-Evil:1", Kind: `"quoted;,\`},
		{ID: "größe\u202e", Kind: "日本"},
		{ID: "a:b", Kind: "X-Evil%3A", Priority: dueq.P(5), Trace: "t/1"},
	}
	schedule(t, store, "q", tasks...)
	awaitAcked(t, store, "q", int64(len(tasks)))
	seen := map[string]request{}
	for _, got := range rec.all() {
		id, err := url.PathUnescape(got.header.Get("Dueq-Id"))
		if err != nil {
			t.Error(err)
		}
		seen[id] = got
		for name, values := range got.header {
			if strings.Contains(name, "Evil") || len(values) != 1 || strings.ContainsFunc(values[0], func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("header %s is %q", name, values)
			}
		}
	}
	for _, task := range tasks {
		h := seen[task.ID].header
		if kind, err := url.PathUnescape(h.Get("Dueq-Kind")); err != nil || kind != task.Kind {
			t.Errorf("kind of %s arrived as %q, %v", task.ID, kind, err)
		}
		parts := strings.Split(h.Get("webhook-id"), "/")
		if len(parts) != 4 || strings.Contains(h.Get("webhook-id"), ".") {
			t.Fatalf("webhook-id is %q", h.Get("webhook-id"))
		}
		if member, err := url.PathUnescape(parts[1]); err != nil || member != task.Member() {
			t.Errorf("webhook-id names %q, %v; want %q", member, err, task.Member())
		}
	}
}

func TestEscapedTextIsVisibleAndReadsBack(t *testing.T) {
	t.Parallel()
	for name, plain := range map[string]func(byte) bool{"in headers": isVisible, "in ids": isPlain} {
		reads := func(s string) bool {
			escaped := escape(s, plain)
			back, err := url.PathUnescape(escaped)
			return err == nil && back == s && !strings.ContainsFunc(escaped, func(r rune) bool { return r <= ' ' || r > '~' })
		}
		if err := quickcheck.Check(reads, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	t.Run("are changed without an interruption", func(t *testing.T) {
		t.Parallel()
		store, rec := inMemory(t), receive(t, nil)
		set(t, store, "q", quick(rec.URL))
		older, newer := secretOf('a'), secretOf('b')
		steps := make(chan []string, 1)
		now := []string{older}
		start(t, store, Options{AllowPrivate: true, Secrets: func(string) []string {
			select {
			case now = <-steps:
			default:
			}
			return now
		}})
		for i, secrets := range [][]string{{older}, {newer, older}, {newer}} {
			steps <- secrets
			eventually(t, "secrets taken", func() bool { return len(steps) == 0 })
			schedule(t, store, "q", dueq.Task{ID: "t"})
			got := rec.await(t, i+1)[i]
			awaitAcked(t, store, "q", int64(i+1))
			verify(t, got, older, i < 2)
			verify(t, got, newer, i > 0)
			if n := len(strings.Fields(got.header.Get("webhook-signature"))); n != len(secrets) {
				t.Errorf("%d signatures for %d secrets", n, len(secrets))
			}
			first := request{header: got.header.Clone(), body: got.body}
			first.header.Set("webhook-signature", strings.Fields(got.header.Get("webhook-signature"))[0])
			verify(t, first, secrets[0], true)
		}
	})
	t.Run("that are missing or bad keep a queue from being claimed, and are logged once", func(t *testing.T) {
		t.Parallel()
		store, rec := inMemory(t), receive(t, nil)
		for _, queue := range []string{"none", "bad", "good", "mended"} {
			set(t, store, queue, quick(rec.URL+"/"+queue))
			schedule(t, store, queue, dueq.Task{ID: "t"})
		}
		var said logs
		mended := make(chan struct{})
		start(t, store, Options{AllowPrivate: true, Logger: said.logger(), Secrets: func(queue string) []string {
			switch {
			case queue == "bad":
				return []string{"whsec_c2hvcnQ="}
			case queue == "good", queue == "mended" && isClosed(mended):
				return []string{secretOf('a')}
			}
			return nil
		}})
		awaitAcked(t, store, "good", 1)
		eventually(t, "three complaints", func() bool { return said.count("queue is not pushed") == 3 })
		close(mended)
		awaitAcked(t, store, "mended", 1)
		if got := rec.all(); len(got) != 2 {
			t.Errorf("%d requests, want those of two queues", len(got))
		}
		for _, queue := range []string{"none", "bad"} {
			if st := stats(t, store, queue); st.Totals.Claimed != 0 || st.Scheduled != 1 {
				t.Errorf("%s: %+v", queue, st)
			}
		}
		if n := said.count("queue is not pushed"); n != 3 {
			t.Errorf("%d complaints, want one for each queue", n)
		}
		if n := said.count("c2hvcnQ"); n != 0 {
			t.Error("a secret was logged")
		}
	})
	t.Run("need not be, if that is wanted", func(t *testing.T) {
		t.Parallel()
		store, rec := inMemory(t), receive(t, nil)
		set(t, store, "q", quick(rec.URL))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		awaitAcked(t, store, "q", 1)
		h := rec.await(t, 1)[0].header
		if h.Get("webhook-id") == "" || h.Get("webhook-timestamp") == "" || h.Values("webhook-signature") != nil {
			t.Errorf("headers are %v", h)
		}
	})
}

func TestByPattern(t *testing.T) {
	t.Parallel()
	a, b := secretOf('a'), secretOf('b')
	secrets, err := ByPattern([]QueueSecrets{{"order:*", []string{a}}, {"*", []string{b, a}}})
	if err != nil {
		t.Fatal(err)
	}
	for queue, want := range map[string]string{"order:close": a, "order": b, "x:order:close": b} {
		if got := secrets(queue); len(got) == 0 || got[0] != want {
			t.Errorf("%s has %v", queue, got)
		}
	}
	short := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 23))
	long := "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 65))
	bad := map[string]QueueSecrets{
		"a bad pattern":  {"[", []string{a}},
		"no pattern":     {"", []string{a}},
		"no secret":      {"q", nil},
		"three secrets":  {"q", []string{a, b, a}},
		"a short secret": {"q", []string{short}},
		"a long secret":  {"q", []string{long}},
		"no prefix":      {"q", []string{strings.TrimPrefix(a, "whsec_")}},
		"no base64":      {"q", []string{a, "whsec_!"}},
	}
	for name, entry := range bad {
		_, err := ByPattern([]QueueSecrets{entry})
		if dueq.ExitCode(err) != 2 {
			t.Errorf("%s: %v", name, err)
		} else if len(entry.Secrets) > 0 && strings.Contains(err.Error(), entry.Secrets[0]) {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

func TestRunRefusesOptionsOutOfBounds(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{{Timeout: -1}, {Allow: make([]netip.Prefix, 1)}} {
		if err := Run(t.Context(), inMemory(t), opts); dueq.ExitCode(err) != 2 {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}
