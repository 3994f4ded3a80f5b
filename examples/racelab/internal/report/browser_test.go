package report_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/fenced/fenced/examples/racelab/internal/lab"
)

// openPage shows the report in a browser of its own, whose context it returns.
func openPage(t *testing.T, res *lab.Result) context.Context {
	t.Helper()
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium(t)))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	html := render(t, res)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(html)) }))
	t.Cleanup(srv.Close)
	bounded, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	t.Cleanup(cancel)
	allocator, stop := chromedp.NewExecAllocator(bounded, opts...)
	t.Cleanup(stop)
	ctx, closeTab := chromedp.NewContext(allocator)
	t.Cleanup(closeTab)
	if err := chromedp.Do(ctx, chromedp.Navigate(srv.URL)); err != nil {
		t.Fatalf("open the report: %v", err)
	}
	return ctx
}

// chromium is the path of a browser; without one the test is skipped.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("CI") != "" {
		t.Fatal("no chromium found: apt-get install chromium")
	}
	t.Skip("no chromium found: apt-get install chromium")
	return ""
}

// cutOff lists what does not fit: the page, if it scrolls sideways, and every
// label whose text leaves its box or the window. Tables scroll in boxes of their
// own.
const cutOff = `(() => {
	for (const e of document.querySelectorAll("details")) e.open = true;
	const wide = document.documentElement.scrollWidth;
	const bad = wide > innerWidth ? ["the page is " + wide + " wide in a window of " + innerWidth] : [];
	for (const e of document.querySelectorAll("h1, h2, p, li, .name, .num, svg text")) {
		const box = (e.closest("svg") ?? e.closest(".bars") ?? document.body).getBoundingClientRect();
		const range = document.createRange();
		range.selectNodeContents(e);
		const text = e.closest("svg") ? e.getBoundingClientRect() : range.getBoundingClientRect();
		if (text.left < box.left - 1 || text.right > box.right + 1) bad.push(e.textContent + ": " + text.left + " to " + text.right);
	}
	return bad.join("\n");
})()`

// A telephone shows the page whole, and no number is cut.
func TestRender_FitsTheWindow(t *testing.T) {
	t.Parallel()
	res := result(story())
	res.Row(lab.None).LostUpdates, res.Row(lab.None).DoublePayments = 12345, 678
	res.Row(lab.None).P50MS, res.Row(lab.None).P99MS = 1234.5, 6789.1
	ctx := openPage(t, res)
	for _, width := range []int64{320, 390, 768, 1280} {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(width, 800)); err != nil {
			t.Fatal(err)
		}
		bad, err := chromedp.Run(ctx, chromedp.Evaluate[string](cutOff))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(bad) {
			t.Errorf("%d wide: %s", width, strings.TrimSpace(line))
		}
	}
}
