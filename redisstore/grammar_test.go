package redisstore_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dueq/dueq"
	"github.com/dueq/dueq/internal/redistest"
	"github.com/dueq/dueq/redisstore"
)

// pieces that members are put together from: what the grammar speaks of, and
// characters that are nearly something else.
var pieces = []string{
	":", ":", "#", ":p0", ":p5", ":p9", "p3", ":p", ":p10", ":P1", "p", ".", "..", "a", "order_1", "pay_timeout", "k", "-", "_", "0", "9",
	"é", "€", "𝄞", "\u00a0", "\u0085", "\u0080", "\u009f", "\u00ad", "\u1680", "\u180e", "\u2000", "\u200a", "\u200b", "\u2028", "\u2029", "\u202f",
	"\u205f", "\u2060", "\u3000", "\ufeff", "\ufffd", "\U0010ffff", "\ue000",
	" ", "\t", "\n", "\r", "\v", "\f", "\x00", "\x01", "\x1b", "\x1f", "\x7f", "~", "!", "%", "[", "]", "^", "$", "\\", "\"", "'", "{", "}", "/",
	"\xc3", "\xe2", "\xe2\x82", "\xf0\x9d\x84", "\x80", "\xbf", "\xa0", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xed\xbf\xbf",
	"\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xfe", "\xc2", "\xe1\x9a", "\xe2\x80",
}

func randomMember(random *rand.Rand) string {
	var b strings.Builder
	switch random.IntN(10) {
	case 0: // near the longest
		b.WriteString(strings.Repeat("x", 509+random.IntN(6)))
	case 1: // near the longest, of more than a byte each
		b.WriteString(strings.Repeat("é", 254+random.IntN(4)))
	case 2: // plain bytes
		for range 1 + random.IntN(8) {
			b.WriteByte(byte(random.IntN(256)))
		}
		return b.String()
	}
	for range random.IntN(6) {
		b.WriteString(pieces[random.IntN(len(pieces))])
	}
	return b.String()
}

func TestGrammar_claim_takes_the_members_that_ParseMember_reads_and_sets_the_others_aside(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{Timeout: 10 * time.Second})
	random := seeded(t)
	good, bad := 0, 0
	for batch := range 20 {
		queue := fmt.Sprintf("grammar:%d", batch)
		keys := keysOf(queue)
		members := map[string]bool{"": true} // whether it is one
		if batch == 0 {
			for _, piece := range pieces {
				for _, member := range []string{piece, "a" + piece, piece + "a", "a:k" + piece, "a:" + piece + "k", "a:k#" + piece, "a:k#t" + piece} {
					members[member] = true
				}
			}
		}
		for len(members) < 2000 {
			members[randomMember(random)] = true
		}
		var zs []redis.Z
		for member := range members {
			_, err := dueq.ParseMember(member)
			members[member] = err == nil
			zs = append(zs, redis.Z{Score: 1.7e12, Member: member})
		}
		must(t, raw.ZAdd(t.Context(), keys[keyScheduled], zs...).Err())
		claimed := map[string]bool{}
		for {
			c := claim(t, store, queue, dueq.MaxItems)
			for _, task := range c.Tasks {
				claimed[task.Lease.Member] = true
				if task.Member() != task.Lease.Member {
					t.Errorf("%q was read as %q", task.Lease.Member, task.Member())
				}
			}
			if len(c.Tasks) == 0 && c.Wait != 0 {
				break
			}
		}
		reasons, err := raw.HGetAll(t.Context(), keys[keyError]).Result()
		must(t, err)
		dead, err := raw.ZRange(t.Context(), keys[keyDead], 0, -1).Result()
		must(t, err)
		for _, member := range slices.Sorted(maps.Keys(members)) {
			isDead := slices.Contains(dead, member)
			switch _, err := dueq.ParseMember(member); {
			case members[member]:
				good++
				if !claimed[member] || isDead {
					t.Errorf("%q is a member, but it was set aside because it %s", member, reasons[member])
				}
			default:
				bad++
				if claimed[member] || !isDead || reasons[member] == "" {
					t.Errorf("%q is no member (%v): claimed %v, dead %v because %q", member, err, claimed[member], isDead, reasons[member])
				}
			}
		}
		if len(claimed)+len(dead) != len(members) {
			t.Errorf("%d claimed and %d dead of %d", len(claimed), len(dead), len(members))
		}
	}
	t.Logf("%d members, %d that are none", good, bad)
	if good < 1000 || bad < 1000 {
		t.Error("too few of one sort to mean anything")
	}
}

// A dead letter with a malformed member can be looked at, listed and deleted.
func TestGrammar_what_is_no_member_can_be_repaired(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	raw := srv.Client(t)
	store := openStore(t, srv.URL(), redisstore.Options{})
	for _, member := range []string{"a b", "a:", "\xff", "x\x00y", strings.Repeat("x", 600), "#", "a:p1:p2"} {
		must(t, raw.ZAdd(t.Context(), redisstore.DefaultPrefix+"bad", redis.Z{Score: 1.7e12, Member: member}).Err())
		claim(t, store, "bad", 10)
		infos, err := store.Get(t.Context(), "bad", []string{member})
		must(t, err)
		if infos[0].State != dueq.StateDead || infos[0].Malformed == nil || infos[0].LastError == "" || infos[0].Member != member {
			t.Errorf("%q: got %+v, want a malformed dead letter with its reason", member, infos[0])
		}
		page, err := store.List(t.Context(), dueq.ListQuery{Queue: "bad", State: dueq.StateDead})
		must(t, err)
		if len(page.Tasks) != 1 || page.Tasks[0].Member != member {
			t.Errorf("%q: listed %+v", member, page.Tasks)
		}
		o, err := store.Change(t.Context(), "bad", dueq.OpDelete, []dueq.Target{{Member: member}})
		must(t, err)
		if o[0].Status != dueq.StatusDone {
			t.Errorf("%q: delete: got %v", member, o[0].Status)
		}
	}
}
