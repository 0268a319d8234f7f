package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/child"
	"github.com/dueq/dueq/internal/history"
)

// Roles are what children of a test binary with chaos in it can be.
var Roles = map[string]child.Role{"chaos worker": workerRole, "chaos producer": producerRole}

func workerRole(ctx context.Context, args []string) error {
	target, addr, name := args[0], args[1], args[2]
	store, err := openPatiently(target, addr)
	if err != nil {
		return err
	}
	defer store.Close()
	rec := history.NewStream(name, os.Stdout)
	return errors.Join(work(ctx, rec, store), rec.Err())
}

func producerRole(ctx context.Context, args []string) error {
	target, addr, name := args[0], args[1], args[2]
	seed, err := strconv.ParseUint(args[3], 10, 64)
	if err != nil {
		return err
	}
	store, err := openPatiently(target, addr)
	if err != nil {
		return err
	}
	defer store.Close()
	rec := history.NewStream(name, os.Stdout)
	produce(ctx, history.NewClient(rec, store, args[4] == "true"), name, seed)
	return rec.Err()
}

// openPatiently opens a store that may be away just now.
func openPatiently(target, addr string) (dueq.Store, error) {
	t, err := named(target)
	if err != nil {
		return nil, err
	}
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for end := time.Now().Add(time.Minute); ; <-retry.C {
		store, err := t.Open(addr)
		if err == nil || time.Now().After(end) {
			return store, err
		}
	}
}

// crew is all who work on a system: two producers and two workers in this
// process, and unless the store is alone as many again in processes of their
// own, one producer less.
type crew struct {
	t      testing.TB
	target Target
	sys    *System
	rec    *history.Recorder
	seed   uint64

	made      int
	store     dueq.Store // of this process
	producers group
	workers   group
	produce   *member
	work      []*member
	watch     watch
}

// group is goroutines that end together.
type group struct {
	wait sync.WaitGroup
	stop context.CancelFunc
}

// member is a process of the crew.
type member struct {
	*child.Process
	name string
}

func newCrew(t testing.TB, target Target, sys *System, rec *history.Recorder, seed uint64) *crew {
	c := &crew{t: t, target: target, sys: sys, rec: rec, seed: seed}
	var err error
	if c.store, err = target.Open(sys.Addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.store.Close() })
	patch := maps.Clone(settings)
	if sys.Safe {
		patch["wait_replicas"] = "1"
	}
	for _, queue := range queues {
		_, err := c.store.SetSettings(t.Context(), queue, patch)
		for try := 0; errors.Is(err, dueq.ErrUnavailable) && try < 10; try++ { // on a busy machine
			_, err = c.store.SetSettings(t.Context(), queue, patch)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *crew) start() {
	working, stopWork := context.WithCancel(context.WithoutCancel(c.t.Context()))
	producing, stopProduce := context.WithCancel(working)
	c.workers.stop, c.producers.stop = stopWork, stopProduce
	c.t.Cleanup(c.abandon)
	for _, name := range []string{"x", "y"} {
		c.workers.wait.Go(func() {
			if err := work(working, c.rec.As(name), c.store); err != nil {
				c.t.Errorf("worker %s: %v", name, err)
			}
		})
	}
	for _, name := range []string{"a", "b"} {
		client := history.NewClient(c.rec.As(name), c.store, c.sys.Safe)
		c.producers.wait.Go(func() { produce(producing, client, name, c.seed) })
	}
	if c.sys.Alone {
		return
	}
	c.produce = c.startProducer()
	c.work = []*member{c.startWorker(), c.startWorker()}
}

// abandon ends what a failed test left behind.
func (c *crew) abandon() {
	c.producers.stop()
	c.workers.stop()
	c.producers.wait.Wait()
	c.workers.wait.Wait()
}

func (c *crew) startWorker() *member {
	c.made++
	name := fmt.Sprintf("w%d", c.made)
	return c.startChild(name, "chaos worker", c.target.Name, c.sys.Addr, name)
}

func (c *crew) startProducer() *member {
	c.made++
	name := fmt.Sprintf("p%d", c.made)
	return c.startChild(name, "chaos producer", c.target.Name, c.sys.Addr, name, fmt.Sprint(c.seed), fmt.Sprint(c.sys.Safe))
}

func (c *crew) startChild(name, role string, args ...string) *member {
	p := child.Start(c.t, func(line []byte) {
		if err := c.rec.Add(line); err != nil {
			c.t.Errorf("%s says %q: %v", name, line, err)
		}
	}, role, args...)
	return &member{p, name}
}

func (c *crew) stopProducing() {
	c.producers.stop()
	c.producers.wait.Wait()
	if c.produce != nil {
		c.stopMember(c.produce)
	}
}

func (c *crew) stopWorking() {
	c.workers.stop()
	c.workers.wait.Wait()
	for _, w := range c.work {
		c.stopMember(w)
	}
}

func (c *crew) stopMember(m *member) {
	if err := m.Stop(); err != nil {
		c.t.Errorf("%s: %v", m.name, err)
	}
}
