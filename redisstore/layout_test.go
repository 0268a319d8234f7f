package redisstore_test

import (
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
	"github.com/dueq/dueq/storetest"
)

var (
	frozenAt = time.UnixMilli(1_800_000_000_000)
	frozen   = redistest.WithClock(frozenAt)
)

// someTopics are those that a layout can break most easily.
func someTopics() []string {
	if os.Getenv("DUEQ_LAYOUTS") == "all" {
		return nil // that is, all
	}
	return []string{"schedule", "claim", "once", "forward", "change", "settings", "wake", "close"}
}

// inTurn runs the suite on servers whose clocks it sets back for each topic.
func inTurn(t *testing.T, topics []string, url string, raw redis.Cmdable, prefix string, servers ...*redistest.Server) {
	storetest.RunInTurn(t, func(t *testing.T) storetest.Fixture {
		return rewound(t, url, raw, prefix, servers...)
	}, topics...)
}

func rewound(t *testing.T, url string, raw redis.Cmdable, prefix string, servers ...*redistest.Server) storetest.Fixture {
	for _, srv := range servers {
		srv.SetTime(frozenAt)
	}
	return fixtureOf(t, openStore(t, url, patient), raw, prefix, servers...)
}

// sleepy is for nodes of a cluster whose clock is stepped: a step is no reason
// to give another node up.
var sleepy = redistest.WithConfig("cluster-node-timeout", "1000000000000000")

// documented is the user of docs/design.md, for a prefix.
func documented(t *testing.T, prefix string) redistest.Option {
	t.Helper()
	return redistest.WithUser("dueq", "pw", documentedRights(t, prefix)...)
}

func documentedRights(t *testing.T, prefix string) []string {
	t.Helper()
	text, err := os.ReadFile("../docs/design.md")
	must(t, err)
	_, line, found := strings.Cut(string(text), "ACL SETUSER dueq on >PASSWORD ")
	line, _, ended := strings.Cut(line, "\n")
	if !found || !ended {
		t.Fatal("docs/design.md has no ACL line")
	}
	return strings.Fields(strings.ReplaceAll(line, "delay:", prefix))
}

// as puts a user into a URL.
func as(t *testing.T, rawURL, name, password string) string {
	t.Helper()
	scheme, rest, ok := strings.Cut(rawURL, "://")
	if !ok {
		t.Fatalf("%s is no URL", rawURL)
	}
	return scheme + "://" + url.UserPassword(name, password).String() + "@" + rest[strings.LastIndexByte(rest, '@')+1:]
}

func clusterClient(t *testing.T, c *redistest.Cluster) *redis.ClusterClient {
	t.Helper()
	var addrs []string
	for _, node := range c.Nodes() {
		addrs = append(addrs, node.Addr())
	}
	raw := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs, ClusterStateReloadInterval: 200 * time.Millisecond})
	t.Cleanup(func() { _ = raw.Close() })
	return raw
}

// Cases 49, 78 and 80 as well: no call of the suite has keys of two slots.
func TestLayoutCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, frozen, sleepy, documented(t, redisstore.DefaultPrefix))
	raw := clusterClient(t, c)
	u := as(t, c.URL(), "dueq", "pw")
	inTurn(t, nil, u, raw, redisstore.DefaultPrefix, c.Nodes()...)
	t.Run("model", func(t *testing.T) { model(t, rewound(t, u, raw, redisstore.DefaultPrefix, c.Nodes()...)) })
	for _, node := range c.Nodes() {
		nothingDenied(t, node)
		noErrors(t, node, "CROSSSLOT", "NOPERM", "MOVED")
		if n := node.Commands(t)["evalsha"]; n < 100 {
			t.Errorf("%s ran %d scripts: too few to mean anything", node.Addr(), n)
		}
	}
}

func TestLayoutTLS_as_a_user_with_a_database_and_a_prefix(t *testing.T) {
	t.Parallel()
	const prefix = "shop:"
	srv := redistest.Start(t, frozen, redistest.WithTLS(), documented(t, prefix))
	raw := redis.NewClient(&redis.Options{Addr: srv.Addr(), DB: 3})
	t.Cleanup(func() { _ = raw.Close() })
	u := as(t, srv.TLSURL(), "dueq", "pw") + "/3?ca=" + url.QueryEscape(srv.CAFile()) + "&prefix=" + prefix
	inTurn(t, someTopics(), u, raw, prefix, srv)
	nothingDenied(t, srv)
	names, err := raw.Keys(t.Context(), "*").Result()
	must(t, err)
	if len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(strings.TrimPrefix(name, "{"), prefix) }) {
		t.Errorf("database 3 has %d keys, want some, all of the prefix: %.10q", len(names), names)
	}
	if n := srv.Client(t).DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("database 0 has %d keys, want none", n)
	}
	var plain []string
	for line := range strings.Lines(srv.Client(t).ClientList(t.Context()).Val()) {
		if strings.Contains(line, "user=dueq") && !strings.Contains(line, "laddr="+tlsAddr(t, srv)) {
			plain = append(plain, line)
		}
	}
	if len(plain) > 0 {
		t.Errorf("connections without TLS: %q", plain)
	}
}

func tlsAddr(t *testing.T, srv *redistest.Server) string {
	t.Helper()
	u, err := url.Parse(srv.TLSURL())
	must(t, err)
	return u.Host
}

func TestLayoutSentinel_with_a_password_and_a_database(t *testing.T) {
	t.Parallel()
	s := redistest.StartSentinel(t, frozen, redistest.WithConfig("requirepass", "secret"), redistest.WithConfig("repl-timeout", "2147483647"))
	raw := redis.NewClient(&redis.Options{Addr: s.Master().Addr(), Password: "secret", DB: 2})
	t.Cleanup(func() { _ = raw.Close() })
	nodes := append([]*redistest.Server{s.Master()}, s.Replicas()...)
	inTurn(t, someTopics(), s.URL()+"/2", raw, redisstore.DefaultPrefix, nodes...)
	if s.Master() != nodes[0] {
		t.Error("the master changed, so little was proved")
	}
}

func nothingDenied(t *testing.T, srv *redistest.Server) {
	t.Helper()
	if denials := srv.Denials(t); len(denials) > 0 {
		t.Errorf("%s denied %+v", srv.Addr(), denials)
	}
}

// noErrors checks that a server never answered with an error of some kinds.
func noErrors(t *testing.T, srv *redistest.Server, kinds ...string) {
	t.Helper()
	info, err := srv.Client(t).InfoMap(t.Context(), "errorstats").Result()
	must(t, err)
	for _, kind := range kinds {
		if n, ok := info["Errorstats"]["errorstat_"+kind]; ok {
			t.Errorf("%s answered %s: %s", srv.Addr(), kind, n)
		}
	}
}

// The documented user, who may not use channels.
func TestPermissions_without_channels_a_cluster_works_by_scanning(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.WithUser("dueq", "pw", append(documentedRights(t, redisstore.DefaultPrefix), "resetchannels")...))
	store := openStore(t, as(t, c.URL(), "dueq", "pw"), patient)
	hints, err := store.Wake(t.Context())
	must(t, err)
	log, done := &logCounter{}, newLedger()
	queues := []string{"a", "b", "c", "d", "e", "f"}
	startWorker(t, store, dueq.WorkerOptions{Logger: log.logger()}, done, queues...)
	for _, queue := range queues {
		scheduleAll(t, store, items(queue, 5, dueq.In(300*time.Millisecond)))
	}
	eventually(t, 5*time.Second, "all are handled", func() bool { return done.size() == 5*len(queues) })
	select {
	case hint := <-hints:
		t.Errorf("a hint came: %v", hint)
	default:
	}
	subscribed := int64(0)
	for _, node := range c.Nodes() {
		for _, denial := range node.Denials(t) {
			if denial.Reason != "channel" {
				t.Errorf("denied beside channels: %+v", denial)
			}
		}
		subscribed += node.Commands(t)["subscribe"]
	}
	if text := log.String(); strings.Contains(text, "level=WARN") || strings.Contains(text, "level=ERROR") {
		t.Errorf("the worker complained:\n%s", text)
	}
	if subscribed > 2 { // of the worker and of the test
		t.Errorf("%d attempts to subscribe, want one a minute", subscribed)
	}
}
