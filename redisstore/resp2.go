package redisstore

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// dialer connects for a client.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// dialRESP2 connects to what hangs up at a HELLO, which go-redis sends whatever
// the protocol is.
func dialRESP2(o *redis.Options) dialer {
	dial := redis.NewDialer(o)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		unasked := &unaskedConn{Conn: conn}
		if tcp, ok := conn.(*net.TCPConn); ok { // go-redis looks whether the server has hung up
			return struct {
				*unaskedConn
				syscall.Conn
			}{unasked, tcp}, nil
		}
		return unasked, nil
	}
}

// unaskedConn answers HELLO itself, as a server that has never heard of it.
type unaskedConn struct {
	net.Conn
	asked atomic.Bool
}

func (c *unaskedConn) Write(p []byte) (int, error) {
	if _, cmd, _ := bytes.Cut(p, []byte("\r\n$5\r\n")); len(cmd) > 5 && bytes.EqualFold(cmd[:5], []byte("hello")) {
		c.asked.Store(true)
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *unaskedConn) Read(p []byte) (int, error) {
	if c.asked.Swap(false) {
		return copy(p, "-ERR unknown command 'HELLO'\r\n"), nil
	}
	return c.Conn.Read(p)
}
