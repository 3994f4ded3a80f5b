package main

import (
	"encoding/json"
	"io"
	"math"
	"runtime"
	"runtime/debug"
)

// row is one ratio or figure that has a target.
type row struct {
	key   string
	work  string
	least bool // the target is a lower bound, else an upper one
	bound float64
}

// ratioRows and figureRows are everything with a target, in the order of the
// report.
var ratioRows = []row{
	{"own64_vs_v3lock_lease_per_lock", "64 clients, own locks, a lease per hold, over HTTP, against v3lock with a lease per lock", true, 8},
	{"own64_vs_v3lock_shared_lease", "the same against v3lock with a shared lease", true, 1.5},
	{"own64_vs_zookeeper", "the same against ZooKeeper's recipe", true, 1.1},
	{"one64_vs_v3lock", "64 clients on one lock, against v3lock", true, 6},
	{"one64_vs_zookeeper", "the same against ZooKeeper's recipe", true, 1.8},
	{"one8_vs_v3lock", "8 clients on one lock, against v3lock", true, 30},
	{"handover_vs_put", "hand-over with 64 waiters, p50, over the p50 of one etcd put over gRPC", false, 4},
	{"handover_10000_vs_10", "cost of a hand-over with 10,000 waiters on one lock over that with 10", false, 1.5},
	{"one_client_vs_v3lock", "one client, acquire and release p50, over v3lock with a lease per lock", false, 0.6},
	{"engine256_vs_raw_etcd", "engine in process, 256 clients, own locks, against raw etcd put and delete in process", true, 1.2},
	{"expiry_p99_vs_idle", "acquire p99 while 20,000 holds expire at once, over idle", false, 5},
	{"pgfence_update", "fenced one-row UPDATE, guard and update in one round trip, p50 over a plain UPDATE", false, 1.25},
	{"pgfence_column", "the same with the fence in a column", false, 1.05},
	{"reward_apply", "reward apply (claim, ledger, outbox in one statement) against a bare ledger INSERT", true, 0.5},
}

var figureRows = []row{
	{"kib_per_hold", "live heap per held hold at 100,000, KiB above idle", false, 2},
	{"start_to_grant_s", "start to first grant, default settings, seconds", false, 1.5},
	{"expiry_last_gone_s", "20,000 holds that expire at once: the last is gone after, seconds", false, 3},
}

// met reports whether a value reaches the target.
func (r row) met(value float64) bool {
	if r.least {
		return value >= r.bound
	}
	return value <= r.bound
}

// report is the JSON object of one run.
type report struct {
	Machine machine `json:"machine"`
	Quick   bool    `json:"quick"`
	Rounds  int     `json:"rounds"`
	RoundMS int64   `json:"round_ms"`
	Seconds float64 `json:"seconds"`

	// Ratios has every key of ratioRows; null was not measured.
	Ratios map[string]number `json:"ratios"`
	// Figures has every key of figureRows, and each measure behind the ratios:
	// rates in cycles a second, names with _us in microseconds.
	Figures map[string]number `json:"figures"`
	// Spread is the range over the rounds of what was measured in rounds.
	Spread map[string]spread `json:"spread"`
	// Missed lists the keys that were measured and do not reach their target.
	Missed []string `json:"missed"`
	// Left says in a line each what was left out, and why.
	Left []string `json:"left_out"`
}

// machine is where the figures come from.
type machine struct {
	OS   string `json:"os"`
	CPUs int    `json:"cpus"`
	Go   string `json:"go"`
	Etcd string `json:"etcd"`
}

func newReport(quick bool, rounds int, roundMS int64) *report {
	r := &report{
		Machine: machine{OS: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version(), Etcd: etcdVersion()},
		Quick:   quick, Rounds: rounds, RoundMS: roundMS,
		Ratios: make(map[string]number), Figures: make(map[string]number), Spread: make(map[string]spread),
		Missed: []string{}, Left: []string{},
	}
	for _, row := range ratioRows {
		r.Ratios[row.key] = number(math.NaN())
	}
	for _, row := range figureRows {
		r.Figures[row.key] = number(math.NaN())
	}
	return r
}

func etcdVersion() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, dep := range info.Deps {
			if dep.Path == "go.etcd.io/etcd/server/v3" {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// number is a float64 whose NaN is null in JSON; four digits are more than any
// measure here is good for.
type number float64

// MarshalJSON returns the number, rounded, or null.
func (n number) MarshalJSON() ([]byte, error) {
	v := float64(n)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(rounded(v))
}

func rounded(v float64) float64 {
	if v == 0 {
		return 0
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// ratio sets the ratio of two measures, unless one of them is missing.
func (r *report) ratio(key string, a, b series) { r.put(r.Ratios, key, a.over(b)) }

// figure sets a figure from its rounds, unless there are none.
func (r *report) figure(key string, s series) { r.put(r.Figures, key, s) }

func (r *report) put(m map[string]number, key string, s series) {
	if len(s) == 0 {
		return
	}
	m[key] = number(s.median())
	limits := s.spread()
	r.Spread[key] = spread{rounded(limits.Min), rounded(limits.Max)}
}

// finish fills in what follows from the rest.
func (r *report) finish(seconds float64) {
	r.Seconds = rounded(seconds)
	r.miss(r.Ratios, ratioRows)
	r.miss(r.Figures, figureRows)
}

func (r *report) miss(m map[string]number, rows []row) {
	for _, row := range rows {
		if v := float64(m[row.key]); !math.IsNaN(v) && !row.met(v) {
			r.Missed = append(r.Missed, row.key)
		}
	}
}

func (r *report) writeJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}
