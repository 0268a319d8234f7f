package redistest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a loopback address that stands for a Redis server's and breaks what
// passes. It speaks plain RESP2 and RESP3, not TLS and not replication. Its
// methods are safe from any goroutine.
type Proxy struct {
	t      testing.TB
	addr   string
	ctx    context.Context // ends with the test
	routes sync.WaitGroup  // goroutines of the proxy

	asking sync.Mutex // held while a Fault decides

	mu       sync.Mutex // guards what follows
	target   string
	fault    Fault
	delay    [2]time.Duration // of requests, of replies
	mute     bool
	listener net.Listener // nil while it refuses
	conns    map[*proxyConn]struct{}
}

// StartProxy listens on a free loopback port and forwards what comes to the
// target address. It ends, with its connections, when the test ends.
func StartProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{t: t, ctx: ctx, target: target, conns: make(map[*proxyConn]struct{})}
	t.Cleanup(func() {
		cancel()
		p.Refuse()
		p.Cut()
		p.routes.Wait()
	})
	port, err := freePort()
	if err != nil {
		t.Fatalf("redistest: start proxy: %v", err)
	}
	p.addr = loopback(port)
	p.Accept()
	return p
}

// Addr returns the proxy's address as 127.0.0.1:port.
func (p *Proxy) Addr() string { return p.addr }

// URL returns the proxy's address as redis://127.0.0.1:port.
func (p *Proxy) URL() string { return newURL("redis", p.addr, "").String() }

// SetTarget forwards connections made from now on to another address. Those that
// are open keep theirs; Cut ends them.
func (p *Proxy) SetTarget(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = addr
}

// SetFault asks fault about every command from now on; nil passes all.
func (p *Proxy) SetFault(fault Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault
}

// SetDelay makes what is sent from now on arrive later by the given times. A
// request still arrives if the client has hung up meanwhile.
func (p *Proxy) SetDelay(request, reply time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = [2]time.Duration{request, reply}
}

// Cut closes all connections, also muted ones. What is on its way is lost.
func (p *Proxy) Cut() {
	for _, c := range p.open() {
		c.close()
	}
}

// Mute silences all connections for good, and those made from now on until
// Unmute: they stay open and swallow what is sent. What is on its way is lost.
func (p *Proxy) Mute() {
	p.setMute(true)
	for _, c := range p.open() {
		c.silent.Store(true)
	}
}

// Unmute lets connections made from now on work again. Cut ends the silent ones,
// if their clients do not.
func (p *Proxy) Unmute() { p.setMute(false) }

func (p *Proxy) setMute(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

// Refuse makes new connections fail at once. Open ones stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Accept undoes Refuse.
func (p *Proxy) Accept() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	listener, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Errorf("redistest: proxy: %v", err)
		return
	}
	p.listener = listener
	p.routes.Go(func() { p.serve(listener) })
}

func (p *Proxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		c := newProxyConn(p, client)
		if p.ctx.Err() != nil {
			c.close()
			return
		}
		p.routes.Go(c.run)
	}
}

func (p *Proxy) open() []*proxyConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	open := make([]*proxyConn, 0, len(p.conns))
	for c := range p.conns {
		open = append(open, c)
	}
	return open
}

func (p *Proxy) goal() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

func (p *Proxy) decide(cmd []string) Action {
	p.mu.Lock()
	fault := p.fault
	p.mu.Unlock()
	if fault == nil {
		return Pass
	}
	p.asking.Lock()
	defer p.asking.Unlock()
	return fault(cmd)
}

// due returns when what was sent now arrives.
func (p *Proxy) due(d direction) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Add(p.delay[d])
}
