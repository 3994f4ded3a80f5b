package httpapi

import (
	"context"
	"net"
	"net/http"
	"syscall"
	"time"
)

// Bounds of one connection. A wait and a stream move the one for writing.
const (
	headerTimeout = 5 * time.Second
	// readTimeout is for the whole request, writeTimeout from its header to the
	// end of the answer: a client that sends or takes a byte a second is cut.
	readTimeout  = 10 * time.Second
	writeTimeout = 15 * time.Second
	// idleTimeout is longer than that of common proxies, so that they close first
	// and never send a request into a connection that is being closed.
	idleTimeout    = 75 * time.Second
	maxHeaderBytes = 16 << 10

	// A peer that a network swallows is noticed within keepAliveIdle +
	// keepAliveCount * keepAliveInterval = 11 s, with unsent data in userTimeout.
	keepAliveIdle     = 5 * time.Second
	keepAliveInterval = 2 * time.Second
	keepAliveCount    = 3
	userTimeout       = 10 * time.Second
)

type connKey struct{}

// NewServer returns a server for handler with bounds on the time and size of
// everything a client sends, that still lets a wait last [lockserver.MaxWait] and
// an event stream last for ever. Its connections are what the handlers of [New]
// need to see a client leave.
func NewServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

// Listen opens a TCP listener whose connections notice a silent network within
// 12 s.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	lc := net.ListenConfig{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount,
		},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			if fault := raw.Control(func(fd uintptr) { err = setUserTimeout(fd, userTimeout) }); fault != nil {
				return fault
			}
			return err
		},
	}
	return lc.Listen(ctx, "tcp", address)
}

// allowFor moves the deadline of the answer behind a wait of d. The one for reading
// needs no move: net/http drops it once it has read the request, and goes on
// reading to see the client leave.
func (c *call) allowFor(d time.Duration) {
	if d > 0 {
		c.waited = true
		// A writer without a connection has no deadline to move.
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(d + writeTimeout))
	}
}

// peerLeft reports whether the client has closed, half-closed or reset the
// connection of the request. It asks the socket: net/http learns of it too, but
// in its own time, and a grant may be quicker.
func peerLeft(ctx context.Context) bool {
	conn, _ := ctx.Value(connKey{}).(net.Conn)
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn() // TLS
	}
	for range unreadLooks {
		switch look(conn) {
		case streamEnded:
			return true
		case streamSilent:
			return ctx.Err() != nil
		}
		// Bytes that net/http has not read yet may be the end of a TLS stream.
		time.Sleep(unreadPause)
	}
	return ctx.Err() != nil
}

// Unread bytes are given 5 ms to be read. Those of a client that pipelines stay.
const (
	unreadLooks = 50
	unreadPause = 100 * time.Microsecond
)

// streamState is what a socket would read next.
type streamState uint8

const (
	streamSilent streamState = iota // nothing, yet
	streamUnread                    // bytes; an end behind them is hidden
	streamEnded
)

// look asks the socket of conn. Where that cannot be done it says silent.
func look(conn net.Conn) streamState {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return streamSilent
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return streamEnded // closed on our side
	}
	state := streamEnded
	if err := raw.Control(func(fd uintptr) { state = peek(fd) }); err != nil {
		return streamEnded
	}
	return state
}
