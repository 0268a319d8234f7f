package push

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/memstore"
	"github.com/dueq/dueq/redisstore"
)

const patience = 90 * time.Second // more than it takes until a lost claim comes back

// request is what a receiver saw.
type request struct {
	header http.Header
	body   []byte
	host   string
	path   string
	proto  int
	at     time.Time
}

// receiver is a real HTTP server that keeps what it was sent.
type receiver struct {
	*httptest.Server
	answer func(w http.ResponseWriter, r *http.Request, n int) // n counts the requests from 1; nil answers 200

	mu       sync.Mutex // guards requests
	requests []request
}

func receive(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *receiver {
	t.Helper()
	rec := newReceiver(answer)
	rec.Start()
	t.Cleanup(rec.Close)
	return rec
}

func newReceiver(answer func(w http.ResponseWriter, r *http.Request, n int)) *receiver {
	rec := &receiver{answer: answer}
	rec.Server = httptest.NewUnstartedServer(rec)
	rec.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	return rec
}

func (rec *receiver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	rec.mu.Lock()
	rec.requests = append(rec.requests, request{r.Header.Clone(), body, r.Host, r.URL.Path, r.ProtoMajor, time.Now()})
	n := len(rec.requests)
	rec.mu.Unlock()
	if rec.answer != nil {
		rec.answer(w, r, n)
	}
}

func (rec *receiver) all() []request {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.requests[:len(rec.requests):len(rec.requests)]
}

// await returns the first n requests.
func (rec *receiver) await(t *testing.T, n int) []request {
	t.Helper()
	eventually(t, fmt.Sprintf("%d requests", n), func() bool { return len(rec.all()) >= n })
	return rec.all()[:n]
}

// status answers with a status and a text.
func status(code int, text string) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// hang answers nothing until the request is given up.
func hang(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }

// reset breaks the connection instead of answering.
func reset(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// onStores runs a test on a store in memory and on Redis.
func onStores(t *testing.T, name string, f func(t *testing.T, store dueq.Store)) {
	t.Helper()
	t.Run(name+"/memory", func(t *testing.T) {
		t.Parallel()
		f(t, inMemory(t))
	})
	t.Run(name+"/redis", func(t *testing.T) {
		t.Parallel()
		f(t, onRedis(t, redistest.Start(t).URL()))
	})
}

func inMemory(t *testing.T) dueq.Store {
	store := memstore.New(memstore.Options{})
	t.Cleanup(func() { _ = store.Close() })
	return store
}

func onRedis(t *testing.T, url string) dueq.Store {
	t.Helper()
	store, err := redisstore.Open(url, redisstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// start pushes until the test ends or stop is called, which returns what Run
// returned. A test that says nothing about it pushes to loopback, unsigned.
func start(t *testing.T, store dueq.Store, opts Options) (stop func() error) {
	t.Helper()
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	result := make(chan error, 1)
	go func() { result <- Run(ctx, store, opts) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-result:
			return err
		case <-time.After(patience):
			return errors.New("pushing did not stop")
		}
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	return stop
}

var anywhere = Options{AllowPrivate: true, Unsigned: true}

// quick are settings for a test that waits for retries.
func quick(address string, more ...string) dueq.SettingsPatch {
	patch := dueq.SettingsPatch{"push": address, "retry_first": "20ms", "retry_factor": "1", "retry_jitter": "0%"}
	for i := 0; i < len(more); i += 2 {
		patch[more[i]] = more[i+1]
	}
	return patch
}

func set(t *testing.T, store dueq.Store, queue string, patch dueq.SettingsPatch) {
	t.Helper()
	if _, err := store.SetSettings(t.Context(), queue, patch); err != nil {
		t.Fatal(err)
	}
}

func schedule(t *testing.T, store dueq.Store, queue string, tasks ...dueq.Task) {
	t.Helper()
	items := make([]dueq.Item, len(tasks))
	for i, task := range tasks {
		items[i] = dueq.Item{Queue: queue, Task: task, When: dueq.In(0)}
	}
	out, err := store.Schedule(t.Context(), items)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out {
		if o.Error() != nil {
			t.Fatalf("%s: %v", tasks[i].ID, o.Error())
		}
	}
}

func stats(t *testing.T, store dueq.Store, queue string) dueq.QueueStats {
	t.Helper()
	got, err := store.Stats(t.Context(), queue)
	if err != nil {
		t.Fatal(err)
	}
	return got[0]
}

// awaitAcked waits until n deliveries are acknowledged and nothing is left.
func awaitAcked(t *testing.T, store dueq.Store, queue string, n int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d acknowledged", n), func() bool {
		st := stats(t, store, queue)
		return st.Totals.Acked == n && st.Active+st.Scheduled+st.Dead == 0
	})
}

// awaitDead waits until the task is a dead letter.
func awaitDead(t *testing.T, store dueq.Store, queue, member string) dueq.Info {
	t.Helper()
	var info dueq.Info
	eventually(t, member+" is dead", func() bool {
		info = get(t, store, queue, member)
		return info.State == dueq.StateDead
	})
	return info
}

func get(t *testing.T, store dueq.Store, queue, member string) dueq.Info {
	t.Helper()
	infos, err := store.Get(t.Context(), queue, []string{member})
	if err != nil {
		t.Fatal(err)
	}
	return infos[0]
}

// wantError fails unless the last error has each of the texts, is printable
// and at most 1 KiB.
func wantError(t *testing.T, info dueq.Info, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(info.LastError, text) {
			t.Errorf("last error %q does not contain %q", info.LastError, text)
		}
	}
	if len(info.LastError) > 1024 || printable(info.LastError) != info.LastError {
		t.Errorf("last error of %d bytes is %q", len(info.LastError), info.LastError)
	}
}

// logs keeps what is logged.
type logs struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logs) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *logs) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
