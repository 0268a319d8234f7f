package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/httpapi"
	"github.com/dueq/dueq/internal/contract"
)

// Each answer that /openapi.json documents occurs, and is as it says; that no
// other occurs all tests see, since they hold their answers against it.
func TestDefinition_has_no_answer_that_does_not_occur(t *testing.T) {
	t.Parallel()
	c, _ := servedContract(t)
	for _, a := range accesses {
		a.try(t, c)
	}
	for _, bring := range []func(*testing.T, *contract.Contract){
		bringRefusals, bringConflicts, bringCrowds, bringHosts, bringBrokenStores,
	} {
		bring(t, c)
	}
	for _, missing := range c.Missing() {
		t.Errorf("nothing brought %s about", missing)
	}
	if n := len(c.Answers()); n < 200 {
		t.Errorf("only %d answers are documented", n)
	}
}

// documents reports whether an operation has an answer.
func documents(c *contract.Contract, operation, status string) bool {
	return slices.Contains(c.Answers(), contract.Answer{Operation: operation, Status: status})
}

// bring sends a request to an operation, as admin, if it has the answer, and
// wants it.
func (s *site) bring(c *contract.Contract, a access, status string, change func(*http.Request)) {
	s.Helper()
	if !documents(c, a.name(), status) {
		return
	}
	r := s.request(a.operation, a.body, as("admin"))
	change(r)
	if response, body := s.send(r); !strings.HasPrefix(response.Status, status) {
		s.Errorf("%s: got %s, want %s: %s", a.operation, response.Status, status, body)
	}
}

// bringRefusals brings about what any request may be refused for.
func bringRefusals(t *testing.T, c *contract.Contract) {
	s := newSite(t, c, httpapi.Options{Tokens: callers}, nil)
	before := s.contents()
	for _, a := range accesses {
		if a.name() != "GET /metrics" { // takes anything
			r := s.request(a.operation, a.body, as("admin"))
			r.URL.RawQuery = "nothing=1"
			if response, body := s.send(r); response.StatusCode != http.StatusBadRequest {
				t.Errorf("%s?nothing=1: got %d %s", a.operation, response.StatusCode, body)
			}
		}
		s.bring(c, a, "403", func(r *http.Request) {
			if r.Header.Set("Authorization", "Bearer other"); r.Method != http.MethodGet {
				r.Header.Set("Origin", "https://evil.example") // only the last two have this or that
			} else if !strings.Contains(a.operation, "{queue}") {
				r.Header.Set("Authorization", "Bearer publish")
			}
		})
		s.bring(c, a, "408", func(r *http.Request) { r.Header.Set("Slow", "yes") })
		s.bring(c, a, "413", func(r *http.Request) {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Expect", "100-continue")
			r.Body, r.GetBody, r.ContentLength = http.NoBody, nil, 24<<20+1
			r.Body = io.NopCloser(io.LimitReader(blanks{}, r.ContentLength))
		})
		s.bring(c, a, "415", func(r *http.Request) {
			if r.ContentLength == 0 {
				r.Body, r.ContentLength = io.NopCloser(strings.NewReader("{}")), 2
			}
			r.Header.Set("Content-Type", "text/plain")
		})
	}
	s.unchanged("a refusal", before)
}

// blanks is white space without an end.
type blanks struct{}

func (blanks) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	return len(b), nil
}

// bringConflicts brings about what the state of a task refuses.
func bringConflicts(t *testing.T, c *contract.Contract) {
	for status, members := range map[string][]string{"404": {"nobody"}, "409": {"r", "d"}} {
		for _, member := range members {
			s := newSite(t, c, httpapi.Options{Tokens: callers}, nil)
			for _, a := range accesses {
				if strings.Contains(a.operation, "{member}") {
					s.bring(c, a, status, func(r *http.Request) { r.URL.Path = strings.TrimSuffix(r.URL.Path, "t") + member })
				}
			}
		}
	}
	s := newSite(t, c, httpapi.Options{Tokens: callers}, nil)
	s.schedule("a1", "new", 0)
	s.bring(c, access{"POST /v1/queues/{queue}/tasks", onePlease, ""}, "200", func(*http.Request) {})
}

// bringHosts brings about what is refused without tokens.
func bringHosts(t *testing.T, c *contract.Contract) {
	s := newSite(t, c, httpapi.Options{}, nil)
	before := s.contents()
	for _, a := range accesses {
		s.bring(c, a, "421", func(r *http.Request) { r.Host = "evil.example" })
	}
	s.unchanged("a wrong host", before)
}

// bringCrowds fills all places for claims that wait, streams and large bodies.
func bringCrowds(t *testing.T, c *contract.Contract) {
	s := newSite(t, c, httpapi.Options{WaitingMax: 1, StreamsMax: 1, Tokens: callers}, nil)
	claim := access{"POST /v1/queues/{queue}/claim", `{"max": 0, "wait_ms": 20000}`, ""}
	wake := access{"GET /v1/wake", "", ""}
	var group sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer group.Wait()
	defer leave()
	hold := func(request func() *http.Request) {
		group.Go(func() {
			for ctx.Err() == nil { // again when a probe below had the place
				response, err := s.http.Do(request().WithContext(ctx))
				if err != nil {
					continue
				}
				if response.StatusCode != http.StatusTooManyRequests {
					<-ctx.Done()
				}
				_ = response.Body.Close()
			}
		})
	}
	hold(func() *http.Request {
		return s.request("POST /v1/queues/empty/claim", `{"wait_ms": 20000}`, as("admin"))
	})
	hold(func() *http.Request { return s.request(wake.operation, "", as("admin")) })
	for range 8 {
		hold(func() *http.Request { return s.large(ctx, accesses[4]) })
	}
	for _, a := range accesses {
		if !documents(c, a.name(), "429") {
			continue
		}
		eventually(t, a.operation+" is answered 429", func() bool {
			r := s.request(a.operation, a.body, as("admin"))
			switch a.name() {
			case claim.operation:
				r = s.request("POST /v1/queues/empty/claim", `{"wait_ms": 1}`, as("admin"))
			case wake.operation:
			default:
				r = s.large(ctx, a)
				r.Body = io.NopCloser(io.LimitReader(blanks{}, 3<<20))
			}
			response, _ := s.send(r)
			return response.StatusCode == http.StatusTooManyRequests && response.Header.Get("Retry-After") == "1"
		})
	}
}

// large is a request whose body is large and does not end until ctx does.
func (s *site) large(ctx context.Context, a access) *http.Request {
	r := s.request(a.operation, "", as("admin"), "Content-Type: application/json")
	r.Body, r.GetBody, r.ContentLength = io.NopCloser(io.MultiReader(io.LimitReader(blanks{}, 3<<20), never{ctx})), nil, -1
	return r
}

// never is the rest of a body that does not come.
type never struct{ context.Context }

func (n never) Read([]byte) (int, error) {
	<-n.Done()
	return 0, io.ErrUnexpectedEOF
}

// bringBrokenStores brings about what needs a store that fails: all answers of
// 500 and 503, but for what is documented for no operation that asks the store.
func bringBrokenStores(t *testing.T, c *contract.Contract) {
	for status, err := range map[string]error{"500": errors.New("broken"), "503": dueq.ErrUnavailable} {
		s := newSite(t, c, httpapi.Options{Tokens: callers}, func(store dueq.Store) dueq.Store { return failing{store, err} })
		for _, a := range accesses {
			s.bring(c, a, status, func(*http.Request) {})
		}
	}
}

// failing is a store of which every call fails.
type failing struct {
	dueq.Store
	err error
}

func (f failing) Schedule(context.Context, []dueq.Item) ([]dueq.Outcome, error) { return nil, f.err }
func (f failing) Change(context.Context, string, dueq.Op, []dueq.Target) ([]dueq.Outcome, error) {
	return nil, f.err
}
func (f failing) Claim(context.Context, dueq.ClaimRequest) (dueq.Claim, error) {
	return dueq.Claim{}, f.err
}
func (f failing) Settle(context.Context, string, []dueq.Result) ([]dueq.Outcome, error) {
	return nil, f.err
}
func (f failing) Extend(context.Context, string, []dueq.Lease, time.Duration) ([]dueq.Outcome, error) {
	return nil, f.err
}
func (f failing) Get(context.Context, string, []string) ([]dueq.Info, error) { return nil, f.err }
func (f failing) List(context.Context, dueq.ListQuery) (dueq.Page, error)    { return dueq.Page{}, f.err }
func (f failing) Stats(context.Context, ...string) ([]dueq.QueueStats, error) {
	return nil, f.err
}
func (f failing) Settings(context.Context, string) (dueq.Settings, error) {
	return dueq.Settings{}, f.err
}
func (f failing) SetSettings(context.Context, string, dueq.SettingsPatch) (dueq.Settings, error) {
	return dueq.Settings{}, f.err
}
func (f failing) Wake(context.Context) (<-chan dueq.Hint, error) { return nil, f.err }
