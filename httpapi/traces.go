package httpapi

import (
	"errors"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/fenced/fenced/lockserver"
)

// span is the trace of one request; the zero value is none. Its attributes are what
// the audit log tells: names, refs and tokens, never a secret id or a path, which
// holds one.
type span struct{ trace.Span }

// startSpan begins the span of a request and puts it into the request's context, for
// what the store's client sends on. An event stream has none: it would not end.
func (a *api) startSpan(op *operation, c *call) span {
	if a.tracer == nil || !strings.HasPrefix(op.path, "/v1/") || op.content == eventsOp.content {
		return span{}
	}
	ctx := propagation.TraceContext{}.Extract(c.r.Context(), propagation.HeaderCarrier(c.r.Header))
	ctx, s := a.tracer.Start(ctx, op.id, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
		attribute.String("http.request.method", c.r.Method),
		attribute.String("http.route", op.path),
		attribute.String("fenced.request_id", recorderOf(c.w).id)))
	c.r = c.r.WithContext(ctx)
	return span{s}
}

// end says what came of the request.
func (s span) end(c *call, err error) {
	if s.Span == nil {
		return
	}
	defer s.End()
	if !s.IsRecording() {
		return
	}
	result, status := outcome(err), recorderOf(c.w).status
	s.SetAttributes(attribute.String("fenced.outcome", result), attribute.String("fenced.ref", c.record.ref))
	if status != 0 {
		s.SetAttributes(attribute.Int("http.response.status_code", status))
	}
	if status >= 500 || errors.Is(err, errPanicked) {
		s.SetStatus(codes.Error, result)
	}
	if lockserver.ValidateLock(c.record.lock) == nil {
		s.SetAttributes(attribute.String("fenced.lock", c.record.lock))
	}
	if c.record.token.Valid() {
		s.SetAttributes(attribute.Int64("fenced.token", int64(c.record.token)))
	}
}
