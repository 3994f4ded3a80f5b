package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

// metrics counts what the service does. There are no labels by lock, owner or
// key: callers choose those, and a label for each would never end.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	open     *prometheus.GaugeVec
}

// newMetrics registers the metrics of the service and of the engine's status.
func newMetrics(registry *prometheus.Registry, engine AdminService) (*metrics, error) {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenced_http_requests_total",
			Help: "Requests by operation and outcome: ok, the code of the problem, or client_gone.",
		}, []string{"operation", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "fenced_http_request_seconds",
			Help:    "Time from the header to the answer, waits included.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"operation"}),
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fenced_http_requests_open",
			Help: "Requests that are being served, waits and event streams included.",
		}, []string{"operation"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.open, statusCollector{engine}} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// meter measures one operation.
type meter struct {
	metrics   *metrics
	operation string
	ok        prometheus.Counter
	seconds   prometheus.Observer
	open      prometheus.Gauge
}

// of looks the operation's labels up once, not at every request.
func (m *metrics) of(op *operation) *meter {
	name := op.name()
	// A series that begins with 1 has not increased: the first fault would raise no alert.
	m.requests.WithLabelValues(name, string(apierr.Internal))
	return &meter{
		metrics: m, operation: name,
		ok:      m.requests.WithLabelValues(name, "ok"),
		seconds: m.seconds.WithLabelValues(name),
		open:    m.open.WithLabelValues(name),
	}
}

// begin counts a request as open until the returned function has its outcome.
func (m *meter) begin() (end func(err error)) {
	start := time.Now()
	m.open.Inc()
	return func(err error) {
		m.open.Dec()
		m.seconds.Observe(time.Since(start).Seconds())
		if err == nil {
			m.ok.Inc()
			return
		}
		m.metrics.requests.WithLabelValues(m.operation, outcome(err)).Inc()
	}
}

// serveMetrics adds GET /metrics.
func (a *api) serveMetrics(registry *prometheus.Registry, log *slog.Logger) {
	h := promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), DisableCompression: true,
	})
	a.route(metricsOp, func(c *call) error {
		h.ServeHTTP(c.w, c.r)
		return nil
	})
}

// statusCollector reads the engine's status at each scrape.
type statusCollector struct{ engine AdminService }

// statusTimeout bounds a scrape.
const statusTimeout = 2 * time.Second

// statusMetric is a number of the status.
type statusMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(lockserver.Status) float64
}

func gauge(name, help string, value func(lockserver.Status) float64) statusMetric {
	return statusMetric{prometheus.NewDesc("fenced_"+name, help, nil, nil), prometheus.GaugeValue, value}
}

// counter is a gauge that only grows while the server runs.
func counter(name, help string, value func(lockserver.Status) float64) statusMetric {
	m := gauge(name, help, value)
	m.kind = prometheus.CounterValue
	return m
}

var (
	readyDesc = prometheus.NewDesc("fenced_ready", "1 where this server can grant.", nil, nil)

	statusMetrics = []statusMetric{
		gauge("holds", "Live holds, held and queued.", func(s lockserver.Status) float64 { return float64(s.Holds) }),
		gauge("waiters", "Queued holds.", func(s lockserver.Status) float64 { return float64(s.Waiters) }),
		gauge("locks", "Locks in use.", func(s lockserver.Status) float64 { return float64(s.Locks) }),
		gauge("sessions", "Live sessions.", func(s lockserver.Status) float64 { return float64(s.Sessions) }),
		gauge("mirror_revision", "Revision of the store that this server has applied.", func(s lockserver.Status) float64 { return float64(s.Revision) }),
		gauge("mirror_lag_seconds", "How long the oldest answer has waited for this server to see its own write; 0 where none waits.", func(s lockserver.Status) float64 { return s.Lag.Seconds() }),
		gauge("token_highest", "The highest token that can have been issued.", func(s lockserver.Status) float64 { return float64(s.Highest) }),
		gauge("bad_keys", "Keys of the store that do not parse.", func(s lockserver.Status) float64 { return float64(s.BadKeys) }),
		gauge("floor_protected", "1 where an issued-token file guards against a store that was rolled back.", func(s lockserver.Status) float64 { return oneIf(s.Floor == lockserver.Protected) }),
		counter("mirror_differences_total", "Comparisons with the store, one a minute, that found this server's picture of the holds wrong.", func(s lockserver.Status) float64 { return float64(s.Differences) }),
	}
)

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Describe implements prometheus.Collector.
func (statusCollector) Describe(out chan<- *prometheus.Desc) {
	out <- readyDesc
	for _, m := range statusMetrics {
		out <- m.desc
	}
}

// Collect implements prometheus.Collector.
func (c statusCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, oneIf(c.engine.Ready() == nil))
	ctx, cancel := context.WithTimeout(context.Background(), statusTimeout)
	defer cancel()
	status, err := c.engine.Status(ctx)
	if err != nil {
		return // fenced_ready tells
	}
	for _, m := range statusMetrics {
		out <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(status))
	}
}

var metricsOp = operation{
	method: http.MethodGet, path: "/metrics", id: "getMetrics", tag: tagServer,
	role:    keys.Read,
	summary: "Metrics for Prometheus",
	status:  http.StatusOK, content: "text/plain",
}
