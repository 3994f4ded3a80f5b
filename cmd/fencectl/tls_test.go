package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/certtest"
)

// setupTLS is a fake server that asks every client for a certificate of the authority.
func setupTLS(t *testing.T) (*bundle, *certtest.Authority) {
	t.Helper()
	ca := certtest.New(t)
	srv := sdktest.New()
	h := ca.Serve(srv)
	t.Cleanup(func() { srv.Close() }) // before h, which waits for its requests
	return &bundle{t, srv, srv.Config(), map[string]string{"FENCED_ADDR": h.URL}}, ca
}

// By flag, environment and context the same files lead to the same server; without
// them it cannot be reached, and a certificate of a context goes to no other address.
func TestTLS(t *testing.T) {
	t.Parallel()
	b, ca := setupTLS(t)
	cert, key := ca.Issue(certtest.Names{Common: "me"})
	url := b.env["FENCED_ADDR"]
	bare := strings.TrimPrefix(url, "https://")
	config := filepath.Join(filepath.Dir(ca.CA()), "fencectl.yml")
	writeFile(t, config, "default: secured\ncontexts:\n  secured:\n    addr: "+url+"\n    ca_file: ca.pem\n    cert_file: "+
		filepath.Base(cert)+"\n    key_file: "+key+"\n", 0o600)
	files := map[string]string{"FENCED_CA": ca.CA(), "FENCED_CERT": cert, "FENCED_KEY": key}
	wrong := map[string]string{"FENCED_CA": "none", "FENCED_CERT": "none", "FENCED_KEY": "none"}
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		code int
	}{
		"flags":                     {[]string{"--addr", bare, "--ca", ca.CA(), "--cert", cert, "--key", key}, nil, 0},
		"environment":               {[]string{"--addr", url}, files, 0},
		"flags before environment":  {[]string{"--addr", bare, "--ca", ca.CA(), "--cert", cert, "--key", key}, wrong, 0},
		"default context":           {nil, nil, 0},
		"named before environment":  {[]string{"--context", "secured"}, wrong, 0},
		"environment before it":     {nil, wrong, apierr.ExitUsage},
		"no authority":              {[]string{"--addr", url, "--cert", cert, "--key", key}, nil, apierr.ExitUnreachable},
		"no certificate":            {[]string{"--addr", url, "--ca", ca.CA()}, nil, apierr.ExitUnreachable},
		"nothing":                   {[]string{"--addr", url}, nil, apierr.ExitUnreachable},
		"a certificate alone":       {[]string{"--addr", url, "--cert", cert}, nil, apierr.ExitUsage},
		"plain address":             {[]string{"--addr", "http://" + bare, "--ca", ca.CA()}, nil, apierr.ExitUsage},
		"no address":                {[]string{"--ca", ca.CA()}, map[string]string{"FENCED_CONFIG": "none"}, apierr.ExitUsage},
		"no file":                   {[]string{"--addr", url, "--ca", "none"}, nil, apierr.ExitUsage},
		"no certificate in it":      {[]string{"--addr", url, "--ca", key}, nil, apierr.ExitUsage},
		"API key in place of a key": {[]string{"--addr", url, "--cert", cert, "--key", "fk_id_secret"}, nil, apierr.ExitUsage},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{T: t, env: map[string]string{"FENCED_CONFIG": config}}
			for k, v := range tc.env {
				b.env[k] = v
			}
			r := b.run(append([]string{"status"}, tc.args...)...)
			if r.code != tc.code || strings.Count(r.err, "\n") > 1 || strings.Contains(r.err, "secret") {
				t.Errorf("%+v, want code %d", r, tc.code)
			}
		})
	}
}

// What is wrong between a server and its caller is named, with what mends it.
func TestHints_OfConnections(t *testing.T) {
	t.Parallel()
	b, ca := setupTLS(t)
	https := b.env["FENCED_ADDR"]
	http := setup(t).env["FENCED_ADDR"]
	type connection struct {
		args []string
		env  map[string]string
		exit int
		code string
		text string
	}
	together(t, map[string]connection{
		"no authority":     {[]string{"--addr", https}, nil, apierr.ExitUnreachable, "unreachable", "--ca or FENCED_CA"},
		"wrong authority":  {[]string{"--addr", https, "--ca", certtest.New(t).CA()}, nil, apierr.ExitUnreachable, "unreachable", "--ca or FENCED_CA"},
		"no certificate":   {[]string{"--addr", https, "--ca", ca.CA()}, nil, apierr.ExitUnreachable, "unreachable", "--cert and --key"},
		"https to http":    {[]string{"--addr", strings.Replace(http, "http:", "https:", 1)}, nil, apierr.ExitUnreachable, "unreachable", "http:// and not https://"},
		"http to https":    {[]string{"--addr", strings.Replace(https, "https:", "http:", 1)}, nil, apierr.ExitUnreachable, "unreachable", "the server wants https"},
		"nobody there":     {[]string{"--addr", "127.0.0.1:1"}, nil, apierr.ExitUnreachable, "unreachable", "is a server running there?"},
		"key with newline": {[]string{"--addr", http}, map[string]string{"FENCED_API_KEY": "fk_a_secret\n"}, apierr.ExitUsage, "malformed", "FENCED_API_KEY"},
		"key with é":       {[]string{"--addr", http}, map[string]string{"FENCED_API_KEY": "fk_a_secrét"}, apierr.ExitUsage, "malformed", "FENCED_API_KEY"},
	}, func(t *testing.T, tc connection) {
		b := &bundle{T: t, env: tc.env}
		r := b.run(append([]string{"status", "-o", "json"}, tc.args...)...)
		var body struct {
			Error struct{ Code, Message, Hint string }
		}
		if err := json.Unmarshal([]byte(r.err), &body); err != nil || r.code != tc.exit || body.Error.Code != tc.code {
			t.Errorf("%+v, want code %q and exit code %d", r, tc.code, tc.exit)
		}
		contains(t, body.Error.Message+body.Error.Hint, tc.text)
		if strings.Contains(r.err, "fk_a") || !strings.Contains(tc.text, "running there?") && strings.Contains(r.err, "running there?") {
			t.Errorf("%q", r.err)
		}
	})
}

// Every kind of command goes through TLS: one that runs another, with its renewals,
// and the one that measures clocks.
func TestTLS_RunAndDoctor(t *testing.T) {
	t.Parallel()
	b, ca := setupTLS(t)
	cert, key := ca.Issue(certtest.Names{Common: "me"})
	b.env["FENCED_CA"], b.env["FENCED_CERT"], b.env["FENCED_KEY"] = ca.CA(), cert, key
	p := b.program("run", "jobs/x", "--ttl", "3s", "--grace", "100ms", "--", "sleep", "2")
	if code := p.code(); code != 0 {
		t.Errorf("run: code %d, %s", code, p.err.String())
	}
	if n := b.srv.Calls(sdktest.Renew); n == 0 {
		t.Error("no renewal came through TLS")
	}
	if r := b.run("doctor"); r.code != apierr.ExitConflict || r.err != "" || !strings.Contains(r.out, "fake") {
		t.Errorf("doctor: %+v", r)
	}
}
