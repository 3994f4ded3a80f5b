package contract

import (
	"context"
	"fmt"
	"net/url"
	"testing"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
)

// Keys are API keys of a server: each role over the locks that start with Prefix, and
// one over every lock.
type Keys struct {
	Prefix            string
	Read, Lock, Admin string
	Root              string
}

// RunAccess runs what a server with API keys must refuse and allow.
func RunAccess(t *testing.T, s Server, keys Keys) {
	callers := []struct{ name, key string }{
		{"nobody", ""}, {"a stranger", "fk_aaaaaaaaaa_" + fmt.Sprintf("%052d", 0)},
		{"read", keys.Read}, {"lock", keys.Lock}, {"admin", keys.Admin}, {"root", keys.Root},
	}
	mine, other := keys.Prefix+"1", "other/1"
	body := func(lock string) any { return wire.AcquireRequest{Lock: lock, Owner: "access", TTL: "30s"} }
	items := func(lock string) any { return []wire.CheckItem{{Lock: lock, Token: 1}} }
	breaking := func(lock string) any { return wire.BreakRequest{Lock: lock, Token: 1, Reason: "access"} }
	const no, bad, unknown = 401, 403, "/aaaaaaaaaaaaaaaaaaaaaaaaaa"
	for _, tt := range []struct {
		method, path string
		body         any
		want         [6]int
	}{
		{"GET", "/healthz", nil, [6]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/readyz", nil, [6]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/v1/status", nil, [6]int{no, no, 200, 200, 200, 200}},
		{"GET", "/v1/whoami", nil, [6]int{no, no, 200, 200, 200, 200}},
		{"GET", "/v1/sessions", nil, [6]int{no, no, 200, 200, 200, 200}},
		{"GET", "/v1/lock?name=" + url.QueryEscape(mine), nil, [6]int{no, no, 200, 200, 200, 200}},
		{"GET", "/v1/lock?name=" + url.QueryEscape(other), nil, [6]int{no, no, bad, bad, bad, 200}},
		{"GET", "/v1/locks?prefix=" + url.QueryEscape(keys.Prefix), nil, [6]int{no, no, 200, 200, 200, 200}},
		{"GET", "/v1/locks", nil, [6]int{no, no, bad, bad, bad, 200}},
		{"GET", "/v1/events?prefix=other", nil, [6]int{no, no, bad, bad, bad, 0}},
		{"POST", "/v1/check", items(mine), [6]int{no, no, 412, 412, 412, 412}},
		{"POST", "/v1/check", items(other), [6]int{no, no, bad, bad, bad, 412}},
		{"POST", "/v1/holds", body(mine), [6]int{no, no, bad, 201, 409, 409}},
		{"POST", "/v1/holds", body(other), [6]int{no, no, bad, bad, bad, 201}},
		{"GET", "/v1/holds" + unknown, nil, [6]int{no, no, bad, 410, 410, 410}},
		{"POST", "/v1/holds" + unknown + "/renew", nil, [6]int{no, no, bad, 410, 410, 410}},
		{"DELETE", "/v1/holds" + unknown, nil, [6]int{no, no, bad, 410, 410, 410}},
		{"POST", "/v1/sessions", wire.SessionRequest{Owner: "access"}, [6]int{no, no, bad, 201, 201, 201}},
		{"POST", "/v1/sessions" + unknown + "/renew", nil, [6]int{no, no, bad, 410, 410, 410}},
		{"POST", "/v1/break", breaking(mine), [6]int{no, no, bad, bad, 409, 409}},
		{"POST", "/v1/break", breaking(other), [6]int{no, no, bad, bad, bad, 409}},
		{"POST", "/v1/floor", wire.FloorRequest{}, [6]int{no, no, bad, bad, bad, 0}},
		{"GET", "/v1/members", nil, [6]int{no, no, bad, bad, bad, 0}},
	} {
		for i, caller := range callers {
			if tt.want[i] == 0 {
				continue // a stream, or what ends all holds
			}
			as := s
			as.Config.APIKey = caller.key
			b := &bundle{T: t, s: as}
			got := b.do(tt.method, tt.path, "", tt.body)
			if got.status != tt.want[i] {
				t.Errorf("%s %s by %s: %d, want %d: %s", tt.method, tt.path, caller.name, got.status, tt.want[i], got.body)
			}
			switch got.status {
			case no:
				got.refuses(apierr.Unauthorized)
			case bad:
				got.refuses(apierr.Forbidden)
			}
		}
	}
	accessThroughTheSDK(t, s, keys)
}

// accessThroughTheSDK: the key of the config goes along with every call.
func accessThroughTheSDK(t *testing.T, s Server, keys Keys) {
	cfg := s.Config
	cfg.APIKey, cfg.TTL = keys.Lock, ttl
	client, err := clientsdk.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	err = client.Do(t.Context(), keys.Prefix+"sdk", func(ctx context.Context) error {
		_, err := client.Lock(ctx, keys.Prefix+"sdk")
		return err
	})
	if err != nil {
		t.Errorf("with the key: %v", err)
	}
}
