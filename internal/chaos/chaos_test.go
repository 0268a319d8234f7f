package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/dueq/dueq/internal/child"
)

func TestMain(m *testing.M) {
	redis.SetLogger(&logging.VoidLogger{}) // it has a line for every connection that is refused
	child.Main(Roles)
	os.Exit(m.Run())
}

// Short runs mostly wait, for failovers and for what was given up, so several
// go at once.
const (
	short       = 4 * time.Second
	shortAtOnce = 4
)

// Nothing is lost, early or run again without a reason on any target. `make
// chaos` does the same for longer. DUEQ_CHAOS is how long the faults of each
// target last, DUEQ_CHAOS_TOTAL those of all together if that is not given;
// DUEQ_CHAOS_TARGET names targets, DUEQ_CHAOS_SEED repeats a run. Long runs have
// the machine to themselves, one after the other.
func TestChaos(t *testing.T) {
	t.Parallel()
	chosen, err := choose(os.Getenv("DUEQ_CHAOS_TARGET"))
	must(t, err)
	total := fromEnv(t, "DUEQ_CHAOS_TOTAL", time.ParseDuration, short*time.Duration(len(chosen)))
	lasts := fromEnv(t, "DUEQ_CHAOS", time.ParseDuration, total/time.Duration(len(chosen)))
	seed := fromEnv(t, "DUEQ_CHAOS_SEED", func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) }, rand.Uint64())
	slots := make(chan struct{}, 1)
	if lasts <= short {
		slots = make(chan struct{}, shortAtOnce)
	}
	var group sync.WaitGroup
	for _, target := range chosen {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			t.Run(target.Name, func(t *testing.T) { put(t, target, seed, lasts) })
		})
	}
	group.Wait()
}

// put puts a target to the test.
func put(t *testing.T, target Target, seed uint64, lasts time.Duration) {
	t.Logf("seed %d", seed) // first of all, should it hang
	r := Run(t, target, seed, lasts)
	t.Log(r)
	if complaints := r.Complaints(5); complaints != "" {
		t.Errorf("DUEQ_CHAOS_SEED=%d DUEQ_CHAOS_TARGET=%s\n%s", seed, target.Name, complaints)
	}
	if r.Handled == 0 || len(r.History.Faults) == 0 {
		t.Error("nothing was handled or no fault injected: it proves nothing")
	}
}

func fromEnv[T any](t *testing.T, name string, parse func(string) (T, error), otherwise T) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	value, err := parse(text)
	must(t, err)
	return value
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
