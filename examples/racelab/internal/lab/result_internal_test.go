package lab

import (
	"testing"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/ledger"
)

func TestRow_Check(t *testing.T) {
	t.Parallel()
	config := small()
	good := ledger.Counts{Transactions: 160, Stalls: 16, LongStalls: 8, WritesAfterLease: 2, Refused: 5, RefusalsLogged: 5, Seconds: 4}
	for name, test := range map[string]struct {
		way   Way
		spoil func(*ledger.Counts)
		bad   bool
	}{
		"a clean run":               {way: FencedGuard, spoil: func(*ledger.Counts) {}},
		"corruption without guard":  {way: Redis, spoil: func(c *ledger.Counts) { c.LostUpdates, c.Missing = 3, 70 }},
		"a lost update":             {way: FencedGuard, bad: true, spoil: func(c *ledger.Counts) { c.LostUpdates, c.Missing = 1, 70 }},
		"a double payment":          {way: FencedColumn, bad: true, spoil: func(c *ledger.Counts) { c.DoublePayments, c.PaidTwice = 1, 70 }},
		"too few long stalls":       {way: Redis, bad: true, spoil: func(c *ledger.Counts) { c.LongStalls = 5 }},
		"a step undone":             {way: FencedGuard, bad: true, spoil: func(c *ledger.Counts) { c.Transactions-- }},
		"a reward forgotten":        {way: FencedGuard, bad: true, spoil: func(c *ledger.Counts) { c.Unpaid = 1 }},
		"a write that vanished":     {way: FencedGuard, bad: true, spoil: func(c *ledger.Counts) { c.RefusalsLogged = 4 }},
		"money gone without a lost": {way: Redis, bad: true, spoil: func(c *ledger.Counts) { c.Missing = 1 }},
	} {
		counts := good
		test.spoil(&counts)
		row := &Row{Way: test.way}
		row.fill(counts, config)
		if got := len(row.problems) > 0; got != test.bad {
			t.Errorf("%s: problems %q", name, row.problems)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	var all []time.Duration
	for i := range 200 {
		all = append(all, time.Duration(i+1)*time.Millisecond)
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 101, 0.99: 199, 1: 200} {
		if got := quantile(all, q); got != want {
			t.Errorf("quantile %v = %v, want %v", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("quantile of nothing = %v", got)
	}
}

func TestQuick_IsAsPromised(t *testing.T) {
	t.Parallel()
	c := Quick(1)
	if err := c.Size.Validate(); err != nil || c.TTL != time.Second || c.Size.Updates != 400 || c.Size.Payments != 400 || c.MinLongStalls != 12 {
		t.Errorf("%+v, %v", c, err)
	}
	if d := Default(1); d.Size.Validate() != nil || d.TTL != 3*time.Second || d.Size.Updates != 1000 || d.Workers != 64 {
		t.Errorf("%+v", d)
	}
}
