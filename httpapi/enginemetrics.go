package httpapi

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fenced/fenced/lockserver"
)

// Buckets of the engine's histograms. A commit takes as long as an fsync, a
// hand-over a commit and a keep-alive, a wait up to [lockserver.MaxWait].
var (
	quickBuckets = []float64{.00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
	waitBuckets  = []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20, 30}
	batchBuckets = []float64{1, 2, 5, 10, 20, 50, 100}
	queueBuckets = []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000}
)

// Observe returns an observer for [lockserver.Config] that turns what it is told
// into metrics of registry: give the same one to [Config]. It errs where the
// registry has such metrics.
func Observe(registry *prometheus.Registry) (lockserver.Observer, error) {
	m := newEngineMetrics()
	var errs []error
	for _, c := range []prometheus.Collector{m.events, m.queues, m.waits, m.handOvers, m.commits, m.batches, m.lags} {
		errs = append(errs, registry.Register(c))
	}
	return m.observer(), errors.Join(errs...)
}

// engineMetrics counts what the engine does. As everywhere, no label is a caller's.
type engineMetrics struct {
	events           *prometheus.CounterVec
	queues           prometheus.Histogram
	waits, handOvers prometheus.Histogram
	commits, batches *prometheus.HistogramVec
	lags             prometheus.Histogram
}

func newEngineMetrics() *engineMetrics {
	histogram := func(name, help string, buckets []float64) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "fenced_" + name, Help: help, Buckets: buckets}
	}
	return &engineMetrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fenced_hold_events_total",
			Help: "What happened to holds as this server saw it, its own and other servers': queued, granted, released, expired, broken, cancelled, unknown.",
		}, []string{"kind"}),
		queues: prometheus.NewHistogram(histogram("queue_length",
			"Holds that wait for a lock, counted when one more queues for it.", queueBuckets)),
		waits: prometheus.NewHistogram(histogram("wait_seconds",
			"How long requests that had to queue and were granted by this server had waited.", waitBuckets)),
		handOvers: prometheus.NewHistogram(histogram("hand_over_seconds",
			"From this server seeing a hold end to its grant of the next one to a request that waited.", quickBuckets)),
		commits: prometheus.NewHistogramVec(histogram("commit_seconds",
			"How long the store took to answer a transaction, or to fail, by lane: put or delete.", quickBuckets), []string{"lane"}),
		batches: prometheus.NewHistogramVec(histogram("batch_holds",
			"Holds in one transaction, by lane: put or delete.", batchBuckets), []string{"lane"}),
		lags: prometheus.NewHistogram(histogram("mirror_wait_seconds",
			"From the store's answer to a transaction to this server seeing it; what takes longer than 1 s is answered as unknown.", quickBuckets)),
	}
}

// eventKinds are all kinds of events, so that each shows from the start.
var eventKinds = []lockserver.EventKind{
	lockserver.EventQueued, lockserver.EventGranted, lockserver.EventReleased, lockserver.EventExpired,
	lockserver.EventBroken, lockserver.EventCancelled, lockserver.EventUnknown,
}

// observer looks labels up once, not at every call.
func (m *engineMetrics) observer() lockserver.Observer {
	events := map[lockserver.EventKind]prometheus.Counter{}
	for _, kind := range eventKinds {
		events[kind] = m.events.WithLabelValues(kind.String())
	}
	commits, batches := map[lockserver.Lane]prometheus.Observer{}, map[lockserver.Lane]prometheus.Observer{}
	for _, lane := range []lockserver.Lane{lockserver.PutLane, lockserver.DeleteLane} {
		commits[lane] = m.commits.WithLabelValues(lane.String())
		batches[lane] = m.batches.WithLabelValues(lane.String())
	}
	return lockserver.Observer{
		Event:  func(kind lockserver.EventKind) { events[kind].Inc() },
		Queued: func(waiters int) { m.queues.Observe(float64(waiters)) },
		Granted: func(waited, handOver time.Duration) {
			m.waits.Observe(waited.Seconds())
			m.handOvers.Observe(handOver.Seconds())
		},
		Committed: func(lane lockserver.Lane, holds int, took time.Duration) {
			commits[lane].Observe(took.Seconds())
			batches[lane].Observe(float64(holds))
		},
		Lagged: func(d time.Duration) { m.lags.Observe(d.Seconds()) },
	}
}
