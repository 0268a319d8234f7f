package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq/internal/redistest"
)

// Case 80: every command, over queues of all slots.
func TestCluster_no_command_crosses_slots(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0)
	var addrs []string
	for _, node := range cluster.Nodes() {
		addrs = append(addrs, node.Addr())
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { client.Close() })
	c := onServer(t, cluster.URL(), client)
	run := func(stdin, line string) result {
		t.Helper()
		return c.run(t, stdin, strings.Fields(line)...).must(t, 0)
	}
	const many = 20
	for i := range many {
		q := fmt.Sprint("q", i)
		run("id,kind,delay\na,k,1h\nb,k,1h\nc,k,1h\n", "schedule "+q+" --from - --format csv")
		run("", "schedule "+q+" d:k --in 1h --body text")
		c.die(t, q, "time out", "x:k", "y:k")
		run("", "cancel "+q+" a:k")
		run("", "reschedule "+q+" b:k --in 2h")
		run("", "run-now "+q+" b:k")
		run("", "get "+q+" d:k")
		run("", "list "+q)
		run("", "list "+q+" --state dead")
		run("", "stats "+q)
		run("", "settings "+q+" set retries=5")
		run("", "settings "+q)
		run("", "pause "+q)
		run("", "resume "+q)
		run("", "dead list "+q).has(t, "x:k", "y:k", "time out")
		run("", "dead requeue "+q+" x:k")
		run("", "dead delete "+q+" --all")
		run("", fmt.Sprintf("move %s %s:moved c:k d:k", q, q))
	}
	eventually(t, func() bool {
		all := run("", "queues").stdout
		return strings.Contains(all, "q0:moved") && strings.Count(all, "moved") == many
	})
	run("", "stats")
	for i := range many {
		run("", fmt.Sprintf("delete q%d --yes", i))
		run("", fmt.Sprintf("drain q%d --timeout 5s", i))
	}
	for _, node := range cluster.Nodes() {
		if n := node.Commands(t)["evalsha"]; n < many {
			t.Errorf("%s ran %d scripts: too few to mean anything", node.Addr(), n)
		}
		info, err := node.Client(t).InfoMap(t.Context(), "errorstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := info["Errorstats"]["errorstat_CROSSSLOT"]; ok {
			t.Errorf("%s answered CROSSSLOT: %s", node.Addr(), text)
		}
	}
}
