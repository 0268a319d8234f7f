package push

import (
	"context"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dueq/dueq"
)

func TestAddressesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.9.9.9",
		"169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1",
		"198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "3fff::1",
		"2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", "100::1", "5f00::1", "64:ff9b:1::1", "fd00:ec2::254",
		"::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
		"64:ff9b::127.0.0.1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:c0a8:101::1",
	} {
		if err := (Options{}).control("tcp", net.JoinHostPort(text, "443"), nil); err == nil || !strings.Contains(err.Error(), "unless it is allowed") {
			t.Errorf("%s: %v, want a refusal", text, err)
		}
	}
	for _, text := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.1", "100.63.255.255", "100.128.0.1", "126.1.1.1", "128.0.0.1", "169.253.1.1", "169.255.0.1",
		"172.15.255.255", "172.32.0.1", "192.167.0.1", "192.169.0.1", "198.17.0.1", "198.20.0.1", "223.255.255.255",
		"2001:4860:4860::8888", "2606:4700::1111", "2a00::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1",
	} {
		if err := (Options{}).control("tcp", net.JoinHostPort(text, "80"), nil); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	allow := Options{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/8"), netip.MustParsePrefix("fe80::/10")}}
	for text, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd12::1": true, "fe80::1%eth0": true, "10.2.0.1": false, "fc00::1": false, "1.1.1.1": true,
	} {
		if err := allow.control("tcp", net.JoinHostPort(text, "80"), nil); (err == nil) != want {
			t.Errorf("%s with networks allowed: %v", text, err)
		}
	}
	for _, text := range []string{"", "name:80", "1.2.3.4"} {
		if err := (Options{}).control("tcp", text, nil); err == nil {
			t.Errorf("%q was allowed", text)
		}
	}
}

func TestPrivateAddressesAreNotPushedTo(t *testing.T) {
	t.Parallel()
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	for name, c := range map[string]struct {
		host    string // instead of the receiver's
		answers []string
		allow   []netip.Prefix
		arrives bool
	}{
		"an address":                                     {host: "127.0.0.1"},
		"an address in IPv6":                             {host: "[::ffff:127.0.0.1]"},
		"a name that resolves to one":                    {host: "hooks.example", answers: []string{"127.0.0.1"}},
		"a name that resolves to several":                {host: "hooks.example", answers: []string{"10.0.0.1", "192.168.0.1", "127.0.0.1"}},
		"one that is allowed":                            {host: "127.0.0.1", allow: []netip.Prefix{loopback}, arrives: true},
		"a name of which one that is tried is allowed":   {host: "hooks.example", answers: []string{"10.0.0.1", "127.0.0.1"}, allow: []netip.Prefix{loopback}, arrives: true},
		"a name of which none that is tried is allowed":  {host: "hooks.example", answers: []string{"10.0.0.1", "192.168.0.1"}, allow: []netip.Prefix{loopback}},
		"a name of which the other network is not meant": {host: "hooks.example", answers: []string{"127.0.0.1"}, allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}},
	} {
		onMemory(t, name, func(t *testing.T, store dueq.Store) {
			rec := receive(t, nil)
			_, port, _ := net.SplitHostPort(rec.Listener.Addr().String())
			set(t, store, "q", quick("http://"+c.host+":"+port+"/hook", "retries", "1"))
			start(t, store, Options{Unsigned: true, Allow: c.allow, resolver: resolver(func() []string { return c.answers })})
			schedule(t, store, "q", dueq.Task{ID: "t"})
			if c.arrives {
				awaitAcked(t, store, "q", 1)
				return
			}
			info := awaitDead(t, store, "q", "t")
			wantError(t, info, "nothing is pushed there unless it is allowed")
			if info.Failures != 2 {
				t.Errorf("%d failures, want 2: names may resolve otherwise later", info.Failures)
			}
			if n := len(rec.all()); n != 0 {
				t.Errorf("%d requests arrived", n)
			}
		})
	}
	onMemory(t, "a name that resolves to one the second time", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, _ *http.Request, _ int) { w.Header().Set("Connection", "close") })
		_, port, _ := net.SplitHostPort(rec.Listener.Addr().String())
		set(t, store, "q", quick("http://hooks.example:"+port, "retries", "0"))
		var mu sync.Mutex
		address := "127.0.0.1"
		now := func() []string {
			mu.Lock()
			defer mu.Unlock()
			return []string{address}
		}
		start(t, store, Options{Unsigned: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, resolver: resolver(now)})
		schedule(t, store, "q", dueq.Task{ID: "first"})
		awaitAcked(t, store, "q", 1)
		mu.Lock()
		address = "127.0.0.2"
		mu.Unlock()
		schedule(t, store, "q", dueq.Task{ID: "t"})
		wantError(t, awaitDead(t, store, "q", "t"), "address 127.0.0.2 is loopback")
		if n := len(rec.all()); n != 1 {
			t.Errorf("%d requests arrived, want the first", n)
		}
	})
}

// resolver resolves every name to the addresses, over a DNS server of its own.
func resolver(addresses func() []string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go serveDNS(theirs, addresses)
		return ours, nil
	}}
}

// serveDNS answers queries as they are sent over a stream: each after its
// length in two bytes.
func serveDNS(conn net.Conn, addresses func() []string) {
	defer conn.Close()
	for {
		var size uint16
		if binary.Read(conn, binary.BigEndian, &size) != nil {
			return
		}
		query := make([]byte, size)
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		reply := answerDNS(query, addresses())
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}

// answerDNS answers a question for addresses of IPv4, and any other with none.
func answerDNS(query []byte, addresses []string) []byte {
	const header, typeA = 12, 1
	end := header
	for query[end] != 0 {
		end += int(query[end]) + 1
	}
	end += 5 // the root, type and class
	reply := append([]byte{}, query[:end]...)
	binary.BigEndian.PutUint16(reply[2:], 0x8180) // an answer without error
	clear(reply[6:header])
	if binary.BigEndian.Uint16(query[end-4:]) != typeA {
		return reply
	}
	binary.BigEndian.PutUint16(reply[6:], uint16(len(addresses)))
	for _, address := range addresses {
		ip := netip.MustParseAddr(address).As4()
		reply = append(reply, 0xc0, header, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // the name asked for, for 0 s
		reply = append(reply, ip[:]...)
	}
	return reply
}

func TestReceiversThatFail(t *testing.T) {
	t.Parallel()
	onMemory(t, "a hanging one holds up no other, and no more than its slots", func(t *testing.T, store dueq.Store) {
		hanging, good := receive(t, hang), receive(t, nil)
		set(t, store, "hanging", quick(hanging.URL, "retries", "0", "timeout", "300ms", "concurrency", "3"))
		set(t, store, "good", quick(good.URL))
		var slots gauge
		start(t, store, Options{AllowPrivate: true, Unsigned: true, Observer: slots.of("hanging")})
		for i := range 9 {
			schedule(t, store, "hanging", dueq.Task{ID: fmt.Sprint(i)})
		}
		hanging.await(t, 3)
		for i := range 50 {
			schedule(t, store, "good", dueq.Task{ID: fmt.Sprint(i)})
		}
		awaitAcked(t, store, "good", 50)
		for i := range 9 {
			wantError(t, awaitDead(t, store, "hanging", fmt.Sprint(i)), "no answer within ")
		}
		slots.mu.Lock()
		defer slots.mu.Unlock()
		if slots.most != 3 {
			t.Errorf("%d deliveries at the same time, want 3", slots.most)
		}
	})
	onMemory(t, "the option for a time-out is within the queue's", func(t *testing.T, store dueq.Store) {
		rec := receive(t, hang)
		set(t, store, "q", quick(rec.URL, "retries", "0", "timeout", "1m"))
		start(t, store, Options{AllowPrivate: true, Unsigned: true, Timeout: 100 * time.Millisecond})
		schedule(t, store, "q", dueq.Task{ID: "t"})
		wantError(t, awaitDead(t, store, "q", "t"), "no answer within ")
	})
	onMemory(t, "one that breaks the connection is asked again", func(t *testing.T, store dueq.Store) {
		rec := receive(t, func(w http.ResponseWriter, r *http.Request, n int) {
			if n == 1 {
				reset(w, r, n)
			}
		})
		set(t, store, "q", quick(rec.URL))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		awaitAcked(t, store, "q", 1)
	})
	onMemory(t, "one that is not there", func(t *testing.T, store dueq.Store) {
		rec := receive(t, nil)
		rec.Close()
		set(t, store, "q", quick(rec.URL+"/?token=tell-nobody", "retries", "0"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		info := awaitDead(t, store, "q", "t")
		wantError(t, info, "connection refused")
		if strings.Contains(info.LastError, "tell-nobody") {
			t.Errorf("the error tells the address: %s", info.LastError)
		}
	})
	onMemory(t, "one that does not speak HTTP", func(t *testing.T, store dueq.Store) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		go func() {
			for conn, err := listener.Accept(); err == nil; conn, err = listener.Accept() {
				_, _ = conn.Read(make([]byte, 1))
				_, _ = conn.Write([]byte("\x1b[2J220 mail ready\r\n"))
				_ = conn.Close()
			}
		}()
		set(t, store, "q", quick("http://"+listener.Addr().String(), "retries", "0"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		wantError(t, awaitDead(t, store, "q", "t"), firstDuePrefix)
	})
}

// gauge is how many deliveries of a queue are under way.
type gauge struct {
	mu        sync.Mutex // guards what follows
	now, most int
}

func (g *gauge) of(queue string) dueq.Observer {
	add := func(t *dueq.Task, n int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if t.Queue == queue {
			g.now += n
			g.most = max(g.most, g.now)
		}
	}
	return dueq.Observer{
		Started: func(t *dueq.Task, _ time.Duration) { add(t, 1) },
		Ended:   func(t *dueq.Task, _ dueq.Verdict, _ time.Duration, _ error) { add(t, -1) },
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	secure := func(t *testing.T) (*receiver, *x509.CertPool) {
		rec := newReceiver(nil)
		rec.EnableHTTP2 = true
		rec.StartTLS()
		t.Cleanup(rec.Close)
		pool := x509.NewCertPool()
		pool.AddCert(rec.Certificate())
		return rec, pool
	}
	onMemory(t, "delivers over HTTP/2 to who has a certificate", func(t *testing.T, store dueq.Store) {
		rec, pool := secure(t)
		set(t, store, "q", quick(rec.URL))
		start(t, store, Options{AllowPrivate: true, RootCAs: pool, Secrets: func(string) []string { return []string{secretOf('a')} }})
		for i := range 20 {
			schedule(t, store, "q", dueq.Task{ID: fmt.Sprint(i), Body: []byte("{}")})
		}
		awaitAcked(t, store, "q", 20)
		for _, got := range rec.all() {
			verify(t, got, secretOf('a'), true)
			if got.proto != 2 {
				t.Errorf("HTTP/%d", got.proto)
			}
		}
	})
	onMemory(t, "sends nothing to who has none", func(t *testing.T, store dueq.Store) {
		rec, _ := secure(t)
		set(t, store, "q", quick(rec.URL, "retries", "0"))
		start(t, store, anywhere)
		schedule(t, store, "q", dueq.Task{ID: "t"})
		wantError(t, awaitDead(t, store, "q", "t"), "certificate")
		if n := len(rec.all()); n != 0 {
			t.Errorf("%d requests arrived", n)
		}
	})
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	opened := 0
	rec := newReceiver(status(200, strings.Repeat("thank you\n", 1000)))
	rec.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		mu.Lock()
		defer mu.Unlock()
		if state == http.StateNew {
			opened++
		}
	}
	rec.Start()
	t.Cleanup(rec.Close)
	store := inMemory(t)
	set(t, store, "q", quick(rec.URL, "concurrency", "2"))
	start(t, store, anywhere)
	for i := range 100 {
		schedule(t, store, "q", dueq.Task{ID: fmt.Sprint(i)})
	}
	awaitAcked(t, store, "q", 100)
	mu.Lock()
	defer mu.Unlock()
	if opened > 10 {
		t.Errorf("%d connections for 100 deliveries by 2 at a time", opened)
	}
}

func TestProxy(t *testing.T) {
	t.Parallel()
	if newClient(Options{}).Transport.(*http.Transport).Proxy != nil {
		t.Error("there is a proxy that nobody asked for")
	}
	for allowed, want := range map[bool]int{true: 1, false: 0} {
		onMemory(t, fmt.Sprintf("is used where it is asked for, its address allowed: %v", allowed), func(t *testing.T, store dueq.Store) {
			proxy := receive(t, nil)
			address, _ := url.Parse(proxy.URL)
			set(t, store, "q", quick("http://hooks.example/hook", "retries", "0"))
			start(t, store, Options{Unsigned: true, AllowPrivate: allowed, Proxy: http.ProxyURL(address)})
			schedule(t, store, "q", dueq.Task{ID: "t"})
			if allowed {
				awaitAcked(t, store, "q", 1)
			} else {
				wantError(t, awaitDead(t, store, "q", "t"), "unless it is allowed")
			}
			if got := proxy.all(); len(got) != want || want == 1 && got[0].host != "hooks.example" {
				t.Errorf("the proxy saw %+v", got)
			}
		})
	}
}
