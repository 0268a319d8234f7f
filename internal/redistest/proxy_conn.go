package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

type direction int

const (
	request direction = iota
	reply
)

// proxyConn is one client's connection through a proxy. Beside run, which reads
// requests, one goroutine reads replies and one delivers each.
type proxyConn struct {
	p      *Proxy
	ctx    context.Context // ends when the connection is to end
	cancel context.CancelFunc
	client net.Conn
	lines  [2]chan parcel
	silent atomic.Bool // nothing is delivered any more

	mu         sync.Mutex // guards what follows and the order of parcels
	server     net.Conn   // nil until dialled
	awaited    []awaited  // commands whose turn to be answered has not come
	subscribed bool
}

type awaited struct {
	Action
	subscription bool // answered out of band
}

// parcel is handed over when it is due: text, or an end.
type parcel struct {
	text []byte
	end  ending
	late time.Duration // beyond the delay of all
	due  time.Time     // set by send
}

// onTheWay bounds the parcels of one direction; beyond it reading waits.
const onTheWay = 10_000

func newProxyConn(p *Proxy, client net.Conn) *proxyConn {
	c := &proxyConn{p: p, client: client}
	c.ctx, c.cancel = context.WithCancel(p.ctx)
	for d := range c.lines {
		c.lines[d] = make(chan parcel, onTheWay)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c.silent.Store(p.mute)
	p.conns[c] = struct{}{}
	return c
}

// run serves the connection until it has ended.
func (c *proxyConn) run() {
	defer c.forget()
	if c.silent.Load() {
		_, _ = io.Copy(io.Discard, c.client)
		return
	}
	server, err := c.dial()
	if err != nil {
		return
	}
	replied := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { defer close(replied); c.readReplies(server) })
	group.Go(func() { c.deliver(request, server) })
	group.Go(func() { c.deliver(reply, c.client) })
	c.readRequests()
	<-replied
	c.close()
	group.Wait()
}

func (c *proxyConn) dial() (net.Conn, error) {
	dialer := net.Dialer{Timeout: askTimeout}
	server, err := dialer.DialContext(c.ctx, "tcp", c.p.goal())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server = server
	return server, c.ctx.Err()
}

// close ends the connection at once, whatever is on its way. It cancels first,
// so that nobody who holds the mutex waits for room.
func (c *proxyConn) close() {
	c.cancel()
	_ = c.client.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server != nil {
		_ = c.server.Close()
	}
}

func (c *proxyConn) forget() {
	c.close()
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	delete(c.p.conns, c)
}

// readRequests returns when the client has gone. What it sent is delivered all
// the same: that it no longer waits does not stop the network.
func (c *proxyConn) readRequests() {
	requests := newRespReader(c.client)
	err := c.takeAll(requests)
	if errors.Is(err, errProtocol) {
		c.p.t.Logf("redistest: proxy: request: %v", err)
		c.close()
	}
	_, _ = io.Copy(io.Discard, requests.in)
	c.send(request, parcel{end: closed})
}

// takeAll takes commands until the connection ends or an action ends it.
func (c *proxyConn) takeAll(requests *respReader) error {
	for {
		v, err := requests.next()
		if err != nil || c.silent.Load() {
			return err
		}
		cmd := v.strings()
		if len(cmd) == 0 {
			continue
		}
		action := c.p.decide(cmd)
		c.take(cmd[0], requests.raw, action)
		if action.end != none {
			return nil
		}
	}
}

func (c *proxyConn) take(name string, text []byte, action Action) {
	c.mu.Lock()
	defer c.mu.Unlock()
	subscription := strings.HasSuffix(strings.ToLower(name), "subscribe")
	c.subscribed = c.subscribed || subscription
	c.awaited = append(c.awaited, awaited{action, subscription})
	if !action.hold {
		c.send(request, parcel{text: text, late: action.late[request]})
	}
	c.answerHeld()
}

// answerHeld answers the commands whose turn has come and that no reply of the
// server's will answer.
func (c *proxyConn) answerHeld() {
	for len(c.awaited) > 0 && c.awaited[0].hold {
		c.answer([]byte(c.awaited[0].reply))
	}
}

// answer answers the command whose turn it is.
func (c *proxyConn) answer(text []byte) {
	c.send(reply, parcel{text: text, end: c.awaited[0].end, late: c.awaited[0].late[reply]})
	c.awaited = slices.Delete(c.awaited, 0, 1)
}

func (c *proxyConn) readReplies(server net.Conn) {
	replies := newRespReader(server)
	for {
		v, err := replies.next()
		if err != nil {
			break
		}
		c.pass(v, replies.raw)
	}
	c.send(reply, parcel{end: closed})
}

// pass passes on what the server sent, a reply or something out of band.
func (c *proxyConn) pass(v value, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.awaited) == 0 || c.outOfBand(v) && !c.awaited[0].confirmedBy(v) {
		c.send(reply, parcel{text: text})
		return
	}
	c.answer(text)
	c.answerHeld()
}

// outOfBand reports whether a value answers no command, or a subscription. RESP2
// has no type for that, so there the first word tells.
func (c *proxyConn) outOfBand(v value) bool {
	if v.kind == '*' && c.subscribed && len(v.items) > 0 {
		word := v.items[0].text
		return strings.HasSuffix(word, "message") || strings.HasSuffix(word, "subscribe")
	}
	return v.kind == '>'
}

// confirmedBy reports whether a value out of band answers the command. One that
// names several channels gets several answers, of which the first counts.
func (a awaited) confirmedBy(v value) bool {
	return a.subscription && len(v.items) > 0 && strings.HasSuffix(v.items[0].text, "subscribe")
}

func (c *proxyConn) send(d direction, what parcel) {
	what.due = c.p.due(d).Add(what.late)
	select {
	case c.lines[d] <- what:
	case <-c.ctx.Done():
	}
}

// deliver hands over the parcels of one direction, each when it is due.
func (c *proxyConn) deliver(d direction, to net.Conn) {
	for {
		select {
		case <-c.ctx.Done():
			return
		case what := <-c.lines[d]:
			if !c.await(what.due) {
				return
			}
			c.hand(what, d, to)
		}
	}
}

// await reports whether the connection still stands at the given time.
func (c *proxyConn) await(due time.Time) bool {
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

func (c *proxyConn) hand(what parcel, d direction, to net.Conn) {
	switch {
	case what.end == closed && d == request: // the server answers first, then hangs up
		_ = to.(*net.TCPConn).CloseWrite()
	case c.silent.Load():
	case what.end == closed:
		c.close()
	case what.end == silent:
		c.silent.Store(true)
	default:
		_, _ = to.Write(what.text)
	}
}
