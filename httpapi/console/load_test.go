package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fenced/fenced/lockserver"
)

// TestPage_bears_ten_thousand_locks counts the frames that the page draws while it
// reads them and while they come and go.
func TestPage_bears_ten_thousand_locks(t *testing.T) {
	t.Parallel()
	const many = 10_000
	p := openTab(t, nil)
	fill(p, many)
	p.open("")
	p.do(chromedp.Evaluate[chromedp.Void](`window.slowest = 0; window.last = performance.now();
		(function frame() { const now = performance.now(); slowest = Math.max(slowest, now - last); last = now; requestAnimationFrame(frame); })();`))
	p.until(`document.querySelector("#summary").textContent === "10,000 locks"`)
	p.until(`document.querySelectorAll("#locks tbody tr").length === 100`)
	hold := p.acquire("zzz", "last", time.Minute)
	p.until(`document.querySelector("#summary").textContent === "10,001 locks"`)
	p.do(chromedp.SendKeys(css("#filter"), "last"))
	p.until(cell("zzz", "token") + ` === "` + hold.Token.String() + `"`)
	// Under 100 ms on an idle machine; a page that draws all rows takes many seconds.
	slowest := eval[float64](p, `slowest`)
	if t.Logf("the longest frame took %.0f ms", slowest); slowest > 3000 {
		t.Error("the page froze")
	}
	if n := eval[int](p, `document.querySelectorAll("main *").length`); n > 3000 {
		t.Errorf("%d elements", n)
	}
}

func fill(p *tab, many int) {
	p.Helper()
	work, errs := make(chan int), make(chan error, 64)
	for range 64 {
		go func() {
			var err error
			for i := range work {
				if err == nil {
					_, err = p.engine.Acquire(p.Context(), lockserver.AcquireRequest{Lock: fmt.Sprintf("lock/%05d", i), Owner: "w", TTL: 10 * time.Minute})
				}
			}
			errs <- err
		}()
	}
	for i := range many {
		work <- i
	}
	close(work)
	for range 64 {
		if err := <-errs; err != nil {
			p.Fatal(err)
		}
	}
}
