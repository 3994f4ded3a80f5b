package report_test

import (
	"encoding/xml"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
	"github.com/fenced/fenced/examples/racelab/internal/ledger"
	"github.com/fenced/fenced/examples/racelab/internal/report"
)

var zero = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(ms int) time.Time { return zero.Add(time.Duration(ms) * time.Millisecond) }

// story is a reward that A, in step 10, pays late.
func story() *lab.Story {
	frozen, end := at(4), at(1004)
	entry := func(what string, ms, step int, token, value int64) ledger.Event {
		e := ledger.Event{What: what, Hold: "a", Step: step, Worker: "w01", Asked: at(0), Granted: at(1), At: at(ms), Value: value, Amount: 5000}
		e.Token = 41
		if token != 41 {
			e.Hold, e.Worker, e.Asked, e.Granted = "b", "w02", at(2), at(1010)
			e.Token = 44
		}
		if what == "stall" {
			e.Frozen, e.LeaseEnd = &frozen, &end
		}
		return e
	}
	common := []ledger.Event{
		entry("read", 3, 10, 41, 0), entry("read", 1012, 11, 44, 0), entry("write", 1015, 11, 44, 1), entry("stall", 1700, 10, 41, 0),
	}
	late, no := entry("write", 1702, 10, 41, 1), entry("refused", 1702, 10, 41, 0)
	no.Fence = 44
	return &lab.Story{Reward: 7, Step: 10, Alone: append(common[:4:4], late), Guarded: append(common[:4:4], no)}
}

func result(s *lab.Story) *lab.Result {
	res := &lab.Result{Seed: 1, Workers: 64, TTLMS: 1000, Planned: 800, P99Ratio: 1.2, Story: s}
	for _, w := range lab.Ways() {
		res.Ways = append(res.Ways, &lab.Row{Way: w, Transactions: 800, Stalls: 40, P50MS: 2, P99MS: 9, Samples: 256, LostUpdates: 3, DoublePayments: 1})
	}
	for _, w := range []lab.Way{lab.FencedGuard, lab.FencedColumn} {
		res.Row(w).LostUpdates, res.Row(w).DoublePayments, res.Row(w).Refused = 0, 0, 17
	}
	res.RedlockRestart = &lab.Row{Way: lab.RedlockRestart, Skipped: "redis-server is not installed"}
	return res
}

func render(t *testing.T, res *lab.Result) string {
	t.Helper()
	page, err := report.Render(res)
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

func TestRender_TellsTheStoryOfTheRun(t *testing.T) {
	t.Parallel()
	page := render(t, result(story()))
	for _, want := range []string{"PAID TWICE", "REFUSED: 41 is less than 44", "stands still for 1.7 s", "lease is over", "5,000 coins", "17 late writes refused", "1.20 times"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestRender_NeedsNothingFromOutside(t *testing.T) {
	t.Parallel()
	page := render(t, result(story()))
	for _, no := range []string{"http:", "https:", "src=", "href=", "@import", "<script", "<link"} {
		if strings.Contains(page, no) {
			t.Errorf("the page has %q", no)
		}
	}
}

// A picture that is not well-formed is drawn half or not at all.
func TestRender_PicturesAreWellFormed(t *testing.T) {
	t.Parallel()
	page := render(t, result(story()))
	pictures := 0
	for rest := page; ; pictures++ {
		_, after, found := strings.Cut(rest, "<svg")
		if !found {
			break
		}
		svg, tail, _ := strings.Cut(after, "</svg>")
		rest = tail
		dec := xml.NewDecoder(strings.NewReader("<svg" + svg + "</svg>"))
		for {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("picture %d: %v", pictures, err)
			}
		}
	}
	if pictures != 2 {
		t.Errorf("%d pictures, want 2", pictures)
	}
}

func TestRender_WithoutStoryOrWithProblems(t *testing.T) {
	t.Parallel()
	res := result(nil)
	res.Problems = []string{"an update was lost <behind> a guard"}
	page := render(t, res)
	if strings.Contains(page, "<svg") || !strings.Contains(page, "no picture") {
		t.Error("a page without a story has a picture, or does not say why it has none")
	}
	if !strings.Contains(page, "This run has failed") || !strings.Contains(page, "&lt;behind&gt;") {
		t.Error("the page does not tell of the problem")
	}
}
