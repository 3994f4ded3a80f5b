package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fenced/fenced/internal/apierr"
)

// named is a server that tells which it is, and with which key it was called.
func named(t *testing.T, name string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		w.Write([]byte(`{"locks":[{"lock":"` + name + ` by <` + key + `>","state":"free"}]}`))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// The command line comes before the environment, that before the default context; and
// the key of a context never goes to another server.
func TestContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	addr := map[string]string{}
	for _, name := range []string{"prod", "local", "env", "flag"} {
		addr[name] = named(t, name)
	}
	writeFile(t, filepath.Join(dir, "prod.key"), "prod-key\n", 0o600)
	writeFile(t, filepath.Join(dir, "fencectl.yml"), `default: prod
contexts:
  prod:
    addr: `+addr["prod"]+`
    api_key_file: prod.key
  local:
    addr: `+addr["local"]+"\n", 0o600)
	config := filepath.Join(dir, "fencectl.yml")
	for name, tc := range map[string]struct {
		args []string
		env  map[string]string
		want string
	}{
		"default":               {nil, nil, "prod by <prod-key>"},
		"default, key of env":   {nil, map[string]string{"FENCED_API_KEY": "env-key"}, "prod by <env-key>"},
		"named":                 {[]string{"--context", "local"}, nil, "local by <>"},
		"named, key of env":     {[]string{"--context", "local"}, map[string]string{"FENCED_API_KEY": "env-key"}, "local by <env-key>"},
		"named before env":      {[]string{"--context", "prod"}, map[string]string{"FENCED_ADDR": addr["env"], "FENCED_API_KEY": "env-key"}, "prod by <prod-key>"},
		"env before default":    {nil, map[string]string{"FENCED_ADDR": addr["env"]}, "env by <>"},
		"flag before all":       {[]string{"--addr", addr["flag"]}, map[string]string{"FENCED_ADDR": addr["env"]}, "flag by <>"},
		"flag with key of env":  {[]string{"--addr", addr["flag"]}, map[string]string{"FENCED_API_KEY": "env-key"}, "flag by <env-key>"},
		"in the home directory": {[]string{"--context", "prod"}, map[string]string{"FENCED_CONFIG": ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &bundle{T: t, env: map[string]string{"FENCED_CONFIG": config}}
			for k, v := range tc.env {
				b.env[k] = v
			}
			if tc.want == "" {
				if r := b.run(append(tc.args, "ls")...); r.code != apierr.ExitUsage || !strings.Contains(r.err, "it has: none") {
					t.Errorf("%+v", r)
				}
				return
			}
			contains(t, b.ok(append(tc.args, "ls")...), tc.want)
		})
	}
}

func TestContext_Path(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"/x/c.yml":                            {"FENCED_CONFIG": "/x/c.yml", "XDG_CONFIG_HOME": "/xdg", "HOME": "/home/u"},
		"/xdg/fenced/fencectl.yml":            {"XDG_CONFIG_HOME": "/xdg", "HOME": "/home/u"},
		"/home/u/.config/fenced/fencectl.yml": {"HOME": "/home/u"},
	} {
		a := &app{getenv: func(k string) string { return env[k] }}
		if got := a.contextsPath(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestContext_Refusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		file, key string
		mode      os.FileMode
		args      []string
		want      string
	}{
		"no such context":  {"contexts: {a: {}}", "k", 0o600, []string{"--context", "b"}, "it has: a"},
		"unknown field":    {"contexts: {a: {address: x}}", "k", 0o600, []string{"--context", "a"}, "address"},
		"no YAML":          {"contexts: [", "k", 0o600, nil, "fencectl.yml"},
		"open key file":    {"contexts: {a: {api_key_file: key}}", "k", 0o640, []string{"--context", "a"}, "chmod 600"},
		"empty key file":   {"contexts: {a: {api_key_file: key}}", "\n", 0o600, []string{"--context", "a"}, "one key"},
		"two keys":         {"contexts: {a: {api_key_file: key}}", "k\nl\n", 0o600, []string{"--context", "a"}, "one key"},
		"no key file":      {"contexts: {a: {api_key_file: nokey}}", "k", 0o600, []string{"--context", "a"}, "nokey"},
		"addr and context": {"contexts: {a: {}}", "k", 0o600, []string{"--context", "a", "--addr", "b"}, "exclude"},
		"default is wrong": {"default: c", "k", 0o600, nil, `"c"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "fencectl.yml"), tc.file, 0o600)
			writeFile(t, filepath.Join(dir, "key"), tc.key, tc.mode)
			b := &bundle{T: t, env: map[string]string{"FENCED_CONFIG": filepath.Join(dir, "fencectl.yml")}}
			r := b.run(append(tc.args, "ls")...)
			if r.code != apierr.ExitUsage || strings.Count(r.err, "\n") != 1 {
				t.Errorf("%+v", r)
			}
			contains(t, r.err, tc.want)
		})
	}
}

func TestContext_Completion(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "c.yml")
	writeFile(t, path, "contexts: {prod: {}, local: {}}", 0o600)
	b := &bundle{T: t, env: map[string]string{"FENCED_CONFIG": path}}
	contains(t, b.run("__complete", "ls", "--context", "").out, "local\nprod\n")
}
