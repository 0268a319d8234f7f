package redistest

import (
	"strings"
	"testing"
	"time"
)

// await polls until holds, and ends the test with the logs of the servers if it
// does not come to hold.
func await(t testing.TB, what string, servers []*Server, holds func() bool) {
	t.Helper()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !holds() {
		select {
		case <-timeout.C:
			t.Fatalf("redistest: waited %v in vain for %s\n%s", startTimeout, what, logTails(servers))
		case <-tick.C:
		}
	}
}

func logTails(servers []*Server) string {
	var b strings.Builder
	for _, s := range servers {
		b.WriteString("log of " + s.Addr() + ":\n" + s.logTail() + "\n")
	}
	return b.String()
}

// alive returns those of the servers that can answer.
func alive(servers []*Server) []*Server {
	var answering []*Server
	for _, s := range servers {
		if s.process().runs() {
			answering = append(answering, s)
		}
	}
	return answering
}
