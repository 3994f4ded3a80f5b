package httpapi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/fenced/fenced/internal/apierr"
)

// statusClientGone is the access line's status of a request whose client left
// before the answer; it is never sent.
const statusClientGone = 499

// requestIDHeader names the request in the answer and in the log.
const requestIDHeader = "X-Request-Id"

// recorder remembers what was answered. It is the writer of every handler.
type recorder struct {
	http.ResponseWriter
	log    *slog.Logger
	id     string
	route  string // the pattern, "" where none matched
	status int    // 0 until the header is written
	size   int64
	code   apierr.Code
}

func recorderOf(w http.ResponseWriter) *recorder { return w.(*recorder) }

// WriteHeader implements http.ResponseWriter.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *recorder) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.size += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// requestIDs are unique to a process by a random start, and cheap.
type requestIDs struct {
	start string
	count atomic.Uint64
}

func newRequestIDs() *requestIDs {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return &requestIDs{start: hex.EncodeToString(b[:]) + "-"}
}

func (ids *requestIDs) next() string {
	return ids.start + strconv.FormatUint(ids.count.Add(1), 36)
}

// recorded gives every request its recorder and id, writes its access line, and
// turns a panic into a 500.
func recorded(next http.Handler, log, access *slog.Logger) http.Handler {
	ids := newRequestIDs()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, log: log, id: ids.next()}
		w.Header()[requestIDHeader] = []string{rec.id}
		if access != nil {
			start := time.Now()
			defer func() { accessLine(access, rec, r, time.Since(start)) }()
		}
		defer recovered(rec, r)
		next.ServeHTTP(rec, r)
	})
}

// recovered answers a panic of a handler, where there is still an answer to give.
// An answer that has begun is cut off, so that nobody takes it for a whole one.
func recovered(rec *recorder, r *http.Request) {
	fault := recover()
	if fault == nil {
		return
	}
	if fault == http.ErrAbortHandler {
		panic(fault)
	}
	err := fmt.Errorf("handler panicked: %v\n%s", fault, debug.Stack())
	if rec.status == 0 {
		writeProblem(rec, r, err)
		return
	}
	rec.logFault(r.Context(), err)
	panic(http.ErrAbortHandler)
}

// logFault logs an error that is the server's own.
func (w *recorder) logFault(ctx context.Context, err error) {
	w.log.LogAttrs(ctx, slog.LevelError, "request failed",
		slog.String("request_id", w.id), slog.String("route", w.route), slog.Any("error", err))
}

// accessLine logs the route and never the path: paths hold secret ids.
func accessLine(log *slog.Logger, rec *recorder, r *http.Request, took time.Duration) {
	log.LogAttrs(r.Context(), slog.LevelInfo, "request",
		slog.String("request_id", rec.id),
		slog.String("method", r.Method),
		slog.String("route", rec.route),
		slog.Int("status", rec.status),
		slog.String("code", string(rec.code)),
		slog.Int64("bytes", rec.size),
		slog.Duration("took", took),
		slog.String("remote", r.RemoteAddr))
}
