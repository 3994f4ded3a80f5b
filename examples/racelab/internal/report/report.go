package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
)

//go:embed page.html
var pageHTML string

//go:embed style.css
var styleCSS string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"thousands": func(n int) string { return thousands(int64(n)) },
	"percent":   func(f float64) string { return fmt.Sprintf("%.2f %%", 100*f) },
	"ms":        func(f float64) string { return fmt.Sprintf("%.1f", f) },
	"style":     func() template.CSS { return template.CSS(styleCSS) },
	"laneA":     func() int { return laneA },
	"laneB":     func() int { return laneB },
	"laneDB":    func() int { return laneDB },
	"add":       func(a, b int) int { return a + b },
	"half":      func(x, width int) int { return x + width/2 },
	"width":     func() int { return width },
}).Parse(pageHTML))

// view is what the template sees.
type view struct {
	*lab.Result
	// All are the rows of the table, with the variant at the end.
	All []*lab.Row
	// Stalls is how many were injected into each way.
	Stalls int
	// Corruption and Latency are bars, one for each way that ran.
	Corruption, Latency []barRow
	Alone, Guarded      *picture
	Amount              string
	TokenA, TokenB      int64
	SkippedWhy          string
	MaxRatio            float64
	Harm                harm
}

// harm is the worst that the unguarded ways did.
type harm struct{ Lost, Paid int }

// A barRow is one way with two lengths in percent of the longest.
type barRow struct {
	Row          *lab.Row
	First, Then  float64
	Label, Extra string
}

// Render returns the page.
func Render(res *lab.Result) ([]byte, error) {
	v := view{Result: res, All: append(res.Ways[:len(res.Ways):len(res.Ways)], res.RedlockRestart), MaxRatio: lab.MaxP99Ratio}
	v.measure()
	if s := res.Story; s != nil {
		v.Alone, v.Guarded = pictures(s.Alone, s.Guarded, s.Step)
		v.tokens()
		v.Amount = coins(s.Alone[0].Amount)
	}
	var out bytes.Buffer
	if err := page.Execute(&out, v); err != nil {
		return nil, fmt.Errorf("render the report: %w", err)
	}
	return out.Bytes(), nil
}

// tokens finds the two tokens that the refusal was about.
func (v *view) tokens() {
	for _, e := range v.Story.Guarded {
		if e.What == "refused" && e.Step == v.Story.Step {
			v.TokenA, v.TokenB = int64(e.Token), int64(e.Fence)
			return
		}
	}
}

func (v *view) measure() {
	var worst int
	var slowest float64
	for _, r := range v.All {
		worst = max(worst, r.LostUpdates+r.DoublePayments)
		slowest = max(slowest, r.P99MS)
		v.Stalls = max(v.Stalls, r.Stalls)
		if r.Skipped != "" {
			v.SkippedWhy = r.Skipped
		}
		if r.Way != lab.None && !r.Way.Fenced() {
			v.Harm.Lost, v.Harm.Paid = max(v.Harm.Lost, r.LostUpdates), max(v.Harm.Paid, r.DoublePayments)
		}
	}
	for _, r := range v.All {
		if r.Skipped != "" {
			continue
		}
		v.Corruption = append(v.Corruption, barRow{Row: r, First: share(float64(r.LostUpdates), float64(worst)), Then: share(float64(r.DoublePayments), float64(worst))})
		if r.Samples > 0 {
			v.Latency = append(v.Latency, barRow{Row: r, First: share(r.P50MS, slowest), Then: share(r.P99MS-r.P50MS, slowest)})
		}
	}
}

// share is a part of a whole in percent.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return 100 * part / whole
}
