package lab

import (
	"fmt"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
)

// MaxP99Ratio is what the 99th percentile with lock and guard may be of that with a
// Redis lock and no guard, in the same run.
const MaxP99Ratio = 1.25

// A Result is what a run has found.
type Result struct {
	Seed    uint64 `json:"seed"`
	Real    bool   `json:"real"`
	Workers int    `json:"workers"`
	TTLMS   int64  `json:"ttl_ms"`
	// Planned is the number of steps of each way.
	Planned int `json:"planned"`
	// Ways are the seven rows of the table.
	Ways []*Row `json:"ways"`
	// RedlockRestart is the run of Redlock with servers that fail.
	RedlockRestart *Row `json:"redlock_restart"`
	// P99Ratio is the p99 of fenced_guard by that of redis; 0 where either is missing.
	P99Ratio float64 `json:"p99_ratio"`
	// Story is nil where no reward shows both.
	Story *Story `json:"story,omitempty"`
	// Problems are why the run has failed; empty where it has not.
	Problems []string `json:"problems"`
}

// A Row is one way.
type Row struct {
	Way Way `json:"way"`
	// Skipped says why the way was not run.
	Skipped      string `json:"skipped,omitempty"`
	Transactions int    `json:"transactions"`
	// Stalls were injected; StallsBeyondTTL of them outlasted the TTL.
	Stalls           int `json:"stalls"`
	StallsBeyondTTL  int `json:"stalls_beyond_ttl"`
	WritesAfterLease int `json:"writes_after_lease"`
	LostUpdates      int `json:"lost_updates"`
	DoublePayments   int `json:"double_payments"`
	// WithinLease are the lost updates and double payments for which every lease was
	// still good by its own terms: two held one lock. Only Redlock can have any.
	WithinLease int `json:"corrupted_within_lease"`
	Refused     int `json:"refused"`
	// CorruptionRate is lost updates and double payments by transactions.
	CorruptionRate float64 `json:"corruption_rate"`
	// MissingAmount is what the accounts lack, PaidTwice what was paid too much.
	MissingAmount int64   `json:"missing_amount"`
	PaidTwice     int64   `json:"paid_twice_amount"`
	PerSecond     float64 `json:"per_second"`
	P50MS         float64 `json:"p50_ms"`
	P99MS         float64 `json:"p99_ms"`
	Samples       int     `json:"latency_samples"`

	problems []string
}

// Corrupted reports whether anything was lost or paid twice.
func (r *Row) Corrupted() bool { return r.LostUpdates+r.DoublePayments > 0 }

// Verdict says in a word how the way did.
func (r *Row) Verdict() string {
	switch {
	case r.Skipped != "":
		return "not run"
	case r.Corrupted():
		return "CORRUPTED"
	case len(r.problems) > 0:
		return "FAILED"
	case r.Way.Fenced():
		return "safe"
	default:
		return "lucky"
	}
}

func newResult(c Config) *Result {
	return &Result{
		Seed: c.Seed, Real: c.Real, Workers: c.Workers, TTLMS: c.TTL.Milliseconds(),
		Planned: c.Size.Updates + c.Size.Payments, Problems: []string{},
	}
}

func (r *Result) add(row *Row) {
	if row.Way == RedlockRestart {
		r.RedlockRestart = row
	} else {
		r.Ways = append(r.Ways, row)
	}
	for _, p := range row.problems {
		r.Problems = append(r.Problems, row.Way.Title()+": "+p)
	}
}

// Row returns the row of a way that is in the table, nil for others.
func (r *Result) Row(w Way) *Row {
	for _, row := range r.Ways {
		if row.Way == w {
			return row
		}
	}
	return nil
}

// compare sets the ratio. A slow guard is no reason to fail: the machine may be busy.
func (r *Result) compare() {
	guard, redis := r.Row(FencedGuard), r.Row(Redis)
	if redis.P99MS > 0 {
		r.P99Ratio = guard.P99MS / redis.P99MS
	}
}

// fill takes over the counts and checks them.
func (r *Row) fill(c ledger.Counts, config Config) {
	r.Transactions, r.Stalls, r.StallsBeyondTTL = c.Transactions, c.Stalls, c.LongStalls
	r.WritesAfterLease, r.LostUpdates, r.DoublePayments = c.WritesAfterLease, c.LostUpdates, c.DoublePayments
	r.WithinLease, r.Refused, r.MissingAmount, r.PaidTwice = c.WithinLease, c.Refused, c.Missing, c.PaidTwice
	if c.Transactions > 0 {
		r.CorruptionRate = float64(c.Corrupted()) / float64(c.Transactions)
	}
	if c.Seconds > 0 {
		r.PerSecond = float64(c.Transactions) / c.Seconds
	}
	r.check(c, config)
}

// check finds what makes the whole run a failure. Corruption of the ways without a
// guard is what the lab is there to show, and none.
func (r *Row) check(c ledger.Counts, config Config) {
	problem := func(bad bool, format string, args ...any) {
		if bad {
			r.problems = append(r.problems, fmt.Sprintf(format, args...))
		}
	}
	planned := config.Size.Updates + config.Size.Payments
	problem(r.Way.Fenced() && r.Corrupted(), "%d updates lost and %d rewards paid twice behind a guard", c.LostUpdates, c.DoublePayments)
	problem(c.LongStalls < config.MinLongStalls, "only %d stalls outlasted the TTL, too few to mean anything (at least %d)", c.LongStalls, config.MinLongStalls)
	problem(c.Transactions != planned, "%d of %d transactions were done", c.Transactions, planned)
	problem(c.Unpaid > 0, "%d rewards were never paid", c.Unpaid)
	problem(c.Refused > c.RefusalsLogged, "%d writes vanished without a refusal", c.Refused-c.RefusalsLogged)
	// The money and the log are counted apart, so each tells on the other.
	problem((c.LostUpdates == 0) != (c.Missing == 0), "the log shows %d lost updates, the accounts lack %d", c.LostUpdates, c.Missing)
	problem((c.DoublePayments == 0) != (c.PaidTwice == 0), "the log shows %d double payments, the payments %d too much", c.DoublePayments, c.PaidTwice)
}
