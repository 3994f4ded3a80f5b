package console_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// script runs the body of an async function in the page, with the page's own
// modules at hand, and returns its result as text.
func (p *tab) script(body string) string {
	p.Helper()
	text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string](`(async () => {
		const [{ Model, compare }, { Parser }, { timeline }, format] =
			await Promise.all(["model", "api", "timeline", "format"].map((f) => import("/console/js/" + f + ".js")));
		`+body+`
	})()`, chromedp.EvalAwaitPromise))
	if err != nil {
		p.Fatalf("script: %v", err)
	}
	return text
}

func TestScripts(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	p.open("")
	for name, tt := range map[string]struct{ body, want string }{
		"names sort by the bytes of their UTF-8": {
			`return ["😀", "\uffee", "b", "a", "ab", "é"].sort(compare).join(" ")`, "a ab b é \uffee 😀",
		},
		"events are read whole from any pieces": {
			`const text = "retry: 2000\nid: 4.0\n\n: heartbeat\nid: 5.0\n\nid: 6.1\r\nevent: granted\ndata: {\"lock\":\"a: b\"}\n\n";
			 const got = new Set();
			 for (let cut = 0; cut <= text.length; cut++) {
				const seen = [];
				const parser = new Parser((kind, data, id) => seen.push(kind, data, id));
				parser.feed(text.slice(0, cut)); parser.feed(text.slice(cut));
				got.add(seen.join("|") + "|" + parser.id);
			 }
			 return [...got].join("; ")`, `granted|{"lock":"a: b"}|6.1|6.1`,
		},
		"an event that is not whole is not behind us": {
			`const ids = new Set();
			 for (const cut of ["", "id: 6.1", "id: 6.1\n", "id: 6.1\nevent: granted\ndata: {}", "id: 6.1\nevent: granted\ndata: {}\n"]) {
				const parser = new Parser(() => ids.add("emitted"));
				parser.feed("id: 5.0\n\n" + cut);
				ids.add(parser.id);
			 }
			 return [...ids].join(" ")`, "5.0",
		},
		"a page of the list does not undo newer events": {
			`const m = new Model();
			 m.apply("granted", { lock: "a", ref: "r9", owner: "new", token: 9 }, "9.0");
			 m.apply("queued", { lock: "a", ref: "r10" }, "10.0");
			 m.merge(m.chunks[0], { revision: 8, locks: [{ lock: "a", waiters: 5, holder: { owner: "old", token: 7, ttl_ms: 1, expires_in_ms: 1 } }] });
			 const { holder, waiters } = m.locks.get("a");
			 return holder.owner + " " + waiters`, "new 1",
		},
		"events that a page of the list has already are left out": {
			`const m = new Model();
			 m.merge(m.chunks[0], { revision: 8, locks: [{ lock: "a", waiters: 1, holder: { owner: "w", token: 7, ttl_ms: 1 } }] });
			 m.apply("queued", { lock: "a" }, "8.0");
			 m.apply("released", { lock: "a", token: 7 }, "9.0");
			 m.apply("granted", { lock: "a", owner: "next", token: 8 }, "9.1");
			 const { holder, waiters } = m.locks.get("a");
			 return holder.owner + " " + waiters`, "next 0",
		},
		"a lock that left the list is free, one behind the page is not": {
			`const m = new Model();
			 const item = (lock) => ({ lock, waiters: 0, holder: { owner: "w", token: 1, ttl_ms: 1 } });
			 m.merge(m.chunks[0], { revision: 5, cursor: "Yg", locks: [item("a"), item("b")] });
			 m.merge(m.chunks[1], { revision: 5, locks: [item("c")] });
			 m.merge(m.chunks[0], { revision: 6, cursor: "Yg", locks: [item("b")] });
			 return ["a", "b", "c"].map((n) => m.locks.get(n).holder ? "held" : "free").join(" ")`, "free held held",
		},
		"pages of the list leave no gap when they shrink or grow": {
			`const m = new Model();
			 const page = (names, cursor) => ({ revision: 5, cursor, locks: names.map((lock) => ({ lock, waiters: 0 })) });
			 m.merge(m.chunks[0], page(["a", "d"], "ZA"));
			 m.merge(m.chunks[1], page(["e", "h"], "aA"));
			 m.merge(m.chunks[2], page(["i"]));
			 m.merge(m.chunks[0], page(["a", "b"], "Yg"));
			 m.merge(m.chunks[1], page(["c", "f"], "Zg"));
			 m.merge(m.chunks[0], page(["a", "g"], "Zw"));
			 return m.chunks.map((c) => c.start + "-" + c.end).join(" ")`, "-g d-h h-null",
		},
		"the picture folds the time in which nothing happened": {
			`const at = (s) => new Date(1e12 + s * 1000).toISOString();
			 const end = (token, from, to) => ({ owner: "w", token, since: at(from), ended_at: at(to), ended: "released" });
			 const picture = timeline({ queue: [], holder: null, history: [end(2, 90000, 90010), end(1, 0, 10)] }, 1e12 + 90010e3, 900);
			 const [a, b] = [...picture.querySelectorAll(".hold")].map((r) => Number(r.getAttribute("width")));
			 return picture.querySelector(".fold-text").textContent + ", as wide: " + (Math.abs(a - b) < 1 && a > 200)`, "free 25 h, as wide: true",
		},
		"durations read well": {
			`return [0, 12, 999.7, 9940, 9960, 59600, 61000, 125000, 3600000, 5400000, 260000000].map(format.duration).join(", ")`,
			"under 1 ms, 12 ms, 1.0 s, 9.9 s, 10 s, 60 s, 61 s, 2 min 5 s, 1 h, 1 h 30 min, 3 d",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.script(tt.body); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// A stream that is cut comes back by itself, behind the last event it had.
func TestPage_comes_back(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	p.open("")
	p.until(`document.querySelector("#conn").dataset.state === "live"`) // the feed begins with the stream
	p.acquire("before", "w", time.Minute)
	p.until(`document.querySelectorAll(".feed li").length === 1`)
	p.server.CloseClientConnections()
	p.until(`document.querySelector("#conn").dataset.state === "reconnecting"`)
	hold := p.acquire("meanwhile", "w", time.Minute)
	p.until(`document.querySelector("#conn").dataset.state === "live"`)
	p.until(`document.querySelectorAll(".feed li").length === 2`)
	p.until(cell("meanwhile", "token") + fmt.Sprintf(` === "%d"`, hold.Token))
}

func TestPage_pauses(t *testing.T) {
	t.Parallel()
	p := openTab(t, nil)
	p.open("")
	p.until(`document.querySelector("#conn").dataset.state === "live"`)
	p.do(chromedp.Click(css("#pause")))
	p.acquire("a", "w", time.Minute)
	// The header goes on; what people read stands still.
	p.until(`document.querySelector("#stats dd")?.textContent === "1"`)
	if n := eval[int](p, `document.querySelectorAll("#locks tbody tr, .feed li").length`); n != 0 {
		t.Errorf("%d rows appeared", n)
	}
	p.do(chromedp.Click(css("#pause")))
	p.until(`document.querySelectorAll("#locks tbody tr, .feed li").length === 2`)
}
