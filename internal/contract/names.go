package contract

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// Names are lock names that something on the way could take for something else: each
// is one lock of its own, everywhere.
var Names = []string{
	"/", "//", "///", "a/b", "a//b", "%2F", "%2f", "%252F", "%00", ".", "..", "a/../b", "b", ";", "a;b", "?", "a?b=c", "#", "a#b",
	" ", "  ", "a b", "a  b", "+", "a+b", "a%20b", "&", "name=x", "é", "e", "É", "漢字", "שלום", "👩", "-", "--", "-o", "$(id)", "'", `"`, `\`, "`id`",
	"<script>document.title='x'</script>", `<img src=x onerror="document.title='x'">`, `"><svg onload=alert(1)>`, "javascript:alert(1)",
	"__proto__", "constructor", "null", "0", "[]", "{}", strings.Repeat("n", 511), strings.Repeat("n", 512),
}

// NoNames are refused: what is stored would not be what was sent, or not what is seen.
var NoNames = map[string]string{
	"empty": "", "513 bytes": strings.Repeat("n", 513), "decomposed é": "e\u0301", "zero width space": "a\u200bb", "joiner": "a\u200db",
	"right-to-left mark": "a\u200fb", "right-to-left override": "a\u202eb", "carriage return": "a\rb", "line feed": "a\nb",
	"CR LF and a header": "a\r\nX-Evil: 1", "NUL": "a\x00b", "escape": "a\x1b[2J", "DEL": "a\x7f", "line separator": "a\u2028b",
	"byte order mark": "\ufeffa", "private use": "\ue000", "unassigned": "\u0378", "no UTF-8": "a\xffb",
}

// CLI runs one command line of fencectl against the server of a test.
type CLI func(t *testing.T, args ...string) (exit int, stdout, stderr string)

// RunNames runs both tables through raw HTTP, the SDK and the command line. The server
// must be a fresh one: every name is held at the same time.
func RunNames(t *testing.T, s Server, cli CLI) {
	client, err := clientsdk.New(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	ways := []func(*bundle) wire.Hold{nameThroughHTTP, nameThroughSDK, func(b *bundle) wire.Hold { return nameThroughCLI(b, cli) }}
	held := map[string]wire.Hold{}
	for i, name := range Names {
		b := &bundle{T: t, s: s, client: client, lock: name}
		held[name] = ways[i%len(ways)](b)
	}
	for _, name := range Names {
		b := &bundle{T: t, s: s, client: client, lock: name}
		b.isHeldEverywhere(held[name], cli)
	}
	for why, name := range NoNames {
		b := &bundle{T: t, s: s, client: client, lock: name}
		b.isRefusedEverywhere(why, cli)
	}
}

func nameThroughHTTP(b *bundle) wire.Hold {
	h := b.acquire("", nil).is(http.StatusCreated).hold()
	if h.Lock != b.lock {
		b.Errorf("HTTP: %q is held as %q", b.lock, h.Lock)
	}
	return h
}

func nameThroughSDK(b *bundle) wire.Hold {
	h, err := b.client.TryAcquire(b.Context(), b.lock, nil)
	if err != nil {
		b.Fatalf("SDK: %v", err)
	}
	if h.Lock() != b.lock {
		b.Errorf("SDK: %q is held as %q", b.lock, h.Lock())
	}
	return wire.Hold{Lock: h.Lock(), Token: h.Token(), Ref: h.Ref()}
}

func nameThroughCLI(b *bundle, cli CLI) (h wire.Hold) {
	exit, stdout, stderr := cli(b.T, "acquire", "--try", "--ttl", "1m", "-o", "json", "--", b.lock)
	if exit != 0 {
		b.Fatalf("CLI: acquire %q: %d %s", b.lock, exit, stderr)
	}
	if err := json.Unmarshal([]byte(stdout), &h); err != nil || h.Lock != b.lock {
		b.Errorf("CLI: %q is held as %q, %v", b.lock, h.Lock, err)
	}
	return h
}

// isHeldEverywhere wants all three to see this lock, with that token.
func (b *bundle) isHeldEverywhere(want wire.Hold, cli CLI) {
	b.Helper()
	var raw wire.Lock
	b.do(http.MethodGet, "/v1/lock?name="+url.QueryEscape(b.lock), "", nil).is(http.StatusOK).into(&raw)
	sdk := b.info()
	exit, stdout, stderr := cli(b.T, "get", "-o", "json", "--", b.lock)
	var line wire.Lock
	if err := json.Unmarshal([]byte(stdout), &line); exit != 0 || err != nil {
		b.Fatalf("CLI: get %q: %d %s", b.lock, exit, stderr)
	}
	for way, got := range map[string]wire.Lock{"HTTP": raw, "SDK": sdk, "CLI": line} {
		if got.Lock != b.lock || got.Holder == nil || got.Holder.Token != want.Token {
			b.Errorf("%s: %q shows as %q with %+v, want token %d", way, b.lock, got.Lock, got.Holder, want.Token)
		}
	}
	b.acquire("", nil).refuses(apierr.LockHeld)
	results, err := b.client.Check(b.Context(), []clientsdk.CheckItem{{Lock: b.lock, Token: want.Token}})
	if err != nil || results[0].Result != "valid" || results[0].Lock != b.lock {
		b.Errorf("check of %q: %+v, %v", b.lock, results, err)
	}
	page, err := b.client.Locks(b.Context(), &clientsdk.LocksQuery{Prefix: b.lock, Limit: 1})
	if err != nil || len(page.Locks) != 1 || page.Locks[0].Lock != b.lock {
		b.Errorf("list from %q: %+v, %v", b.lock, page, err)
	}
}

// isRefusedEverywhere wants out_of_bounds, or malformed where JSON or the query could
// not even be read.
func (b *bundle) isRefusedEverywhere(why string, cli CLI) {
	b.Helper()
	for what, a := range map[string]answer{
		"acquire": b.sendBody("/v1/holds", `{"owner":"contract","lock":`+rawJSON(b.lock)+`}`),
		"check":   b.sendBody("/v1/check", `[{"token":1,"lock":`+rawJSON(b.lock)+`}]`),
		"break":   b.sendBody("/v1/break", `{"token":1,"reason":"r","lock":`+rawJSON(b.lock)+`}`),
		"get":     b.do(http.MethodGet, "/v1/lock?name="+url.QueryEscape(b.lock), "", nil),
	} {
		if a.status == http.StatusBadRequest && why == "no UTF-8" {
			a.refuses(apierr.Malformed)
			continue
		}
		if p := a.refuses(apierr.OutOfBounds); p.Field == "" || p.Limit == "" {
			b.Errorf("HTTP: %s with %s: field %q, limit %q", what, why, p.Field, p.Limit)
		}
	}
	_, err := b.client.TryAcquire(b.Context(), b.lock, nil)
	var api *clientsdk.APIError
	if !errors.As(err, &api) || api.Code() != apierr.OutOfBounds || api.Field != "lock" {
		b.Errorf("SDK: acquire with %s: %v", why, err)
	}
	exit, _, stderr := cli(b.T, "acquire", "--try", "-o", "json", "--", b.lock)
	if code := cliCode(b.T, stderr); exit != apierr.ExitUsage || code != apierr.OutOfBounds {
		b.Errorf("CLI: acquire with %s: %d, %s: %s", why, exit, code, stderr)
	}
}

// rawJSON escapes nothing that JSON lets pass: a name must arrive as it is.
func rawJSON(s string) string {
	var out strings.Builder
	out.WriteByte('"')
	for _, c := range []byte(s) {
		if c < ' ' || c == '"' || c == '\\' {
			fmt.Fprintf(&out, `\u%04x`, c)
		} else {
			out.WriteByte(c)
		}
	}
	out.WriteByte('"')
	return out.String()
}

func (b *bundle) sendBody(path, body string) answer {
	b.Helper()
	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, b.s.URL+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return b.send(req)
}

// cliCode is the code of an error that fencectl printed with -o json.
func cliCode(t *testing.T, stderr string) apierr.Code {
	t.Helper()
	var body struct {
		Error struct {
			Code apierr.Code
			Exit int
		}
	}
	if err := json.Unmarshal([]byte(stderr), &body); err != nil {
		t.Errorf("CLI: stderr %q: %v", stderr, err)
	}
	return body.Error.Code
}
