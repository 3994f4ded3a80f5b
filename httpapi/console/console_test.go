package console_test

import (
	"fmt"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/fenced/fenced/httpapi/console"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/contract"
	"github.com/fenced/fenced/lockserver"
)

// css names an element by its selector.
func css(selector string) chromedp.CSS { return chromedp.CSS(selector) }

func TestFiles(t *testing.T) {
	t.Parallel()
	paths := map[string]bool{}
	for _, file := range console.Files() {
		paths[file.Path] = true
		w := httptest.NewRecorder()
		file.ServeHTTP(w, httptest.NewRequest("GET", file.Path, nil))
		h := w.Header()
		if w.Code != 200 || w.Body.Len() == 0 || h.Get("Content-Type") == "" {
			t.Errorf("%s: status %d, %d bytes, type %q", file.Path, w.Code, w.Body.Len(), h.Get("Content-Type"))
		}
		policy := h.Get("Content-Security-Policy")
		if !strings.HasPrefix(policy, "default-src 'none'; ") || strings.Contains(policy, "unsafe") || !strings.Contains(policy, "require-trusted-types-for") {
			t.Errorf("%s: policy %q", file.Path, policy)
		}
		again := httptest.NewRequest("GET", file.Path, nil)
		again.Header.Set("If-None-Match", h.Get("ETag"))
		w = httptest.NewRecorder()
		if file.ServeHTTP(w, again); w.Code != 304 || w.Body.Len() != 0 {
			t.Errorf("%s: asked again, status %d with %d bytes", file.Path, w.Code, w.Body.Len())
		}
	}
	for _, path := range []string{"/", "/console/js/main.js", "/console/css/console.css", "/console/favicon.svg"} {
		if !paths[path] {
			t.Errorf("%s is missing", path)
		}
	}
}

// Locks that are there when the page comes are shown, and what happens then too.
func TestPage_is_live(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	first := p.acquire("orders/1", "worker-1", 30*time.Second)
	p.open("")
	p.until(cell("orders/1", "holder") + ` === "worker-1"`)
	p.until(cell("orders/1", "token") + fmt.Sprintf(` === "%d"`, first.Token))
	p.until(cell("orders/1", "left") + `.endsWith(" s")`)
	p.until(`document.querySelector("#conn").dataset.state === "live"`)

	second := p.acquire("orders/2", "worker-2", 30*time.Second)
	p.until(cell("orders/2", "token") + fmt.Sprintf(` === "%d"`, second.Token))
	p.queue("orders/2", "worker-3", 1)
	p.until(cell("orders/2", "waiters") + ` === "1"`)
	p.release(second)
	p.until(cell("orders/2", "holder") + ` === "worker-3"`)
	p.until(cell("orders/2", "waiters") + ` === ""`)
	p.release(first)
	p.until(cell("orders/1", "holder") + ` === "free"`)
	p.until(cell("orders/1", "holder") + ` === undefined`)
	feed := eval[[]string](p, `[...document.querySelectorAll(".feed .kind")].map((k) => k.textContent)`)
	if got := strings.Join(feed, " "); got != "released granted released queued granted" {
		t.Errorf("feed, newest first: %s", got)
	}
}

// A renewal is no event; the page sees it all the same.
func TestPage_sees_renewals(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	hold := p.acquire("renewed", "w", 60*time.Second)
	p.open("")
	p.until(`parseFloat(` + cell("renewed", "left") + `) < 58`)
	if _, err := p.engine.Renew(t.Context(), hold.ID); err != nil {
		t.Fatal(err)
	}
	p.until(`parseFloat(` + cell("renewed", "left") + `) >= 59 || ` + cell("renewed", "left") + ` === "1 min"`)
}

func TestPage_filters(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	for _, lock := range []string{"orders/1", "orders/2", "stock/1"} {
		p.acquire(lock, "owner-of-"+lock, time.Minute)
	}
	p.open("")
	p.until(`document.querySelectorAll("#locks tbody tr").length === 3`)
	// From anywhere on the page, / goes to the filter; the arrow goes on to the rows.
	p.do(chromedp.KeyEvent("/"))
	p.until(`document.activeElement.id === "filter"`)
	// The driver types the / of the shortcut too, which no browser does.
	eval[string](p, `document.activeElement.value = ""`)
	p.do(chromedp.KeyEvent("ORDERS/"))
	p.until(`document.querySelectorAll("#locks tbody tr").length === 2`)
	p.until(`document.querySelector("#summary").textContent === "2 of 3 locks"`)
	p.do(chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	if got := eval[string](p, `document.activeElement.textContent`); got != "orders/2" {
		t.Errorf("the arrows lead to %q", got)
	}
	eval[string](p, `document.querySelector("#filter").value = ""`)
	p.do(chromedp.SendKeys(css("#filter"), "owner-of-stock"))
	p.until(cell("stock/1", "holder") + ` === "owner-of-stock/1"`)
	p.until(`document.querySelectorAll("#locks tbody tr").length === 1`)
	p.do(chromedp.SendKeys(css("#filter"), "nothing"))
	p.until(`document.querySelector(".empty:not([hidden])")?.textContent.startsWith("No lock matches")`)
}

// past gives a lock one grant of each end, a holder and a waiter.
func past(p *tab, lock string) *lockserver.Hold {
	p.Helper()
	p.release(p.acquire(lock, "released-one", time.Minute))
	p.breakHold(lock, p.acquire(lock, "broken-one", time.Minute).Token, "host is down")
	p.acquire(lock, "expired-one", time.Second)
	hold, err := p.engine.Acquire(p.Context(), lockserver.AcquireRequest{
		Lock: lock, Owner: "holder", TTL: time.Minute, Wait: 10 * time.Second, Metadata: map[string]string{"host": "db-3"},
	})
	if err != nil {
		p.Fatal(err)
	}
	p.queue(lock, "waiter", 7)
	return hold
}

func TestLockPage(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	hold := past(p, "orders/42")
	p.open("")
	p.do(chromedp.Click(css(".lock-link")))
	p.until(`document.querySelector(".facts-list .big")?.textContent === "` + hold.Token.String() + `"`)
	p.until(`document.querySelector(".queue .name")?.textContent === "waiter"`)
	p.until(`document.querySelector(".facts-list").textContent.includes("db-3")`)
	ends := `[...document.querySelectorAll(".past .end")].map((e) => e.textContent).join(" ")`
	p.until(ends + ` === "expired broken released"`)
	p.until(`document.querySelector(".past").textContent.includes("host is down")`)
	// The picture has a bar for each, whose sign differs in shape and in colour.
	picture := eval[[]string](p, `[...document.querySelectorAll(".timeline .span")].map((s) => s.getAttribute("class"))`)
	if got := strings.Join(picture, ","); got != "span k-queued,span k-held,span k-expired,span k-broken,span k-released" {
		t.Errorf("the picture has %s", got)
	}
	for what, script := range map[string]string{
		"shapes":  `new Set([...document.querySelectorAll(".timeline .mark path")].map((m) => m.getAttribute("d"))).size`,
		"colours": `new Set([...document.querySelectorAll(".timeline .hold")].map((m) => getComputedStyle(m).fill)).size`,
	} {
		if got := eval[int](p, script); got < 4 {
			t.Errorf("%d different %s", got, what)
		}
	}
	p.release(hold)
	p.until(`document.querySelector(".facts-list dd .name")?.textContent === "waiter"`)
	p.until(ends + ` === "released expired broken released"`)
	p.do(chromedp.KeyEvent(kb.Escape))
	p.until(`document.querySelector("#locks")`)
}

func TestBreak(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	hold := p.acquire("orders/9", "stuck", time.Minute)
	p.open("#/lock?name=orders%2F9")
	p.do(chromedp.Click(css(".lock-head .danger")))
	p.until(`document.querySelector("#break[open]")?.textContent.includes("A break does not fence")`)
	if text := eval[string](p, `document.querySelector("#break").textContent`); !strings.Contains(text, "Break token "+hold.Token.String()) {
		t.Errorf("the token seen is not in %q", text)
	}
	// Without a reason nothing is broken.
	p.do(chromedp.KeyEvent(kb.Enter))
	p.until(`document.querySelector("#break-error").textContent.startsWith("Say why")`)
	p.do(chromedp.SendKeys(css("#break-reason"), "host is <b>down</b>"), chromedp.KeyEvent(kb.Enter))
	p.until(`!document.querySelector("#break").open && document.querySelector(".badge").textContent === "free"`)
	p.until(`document.querySelector(".past")?.textContent.includes("host is <b>down</b>")`)
	if _, err := p.engine.Renew(t.Context(), hold.ID); err == nil {
		t.Error("the hold lives on")
	}
}

// A break names the token that was seen: who came since is safe from it.
func TestBreak_spares_a_newcomer(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	old := p.acquire("a", "old", time.Minute)
	p.open("#/lock?name=a")
	p.do(chromedp.Click(css(".lock-head .danger")), chromedp.SendKeys(css("#break-reason"), "stuck"))
	p.release(old)
	newcomer := p.acquire("a", "new", time.Minute)
	p.do(chromedp.Click(css("#break .danger")))
	p.until(`document.querySelector("#break-error").textContent.startsWith("The holder has changed")`)
	if _, err := p.engine.Renew(t.Context(), newcomer.ID); err != nil {
		t.Errorf("the newcomer was hit: %v", err)
	}
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	newKey := func(name string, role keys.Role) string {
		text, key, err := apikey.Generate(name, []apikey.Grant{{Role: role, Prefixes: []string{"orders/"}}}, apikey.Quota{})
		if err != nil {
			t.Fatal(err)
		}
		if err := apikey.Add(path, key); err != nil {
			t.Fatal(err)
		}
		return text
	}
	text, onCall := newKey("reader", keys.Read), newKey("on call", keys.Admin)
	store, err := keys.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := openTab(t, store)
	p.acquire("orders/1", "w", time.Minute)
	p.acquire("stock/1", "w", time.Minute)
	p.open("")
	signIn := func(key, prefix string) {
		p.until(`document.activeElement?.id === "key"`)
		p.do(chromedp.SendKeys(css("#key"), key), chromedp.SendKeys(css("#prefix"), prefix+kb.Enter))
	}
	signIn("fk_aaaaaaaaaa_"+strings.Repeat("a", 52), "")
	p.until(`document.querySelector(".sign-in .error")?.textContent === "The server does not know this key."`)
	signIn(text, "")
	p.until(`document.querySelector(".sign-in .error")?.textContent.includes("give a prefix")`)
	signIn(text, "orders/")
	p.until(cell("orders/1", "holder") + ` === "w"`)
	p.until(`document.querySelector("#conn").dataset.state === "live"`)
	if n := eval[int](p, `document.querySelectorAll("#locks tbody tr").length`); n != 1 {
		t.Errorf("%d rows", n)
	}
	p.do(chromedp.Click(css(".lock-link")))
	p.until(`document.querySelector(".badge").textContent === "held"`)
	// A reader is not offered a break: once its grants are known, a tick later.
	p.until(`performance.getEntriesByType("resource").some((e) => e.name.endsWith("/v1/whoami"))`)
	left := `document.querySelector(".facts-list .left").textContent`
	p.until(left + fmt.Sprintf(` !== %q`, eval[string](p, left)))
	if !eval[bool](p, `document.querySelector(".lock-head .danger").hidden`) {
		t.Error("a reader is offered a break")
	}
	// The key is kept for this tab only, and nowhere after signing out.
	p.do(chromedp.Reload())
	p.until(`document.querySelector(".facts-list .big")`)
	if kept := eval[string](p, `document.cookie + JSON.stringify(localStorage)`); kept != "{}" {
		t.Errorf("kept outside the session: %s", kept)
	}
	p.do(chromedp.Click(css("#sign-out")))
	p.until(`document.querySelector("#key") && sessionStorage.length === 0`)
	signIn(onCall, "orders/")
	p.until(`document.querySelector(".lock-head .danger")?.hidden === false`)
}

// Names are text wherever they stand, and lead to their own lock and no other's.
func TestPage_shows_hostile_names_as_text(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	names := contract.Names
	for _, lock := range names {
		owner := lock
		if len(owner) > 128 {
			owner = owner[:128] // a name of that length is ASCII
		}
		p.acquire(lock, owner, time.Minute)
	}
	p.open("")
	p.until(fmt.Sprintf(`document.querySelectorAll("#locks tbody tr").length === %d`, len(names)))
	for _, lock := range names {
		p.do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`[...document.querySelectorAll("#locks .lock-link")].find((a) => a.textContent === %q).click()`, lock)))
		p.until(fmt.Sprintf(`document.querySelector("h1 .name")?.textContent === %q && document.querySelector(".facts-list dd .name")?.textContent === %q`, lock, lock[:min(len(lock), 128)]))
		p.do(chromedp.Click(css(".crumb a")))
		p.until(`document.querySelectorAll("#locks tbody tr").length > 0`)
	}
	if n := eval[int](p, `document.querySelectorAll("main script, main img, main svg[onload]").length`); n != 0 {
		t.Errorf("%d elements came out of names", n)
	}
	if got := eval[string](p, `document.title`); got != "fenced" {
		t.Errorf("title %q", got)
	}
}
