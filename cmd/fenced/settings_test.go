package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

var update = flag.Bool("update", false, "write fenced.yml anew from the table of settings")

const sampleHead = `# Every setting of fenced serve with its default. Give the file with --config.
# A flag (--data-dir) wins over the environment (FENCED_DATA_DIR), that over this
# file, that over the default.
`

// TestSettings_SampleFile pins that fenced.yml has every key, as its help explains
// it, and that reading it changes nothing.
func TestSettings_SampleFile(t *testing.T) {
	t.Parallel()
	want := sampleHead + render(defaultConfig().settings(), func(f *pflag.Flag) (string, string) { return f.Usage, "" })
	if *update {
		if err := os.WriteFile("fenced.yml", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile("fenced.yml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("fenced.yml is not what go test ./cmd/fenced -run SampleFile -update writes (-want +got):\n%s", diff)
	}
	config := defaultConfig()
	from, err := load(config.settings(), func(string) string { return "" }, "fenced.yml")
	if err != nil {
		t.Fatal(err)
	}
	config.PublicHosts, config.EtcdEndpoints = nil, nil // [] is as good as none
	if diff := cmp.Diff(defaultConfig(), config); diff != "" {
		t.Errorf("the sample file differs from the defaults (-want +got):\n%s", diff)
	}
	for name, source := range from {
		if source != "fenced.yml" {
			t.Errorf("%s comes from %s", name, source)
		}
	}
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fenced.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSettings_Precedence sets every setting at all places that have it.
func TestSettings_Precedence(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, `
listen: 127.0.0.1:1
max-ttl: 5m
name: file
public-host: [a.example, b.example]
join: true
`)
	env := map[string]string{"FENCED_MAX_TTL": "6m", "FENCED_NAME": "env", "FENCED_DATA_DIR": "", "FENCED_ETCD_ENDPOINTS": "http://a:1,http://b:2"}
	config := defaultConfig()
	settings := config.settings()
	if err := settings.Parse([]string{"--name", "flag"}); err != nil {
		t.Fatal(err)
	}
	from, err := load(settings, func(name string) string { return env[name] }, path)
	if err != nil {
		t.Fatal(err)
	}
	want := defaultConfig()
	want.Listen, want.MaxTTL, want.Name, want.Join = "127.0.0.1:1", 6*time.Minute, "flag", true
	want.PublicHosts = []string{"a.example", "b.example"}
	want.EtcdEndpoints = []string{"http://a:1", "http://b:2"}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for name, source := range map[string]string{"name": "flag", "max-ttl": "FENCED_MAX_TTL", "listen": path, "data-dir": "default"} {
		if from[name] != source {
			t.Errorf("%s comes from %q, want %q", name, from[name], source)
		}
	}
}

func TestSettings_BadFilesAndVariablesAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`"data_dir" is no setting`: "data_dir: x",
		"already set":              "name: a\nname: b",
		"a list where one value":   "name: [a]",
		"neither a text":           "name: {a: b}",
		"max-ttl, from":            "max-ttl: soon",
		"join, from":               "join: perhaps",
		"config file":              "[",
	}
	for want, text := range tests {
		_, err := load(defaultConfig().settings(), func(string) string { return "" }, writeConfig(t, text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
	if _, err := load(defaultConfig().settings(), os.Getenv, filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing config file was taken")
	}
	_, err := load(defaultConfig().settings(), func(name string) string { return map[string]string{"FENCED_JOIN": "x"}[name] }, "")
	if err == nil || !strings.Contains(err.Error(), "join, from FENCED_JOIN") {
		t.Errorf("got %v", err)
	}
}

func TestSettings_EachIsExplainedInOneLine(t *testing.T) {
	t.Parallel()
	defaultConfig().settings().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" || len(f.Usage) > 120 || strings.Contains(f.Usage, "\n") {
			t.Errorf("--%s: %q", f.Name, f.Usage)
		}
	})
	for name := range secrets {
		if defaultConfig().settings().Lookup(name) == nil {
			t.Errorf("the secret %q is no setting", name)
		}
	}
}

// runCommand runs fenced with arguments and returns what it prints.
func runCommand(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.ExecuteContext(context.WithoutCancel(t.Context()))
	return out.String(), err
}

func TestConfigCommand_MasksSecretsAndIsAConfigFile(t *testing.T) {
	t.Parallel()
	path := writeConfig(t, "etcd-endpoints: http://127.0.0.1:2379\netcd-user: me\netcd-password: s3cret\n")
	out, err := runCommand(t, "config", "--config", path, "--listen", "127.0.0.1:9")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out, "s3cret") || !strings.Contains(out, `etcd-password: "********" # `+path) {
		t.Errorf("the password is not masked:\n%s", out)
	}
	if !strings.Contains(out, `listen: "127.0.0.1:9" # flag`) {
		t.Errorf("the listen address is missing:\n%s", out)
	}
	if _, err := load(defaultConfig().settings(), func(string) string { return "" }, writeConfig(t, out)); err != nil {
		t.Errorf("the output is no config file: %v", err)
	}
}

func TestConfig_SettingsOfAnotherModeAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*Config){
		"--peer-ca needs --initial-cluster":              func(c *Config) { c.PeerCA = "x" },
		"--insecure-peers needs --initial-cluster":       func(c *Config) { c.InsecurePeers = true },
		"--prefix needs --etcd-endpoints":                func(c *Config) { c.Prefix = "/x/" },
		"--initial-cluster and --etcd-endpoints exclude": func(c *Config) { c.InitialCluster, c.EtcdEndpoints = "x", []string{"x"} },
		"--etcd-password and --etcd-password-file": func(c *Config) {
			c.EtcdEndpoints, c.EtcdUser, c.EtcdPassword, c.EtcdPasswordFile = []string{"x"}, "u", "p", "f"
		},
		"--etcd-user and a password": func(c *Config) { c.EtcdEndpoints, c.EtcdUser = []string{"x"}, "u" },
		"--etcd-cert and --etcd-key": func(c *Config) { c.EtcdEndpoints, c.EtcdCert = []string{"x"}, "c" },
	}
	for want, edit := range tests {
		config := defaultConfig()
		edit(config)
		if err := config.validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// TestConfig_AnIssuedFileInTheDataDirectoryIsRefused by whatever name the directory goes.
func TestConfig_AnIssuedFileInTheDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data, link := filepath.Join(dir, "data"), filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(data, 0o700), os.Symlink(data, link)); err != nil {
		t.Fatal(err)
	}
	for file, refused := range map[string]bool{
		filepath.Join(data, "issued"):                true,
		filepath.Join(link, "issued"):                true,
		filepath.Join(data, "member", "new", "file"): true,
		filepath.Join(dir, "data.issued"):            false,
		filepath.Join(dir, "data2", "issued"):        false,
	} {
		config := defaultConfig()
		config.DataDir, config.IssuedFile = data, file
		if err := config.validate(); (err != nil) != refused {
			t.Errorf("%s: %v", file, err)
		}
	}
	config := defaultConfig()
	config.DataDir, config.IssuedFile, config.EtcdEndpoints = data, filepath.Join(data, "issued"), []string{"http://127.0.0.1:1"}
	if err := config.validate(); err != nil {
		t.Errorf("with an external etcd nothing else is there: %v", err)
	}
}

func TestStrays_NamesWhatIsMisspelt(t *testing.T) {
	t.Parallel()
	got := strays(defaultConfig().settings(), []string{
		"FENCED_DATA_DIR=/x", "FENCED_DATADIR=/x", "FENCED_KEYFILE=k", "HOME=/root", "FENCED_API_KEY=fk", "FENCED_CONFIG=f",
		"FENCED_SERVICE_HOST=10.0.0.1", "FENCED_PORT=tcp://10.0.0.1:7420", "FENCED_PORT_7420_TCP=x", "FENCED_TOKEN=1",
	})
	if diff := cmp.Diff([]string{"FENCED_DATADIR", "FENCED_KEYFILE"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
