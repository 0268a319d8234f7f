package redisstore_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// aclUser makes a user with all keys and channels of the default prefix and no
// other command than those of the rules.
func aclUser(t *testing.T, srv *redistest.Server, raw *redis.Client, name string, rules ...string) string {
	t.Helper()
	all := append([]string{"reset", "on", ">pw", "~delay:*", "~{delay:*", "&delay:*"}, rules...)
	must(t, raw.ACLSetUser(t.Context(), name, all...).Err())
	return "redis://" + name + ":pw@" + srv.Addr()
}

func TestAccess_opening_fails_with_exactly_the_commands_that_are_denied(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	needed := redisstore.NeededCommands()
	var rules []string
	for _, name := range needed {
		rules = append(rules, "+"+name)
	}

	store := openStore(t, aclUser(t, srv, raw, "enough", rules...), patient)
	lifeOfTasks(t, store, raw, "acl:enough")
	must(t, store.Probe(t.Context()))
	for _, denied := range srv.Denials(t) {
		optional := []string{"info", "script|load", "subscribe", "publish", "hello", "auth", "client|setname"}
		if !slices.Contains(optional, denied.Object) {
			t.Errorf("with the commands it asks for alone, %s was denied", denied.Object)
		}
	}

	missing := func(err error) []string {
		_, list, _ := strings.Cut(err.Error(), "may not run ")
		return strings.Split(list, ", ")
	}
	for _, name := range needed {
		_, err := redisstore.Open(aclUser(t, srv, raw, "lacks", append(rules, "-"+name)...), patient)
		if err == nil || isUnavailable(err) || !strings.Contains(err.Error(), "NOPERM") || !slices.Equal(missing(err), []string{name}) {
			t.Errorf("without %s: got %v, want NOPERM naming it alone", name, err)
		}
	}
	_, err := redisstore.Open(aclUser(t, srv, raw, "few", append(rules, "-zadd", "-hget", "-time", "-eval")...), patient)
	if err == nil || !slices.Equal(missing(err), []string{"eval", "hget", "time", "zadd"}) {
		t.Errorf("without four commands: got %v, want them named", err)
	}
	_, err = redisstore.Open(aclUser(t, srv, raw, "none"), patient)
	if err == nil || isUnavailable(err) {
		t.Errorf("without any: got %v", err)
	}
	_, err = redisstore.Open(aclUser(t, srv, raw, "no_scripts", append(rules, "-eval", "-evalsha")...), patient)
	if err == nil || isUnavailable(err) || !strings.Contains(err.Error(), strings.Join(needed, ", ")) {
		t.Errorf("without scripts: got %v, want all that is needed named", err)
	}
}

// lifeOfTasks uses every script and command there is.
func lifeOfTasks(t *testing.T, store dueq.Store, raw *redis.Client, queue string) {
	t.Helper()
	for _, patch := range []dueq.SettingsPatch{{"retries": "1"}, {"priority": "on"}, {"priority": "off", "delivery": "at_most_once"}} {
		live(t, store, raw, redisstore.DefaultPrefix, queue, patch)
	}
	_, err := store.Stats(t.Context())
	must(t, err)
	done := newLedger()
	startWorker(t, store, dueq.WorkerOptions{}, done, queue+":work")
	scheduleAll(t, store, items(queue+":work", 10, dueq.In(10*time.Millisecond)))
	eventually(t, 5*time.Second, "a worker works", func() bool { return done.size() == 10 })
	must(t, raw.Set(t.Context(), redisstore.DefaultPrefix+"wrong", "type", 0).Err())
	if _, err := store.Schedule(t.Context(), []dueq.Item{item("wrong", "a", past)}); err == nil || !strings.Contains(err.Error(), "WRONGTYPE key") {
		t.Errorf("schedule at a key of another type: got %v, want WRONGTYPE naming it", err)
	}
}

// What the scripts call by name is what opening asks for.
func TestAccess_what_is_asked_for_is_what_the_scripts_call(t *testing.T) {
	t.Parallel()
	files, err := os.ReadDir("lua")
	must(t, err)
	literal := regexp.MustCompile(`(?:call|spread)\('([A-Z]+)'`)
	called := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile("lua/" + file.Name())
		must(t, err)
		for _, match := range literal.FindAllStringSubmatch(string(text), -1) {
			called[strings.ToLower(match[1])] = true
		}
	}
	delete(called, "publish") // in pcall: without it workers find tasks by scanning
	delete(called, "rpush")   // forward.lua asks itself, for who forwards
	delete(called, "xadd")
	for name := range called {
		if !slices.Contains(redisstore.NeededCommands(), name) {
			t.Errorf("a script calls %s, which opening does not ask for", name)
		}
	}
	if len(called) < 10 {
		t.Errorf("found only %v in the scripts", called)
	}
}
