package redistest

import (
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// behindProxy returns a server, a proxy before it and a client of the proxy that
// sends everything once.
func behindProxy(t *testing.T) (*Server, *Proxy, *redis.Client) {
	t.Helper()
	s := Start(t)
	p := StartProxy(t, s.Addr())
	return s, p, clientOf(t, p, 3)
}

func clientOf(t *testing.T, p *Proxy, protocol int) *redis.Client {
	t.Helper()
	c := redis.NewClient(&redis.Options{
		Addr: p.Addr(), MaxRetries: -1, Protocol: protocol, DisableIdentity: true,
		DialerRetries:            1,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestProxyForwards(t *testing.T) {
	t.Parallel()

	t.Run("commands_pipelines_and_nested_replies", func(t *testing.T) {
		t.Parallel()
		_, _, c := behindProxy(t)
		mustSet(t, c, "binary", "a\r\n$3\r\nb")
		mustGet(t, c, "binary", "a\r\n$3\r\nb")
		mustSet(t, c, "large", strings.Repeat("x", 1<<20))
		mustGet(t, c, "large", strings.Repeat("x", 1<<20))
		got, err := c.Eval(t.Context(), "return {1, {'two', {}, false}, {ok = 'three'}}", nil).Slice()
		if err != nil || len(got) != 3 {
			t.Errorf("nested reply: got %v, %v", got, err)
		}
		if err := c.HSet(t.Context(), "hash", "a", 1).Err(); err != nil {
			t.Fatal(err)
		}
		if got := c.HGetAll(t.Context(), "hash").Val(); got["a"] != "1" {
			t.Errorf("map: got %v", got)
		}
		cmds, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for range 1000 {
				pipe.Incr(t.Context(), "n")
			}
			return nil
		})
		if err != nil || cmds[999].(*redis.IntCmd).Val() != 1000 {
			t.Errorf("pipeline: got %v, %v, want 1000", cmds[999], err)
		}
	})

	for protocol, name := range map[int]string{2: "messages_in_RESP2", 3: "messages_in_RESP3"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, _ := behindProxy(t)
			sub := clientOf(t, p, protocol).Subscribe(t.Context(), "a", "b")
			defer sub.Close()
			mustReceive(t, sub, "subscribe")
			mustReceive(t, sub, "subscribe")
			if err := s.Client(t).Publish(t.Context(), "b", "hello").Err(); err != nil {
				t.Fatal(err)
			}
			if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "hello" {
				t.Errorf("message: got %v, %v, want hello", m, err)
			}
			if err := sub.Ping(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			if v, err := sub.Receive(t.Context()); err != nil {
				t.Errorf("PING while subscribed: got %v, %v", v, err)
			}
		})
	}

	t.Run("every_type_of_RESP3", func(t *testing.T) {
		t.Parallel()
		s := Start(t, WithConfig("enable-debug-command", "yes"))
		p := StartProxy(t, s.Addr())
		for _, kind := range strings.Fields("string integer double null array set map attrib push verbatim true false bignum") {
			commands := "HELLO 3;DEBUG PROTOCOL " + kind + ";PING"
			direct, err := net.Dial("tcp", s.Addr())
			if err != nil {
				t.Fatal(err)
			}
			want := afterHello(t, direct, commands)
			if got := afterHello(t, mustDial(t, p), commands); got != want {
				t.Errorf("%s: got %q, want %q", kind, got, want)
			}
		}
	})

	t.Run("the_end_of_the_server", func(t *testing.T) {
		t.Parallel()
		s, p, c := behindProxy(t)
		mustSet(t, c, "a", "1")
		conn := mustDial(t, p)
		mustExchange(t, conn, "GET a", "$1\r\n1\r\n")
		s.Kill()
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after the server's end: got %v, want the connection closed", err)
		}
		s.Restart()
		mustSet(t, clientOf(t, p, 3), "a", "2")
	})
}

// afterHello returns what comes between the reply to HELLO, which tells the
// connection's number, and the reply to PING.
func afterHello(t *testing.T, conn net.Conn, commands string) string {
	t.Helper()
	defer conn.Close()
	mustExchange(t, conn, commands, "")
	_, after, _ := strings.Cut(mustReadThrough(t, conn, "+PONG\r\n"), "modules\r\n")
	return after
}

// mustReadThrough reads until what came ends with end, and returns it.
func mustReadThrough(t *testing.T, conn net.Conn, end string) string {
	t.Helper()
	var all []byte
	for !strings.HasSuffix(string(all), end) {
		chunk := make([]byte, 4096)
		n, err := conn.Read(chunk)
		if err != nil {
			t.Fatalf("after %q: %v", all, err)
		}
		all = append(all, chunk[:n]...)
	}
	return string(all)
}

func mustReceive(t *testing.T, sub *redis.PubSub, kind string) {
	t.Helper()
	v, err := sub.Receive(t.Context())
	if got, ok := v.(*redis.Subscription); err != nil || !ok || got.Kind != kind {
		t.Fatalf("got %v, %v, want %s", v, err, kind)
	}
}

// mustDial returns a plain connection to the proxy with a deadline.
func mustDial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	return conn
}

// mustExchange sends the commands at once and wants exactly these replies.
func mustExchange(t *testing.T, conn net.Conn, commands, want string) {
	t.Helper()
	var text string
	for command := range strings.SplitSeq(commands, ";") {
		text += encode(strings.Fields(command))
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("%s: got %q, %v, want %q", commands, got[:n], err, want)
	}
}

// mustBeSilent fails if anything comes, the end of the connection included.
func mustBeSilent(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d bytes, %v, want silence", n, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Second))
}

func mustBeClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %d bytes, %v, want the connection closed", n, err)
	}
}

func TestProxyFault(t *testing.T) {
	t.Parallel()

	t.Run("cuts_before_the_command_or_after_it", func(t *testing.T) {
		t.Parallel()
		s, p, c := behindProxy(t)
		for action, want := range map[Action]string{CutBefore: "0", CutAfter: "1"} {
			mustSet(t, s.Client(t), "n", "0")
			p.SetFault(Next(1, action, "incr"))
			if err := c.Incr(t.Context(), "n").Err(); err == nil {
				t.Errorf("%+v: INCR was answered", action)
			}
			mustGet(t, s.Client(t), "n", want)
			mustGet(t, c, "n", want)
		}
	})

	t.Run("mutes_before_the_command_or_after_it", func(t *testing.T) {
		t.Parallel()
		s, p, _ := behindProxy(t)
		for action, want := range map[Action]string{MuteBefore: "0", MuteAfter: "1"} {
			mustSet(t, s.Client(t), "n", "0")
			p.SetFault(Next(1, action, "incr"))
			conn := mustDial(t, p)
			mustExchange(t, conn, "PING;INCR n;INCR n", "+PONG\r\n")
			mustBeSilent(t, conn)
			direct := s.Client(t)
			eventually(t, "INCR", func() bool { return direct.Get(t.Context(), "n").Val() == want })
		}
	})

	t.Run("answers_the_next_commands_of_a_name", func(t *testing.T) {
		t.Parallel()
		s, p, c := behindProxy(t)
		p.SetFault(Next(2, Answer("-LOADING Redis is loading"), "EVALSHA", "eval"))
		for i, want := range []string{"LOADING", "LOADING", ""} {
			err := c.Eval(t.Context(), "return redis.call('INCR', KEYS[1])", []string{"n"}).Err()
			if (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
				t.Errorf("EVAL %d: got %v, want %s", i, err, want)
			}
			mustSet(t, c, "a", "1")
		}
		mustGet(t, s.Client(t), "n", "1")
	})

	t.Run("keeps_the_order_of_a_pipeline", func(t *testing.T) {
		t.Parallel()
		s, p, _ := behindProxy(t)
		p.SetFault(func(cmd []string) Action {
			switch cmd[0] {
			case "GET":
				return Answer("-READONLY no")
			case "APPEND":
				return CutAfter
			}
			return Pass
		})
		conn := mustDial(t, p)
		mustExchange(t, conn, "GET a;SET a 1;GET a;INCR a;APPEND a 0;SET a 9",
			"-READONLY no\r\n+OK\r\n-READONLY no\r\n:2\r\n")
		mustBeClosed(t, conn)
		mustGet(t, s.Client(t), "a", "20")
	})

	t.Run("meets_subscriptions_too", func(t *testing.T) {
		t.Parallel()
		_, p, _ := behindProxy(t)
		p.SetFault(Next(1, CutAfter, "subscribe"))
		conn := mustDial(t, p)
		mustExchange(t, conn, "PING;SUBSCRIBE a b", "+PONG\r\n")
		mustBeClosed(t, conn)
		conn = mustDial(t, p)
		mustExchange(t, conn, "SUBSCRIBE a", "*3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
	})

	t.Run("does_not_take_a_message_for_a_reply", func(t *testing.T) {
		t.Parallel()
		s, p, _ := behindProxy(t)
		for protocol, kind := range map[string]string{"2": "*3", "3": ">3"} {
			conn := mustDial(t, p)
			mustExchange(t, conn, "HELLO "+protocol+";SUBSCRIBE a", "")
			mustReadThrough(t, conn, "$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n")
			p.SetFault(Next(1, CutAfter, "ping"))
			p.SetDelay(500*time.Millisecond, 0)
			mustExchange(t, conn, "PING", "")
			if err := s.Client(t).Publish(t.Context(), "a", "hello").Err(); err != nil {
				t.Fatal(err)
			}
			mustExchange(t, conn, "PING", kind+"\r\n$7\r\nmessage\r\n$1\r\na\r\n$5\r\nhello\r\n")
			mustBeClosed(t, conn)
			p.SetDelay(0, 0)
		}
	})

	t.Run("makes_one_command_late", func(t *testing.T) {
		t.Parallel()
		_, p, _ := behindProxy(t)
		const late = 200 * time.Millisecond
		for _, action := range []Action{Late(late, 0), Late(0, late)} {
			p.SetFault(Next(1, action, "get"))
			conn, other := mustDial(t, p), mustDial(t, p)
			began := time.Now()
			mustExchange(t, conn, "GET a", "")
			mustExchange(t, conn, "PING", "$-1\r\n+PONG\r\n")
			if took := time.Since(began); took < late {
				t.Errorf("took %v, want %v at least", took, late)
			}
			mustExchange(t, other, "GET a", "$-1\r\n")
		}
	})

	t.Run("ends_with_nil", func(t *testing.T) {
		t.Parallel()
		_, p, c := behindProxy(t)
		p.SetFault(func([]string) Action { return CutBefore })
		if err := c.Ping(t.Context()).Err(); err == nil {
			t.Error("PING was answered, want it cut")
		}
		p.SetFault(nil)
		mustSet(t, c, "a", "1")
	})
}

func TestProxyNetwork(t *testing.T) {
	t.Parallel()

	t.Run("delays_either_direction_once_for_a_whole_pipeline", func(t *testing.T) {
		t.Parallel()
		_, p, _ := behindProxy(t)
		const delay = 200 * time.Millisecond
		for _, delays := range [][2]time.Duration{{delay, 0}, {0, delay}, {delay / 2, delay / 2}} {
			conn := mustDial(t, p)
			mustExchange(t, conn, "PING", "+PONG\r\n")
			p.SetDelay(delays[0], delays[1])
			began := time.Now()
			mustExchange(t, conn, strings.Repeat("PING;", 50)+"PING", strings.Repeat("+PONG\r\n", 51))
			if took := time.Since(began); took < delay || took > 25*delay {
				t.Errorf("%v: took %v, want %v or a little more", delays, took, delay)
			}
			p.SetDelay(0, 0)
		}
	})

	t.Run("lets_a_late_request_arrive_though_the_client_has_gone", func(t *testing.T) {
		t.Parallel()
		s, p, c := behindProxy(t)
		mustSet(t, c, "a", "1")
		direct := s.Client(t)
		mustGet(t, direct, "a", "1")
		p.SetDelay(time.Second, 0)
		conn := mustDial(t, p)
		mustExchange(t, conn, "SET a 2", "")
		_ = conn.Close()
		mustGet(t, direct, "a", "1")
		eventually(t, "the late SET", func() bool { return direct.Get(t.Context(), "a").Val() == "2" })
	})

	t.Run("mutes_old_and_new_connections_without_ending_them", func(t *testing.T) {
		t.Parallel()
		s, p, _ := behindProxy(t)
		old := mustDial(t, p)
		mustExchange(t, old, "PING", "+PONG\r\n")
		p.Mute()
		fresh := mustDial(t, p)
		for _, conn := range []net.Conn{old, fresh} {
			mustExchange(t, conn, "SET a 1", "")
			mustBeSilent(t, conn)
		}
		s.Restart()
		p.Unmute()
		mustBeSilent(t, old)
		mustBeSilent(t, fresh)
		mustExchange(t, mustDial(t, p), "GET a", "$-1\r\n")
		p.Cut()
		mustBeClosed(t, old)
		mustBeClosed(t, fresh)
	})

	t.Run("refuses_new_connections_and_keeps_the_old", func(t *testing.T) {
		t.Parallel()
		_, p, _ := behindProxy(t)
		old := mustDial(t, p)
		p.Refuse()
		if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial: got %v, want ECONNREFUSED", err)
		}
		mustExchange(t, old, "PING", "+PONG\r\n")
		p.Accept()
		mustExchange(t, mustDial(t, p), "PING", "+PONG\r\n")
	})

	t.Run("swaps_roles_behind_one_address", func(t *testing.T) {
		t.Parallel()
		master := Start(t)
		replica := Start(t, WithReplicaOf(master))
		p := StartProxy(t, master.Addr())
		old := mustDial(t, p)
		mustExchange(t, old, "SET a 1;WAIT 1 0", "+OK\r\n:1\r\n")
		replica.Promote()
		master.Follow(replica)
		p.SetTarget(replica.Addr())
		fresh := mustDial(t, p)
		mustExchange(t, fresh, "SET a 2;GET a", "+OK\r\n$1\r\n2\r\n")
		mustExchange(t, old, "SET a 3", "-READONLY")
		p.Cut()
		mustBeClosed(t, fresh)
		mustExchange(t, mustDial(t, p), "GET a", "$1\r\n2\r\n")
	})

	t.Run("closes_the_connection_if_nothing_listens_at_the_target", func(t *testing.T) {
		t.Parallel()
		s, p, _ := behindProxy(t)
		s.Kill()
		mustBeClosed(t, mustDial(t, p))
	})
}

func TestProxyLeavesNoGoroutine(t *testing.T) {
	t.Run("whatever_state_connections_are_in", func(t *testing.T) {
		s, p, c := behindProxy(t)
		mustSet(t, c, "a", "1")
		p.SetFault(Next(1, MuteAfter, "incr"))
		mustExchange(t, mustDial(t, p), "INCR a", "")
		mustExchange(t, mustDial(t, p), "BLPOP list 0", "")
		p.SetDelay(time.Hour, time.Hour)
		mustExchange(t, mustDial(t, p), "PING", "")
		p.Mute()
		mustExchange(t, mustDial(t, p), "PING", "")
		s.Pause()
		p.Unmute()
		mustExchange(t, mustDial(t, p), "PING", "")
	})
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, name := range []string{"redistest.(*Proxy)", "redistest.(*proxyConn)"} {
		if strings.Contains(string(stacks), name) {
			t.Errorf("goroutines are left:\n%s", stacks)
		}
	}
}
