package rewards

import (
	"net/http/httptrace"
	"sync/atomic"
	"time"
)

// lane is the way to the item server, which all rows share. Where no connection
// can be had, that is the lane's fault and no row's: no attempt is counted, and
// the publisher pauses as a whole instead of trying row after row. So an outage of
// any length kills no row.
type lane struct {
	failures int // batches in a row that reached nobody
}

// batch returns how many rows to try now: one is enough to find out whether the
// item server is back.
func (l *lane) batch(full int) int {
	if l.failures > 0 {
		return 1
	}
	return full
}

// after notes whether any call of a batch had a connection, and returns how long
// to pause.
func (l *lane) after(reached bool, first, longest time.Duration) time.Duration {
	if reached {
		l.failures = 0
		return 0
	}
	l.failures++
	return backoff(l.failures, first, longest)
}

// trace has connected say, once a call has ended, whether its last try had a
// connection.
func trace(connected *atomic.Bool) *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { connected.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { connected.Store(true) },
	}
}
