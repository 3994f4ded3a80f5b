package console_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/lockserver"
	"github.com/fenced/fenced/tokens"
)

// One browser serves all tests; each has a tab of its own.
var (
	browser     context.Context
	stopBrowser = func() {}
	startOnce   sync.Once
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(stopping{m})
}

// stopping ends the browser before the leak check looks.
type stopping struct{ *testing.M }

func (s stopping) Run() int {
	defer func() { stopBrowser() }()
	return s.M.Run()
}

// chromium is a browser's path, or "".
func chromium() string {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

func startBrowser(path string) {
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path))
	if os.Getuid() == 0 {
		opts = append(opts, chromedp.NoSandbox)
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stopTabs := chromedp.NewContext(allocator)
	browser, stopBrowser = ctx, func() {
		_ = chromedp.Cancel(ctx)
		stopTabs()
		stopAllocator()
	}
	if _, err := chromedp.Run(browser, chromedp.Title()); err != nil {
		panic(fmt.Sprintf("start %s: %v", path, err))
	}
}

// tab is one page in the browser, over a real engine and a real etcd.
type tab struct {
	*testing.T
	engine *lockserver.Server
	server *httptest.Server
	ctx    context.Context
}

// openTab serves the whole API, with keys if there are any, and opens a tab.
func openTab(t *testing.T, store *keys.Store) *tab {
	t.Helper()
	path := chromium()
	if path == "" {
		if os.Getenv("CI") != "" {
			t.Fatal("no chromium found: apt-get install chromium")
		}
		t.Skip("no chromium found: apt-get install chromium")
	}
	startOnce.Do(func() { startBrowser(path) })
	engine := etcdtest.Server(t)
	handler, err := httpapi.New(httpapi.Config{Engine: engine, Keys: store, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = httpapi.NewServer(handler)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	ctx, closeTab := chromedp.NewContext(browser)
	t.Cleanup(closeTab)
	bounded, cancel := context.WithTimeout(ctx, 3*time.Minute)
	t.Cleanup(cancel)
	p := &tab{t, engine, srv, bounded}
	p.watch()
	return p
}

// watch fails the test on whatever the browser complains of: exceptions, refused
// policies, missing files. An answer of the API that the page handles is none.
func (p *tab) watch() {
	p.Helper()
	var mu sync.Mutex
	var faults []string
	err := chromedp.Listen(p.ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			faults = append(faults, fmt.Sprintf("the page threw: %s %+v", e.ExceptionDetails.Text, e.ExceptionDetails.Exception))
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.EntryLevelError && !strings.Contains(e.Entry.URL, "/v1/") {
				faults = append(faults, fmt.Sprintf("the browser says: %s (%s)", e.Entry.Text, e.Entry.URL))
			}
		}
	})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		for _, fault := range faults {
			p.Error(fault)
		}
	})
}

func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.Helper()
	if err := chromedp.Do(p.ctx, actions...); err != nil {
		p.Fatalf("browser: %v", err)
	}
}

func (p *tab) open(fragment string) {
	p.Helper()
	p.do(chromedp.Navigate(p.server.URL + "/" + fragment))
}

// until waits for condition, which is looked at whenever the page changes; an element
// that is not there yet fails it. It fails with what the page shows where that takes 30 s.
func (p *tab) until(condition string) {
	p.Helper()
	script := fmt.Sprintf(`new Promise((done) => {
		const watcher = new MutationObserver(() => check());
		const met = () => {
			try {
				return %s;
			} catch (fault) {
				if (!(fault instanceof TypeError)) throw fault;
			}
		};
		const check = () => { if (met()) { watcher.disconnect(); done(""); } };
		watcher.observe(document, { subtree: true, childList: true, attributes: true, characterData: true });
		setTimeout(() => done("the page shows: " + document.body.innerText), 30_000);
		check();
	})`, condition)
	shows, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](script, chromedp.EvalAwaitPromise))
	if err != nil || shows != "" {
		p.Fatalf("waiting for %s: %v\n%s", condition, err, shows)
	}
}

func eval[T any](p *tab, script string) T {
	p.Helper()
	v, err := chromedp.Run(p.ctx, chromedp.Evaluate[T](script))
	if err != nil {
		p.Fatalf("evaluate %s: %v", script, err)
	}
	return v
}

// cell is the text of a cell in the row of lock, or null.
func cell(lock, class string) string {
	return fmt.Sprintf(`[...document.querySelectorAll("#locks tbody tr")].find((r) => r.querySelector(".c-lock").textContent === %q)?.querySelector(".c-%s").textContent`, lock, class)
}

func (p *tab) acquire(lock, owner string, ttl time.Duration) *lockserver.Hold {
	p.Helper()
	hold, err := p.engine.Acquire(p.Context(), lockserver.AcquireRequest{Lock: lock, Owner: owner, TTL: ttl})
	if err != nil {
		p.Fatalf("acquire %q: %v", lock, err)
	}
	return hold
}

func (p *tab) release(hold *lockserver.Hold) {
	p.Helper()
	if err := p.engine.Release(p.Context(), hold.ID); err != nil {
		p.Fatalf("release: %v", err)
	}
}

// queue puts a waiter behind the holder of lock; its place is kept.
func (p *tab) queue(lock, owner string, n int) {
	p.Helper()
	_, err := p.engine.Acquire(p.Context(), lockserver.AcquireRequest{
		Lock: lock, Owner: owner, Wait: time.Millisecond, KeepPlace: true, IdempotencyKey: fmt.Sprintf("%032x", n),
	})
	if err != nil {
		p.Fatalf("queue for %q: %v", lock, err)
	}
}

func (p *tab) breakHold(lock string, token tokens.Token, reason string) {
	p.Helper()
	if _, err := p.engine.Break(p.Context(), lockserver.BreakRequest{Lock: lock, Token: token, Reason: reason}); err != nil {
		p.Fatalf("break: %v", err)
	}
}

// size makes the tab look like a screen of that width; dark as its user likes it.
func (p *tab) size(width, height int64, dark bool) {
	p.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.do(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		p.Fatal(err)
	}
}
