package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
)

// A batch of spans is tried for sendTimeout and then lost. flushTimeout bounds how long
// a stop waits for the last one: traces are worth less than a quick stop.
const (
	sendTimeout  = 2 * time.Second
	flushTimeout = 3 * time.Second
)

// traces sends spans to a collector by OTLP; nil sends none.
type traces struct {
	// requests makes spans of requests, children only those of calls that a request
	// waits for: a batch that serves many is nobody's child.
	requests, children *sdktrace.TracerProvider
}

// openTraces connects to nothing yet: a collector that is away is no fault, and its
// spans are lost. How much is sampled and what else says who sends, OTEL_* variables
// tell, as for every sender.
func openTraces(ctx context.Context, config *Config, log *slog.Logger) (*traces, error) {
	if config.OTLPEndpoint == "" {
		return nil, nil
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(config.OTLPEndpoint), otlptracegrpc.WithTimeout(sendTimeout))
	if err != nil {
		return nil, fmt.Errorf("--otlp-endpoint: %w", err)
	}
	who, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", "fenced"),
		attribute.String("service.version", version),
		attribute.String("service.instance.id", config.Name),
	), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	out := sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(loggedExporter{exporter, log}))
	return &traces{
		requests: sdktrace.NewTracerProvider(out, sdktrace.WithResource(who)),
		children: sdktrace.NewTracerProvider(out, sdktrace.WithResource(who),
			sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))),
	}, nil
}

func (t *traces) tracer() trace.Tracer {
	if t == nil {
		return nil
	}
	return t.requests.Tracer("github.com/fenced/fenced", trace.WithInstrumentationVersion(version))
}

// dialOptions hand the trace of a request on to an external etcd.
func (t *traces) dialOptions() []grpc.DialOption {
	if t == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithStatsHandler(otelgrpc.NewClientHandler(
		otelgrpc.WithTracerProvider(t.children), otelgrpc.WithPropagators(propagation.TraceContext{})))}
}

// close sends what is left.
func (t *traces) close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushTimeout)
	defer cancel()
	// Both have the one processor, which logs what is wrong with it.
	_, _ = t.requests.Shutdown(ctx), t.children.Shutdown(ctx)
}

// loggedExporter tells the server's log of spans that could not be sent, and nobody
// else: they are lost.
type loggedExporter struct {
	sdktrace.SpanExporter
	log *slog.Logger
}

// ExportSpans implements sdktrace.SpanExporter.
func (e loggedExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.log.Warn("traces are lost", "spans", len(spans), "error", err)
	}
	return nil
}

// validateTraces wants a URL, whose scheme says whether TLS is used.
func (c *Config) validateTraces() error {
	if c.OTLPEndpoint == "" {
		return nil
	}
	u, err := url.Parse(c.OTLPEndpoint)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" {
		return fmt.Errorf("--otlp-endpoint %q must be http://host:port or https://host:port", c.OTLPEndpoint)
	}
	return nil
}
