package main

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// contextsFile is what stands in the file of contexts.
type contextsFile struct {
	// Default names the context that is used where none is named.
	Default  string                `json:"default"`
	Contexts map[string]deployment `json:"contexts"`
}

// deployment is one context: where its servers are, and the key for them.
type deployment struct {
	// Addr is as the flag --addr.
	Addr string `json:"addr"`
	// APIKeyFile is a file with an API key; a path that is not absolute starts at the
	// directory of the file of contexts.
	APIKeyFile string `json:"api_key_file"`
	// The files of --ca, --cert and --key; their paths are as that of APIKeyFile.
	CAFile   string `json:"ca_file"`
	CertFile string `json:"cert_file"`
	KeyFile  string `json:"key_file"`
}

// contextsPath is where the file of contexts lies.
func (a *app) contextsPath() string {
	if path := a.getenv("FENCED_CONFIG"); path != "" {
		return path
	}
	base := a.getenv("XDG_CONFIG_HOME")
	if base == "" {
		base = filepath.Join(a.getenv("HOME"), ".config")
	}
	return filepath.Join(base, "fenced", "fencectl.yml")
}

// contexts reads the file of contexts. One that is not there is empty.
func (a *app) contexts() (*contextsFile, error) {
	path := a.contextsPath()
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return &contextsFile{}, nil
	}
	if err != nil {
		return nil, usage("config file: %w", err)
	}
	file := new(contextsFile)
	if err := yaml.UnmarshalStrict(text, file); err != nil {
		return nil, usage("config file %s: %w", path, err)
	}
	return file, nil
}

// target is where the servers are, and by what they and we know each other.
type target struct {
	addr, key string
	tls       tlsFiles
}

// target finds the servers. What the command line names comes first, then the
// environment, then the default context. The key and the certificate of a context go
// to the addresses of that context and to no others.
func (a *app) target() (target, error) {
	env := target{a.getenv("FENCED_ADDR"), a.getenv("FENCED_API_KEY"),
		tlsFiles{a.getenv("FENCED_CA"), a.getenv("FENCED_CERT"), a.getenv("FENCED_KEY")}}
	own := env
	own.tls = a.tls.or(env.tls)
	switch {
	case a.addr != "" && a.context != "":
		return target{}, usage("--addr and --context exclude each other")
	case a.addr != "":
		own.addr = a.addr
		return own, nil
	case a.context == "" && env.addr != "":
		return own, nil
	}
	file, err := a.contexts()
	if err != nil {
		return target{}, err
	}
	name := cmp.Or(a.context, file.Default)
	if name == "" {
		return own, nil
	}
	c, ok := file.Contexts[name]
	if !ok {
		return target{}, usage("%s has no context %q; it has: %s", a.contextsPath(), name, file.names())
	}
	return a.ofContext(c, env)
}

// ofContext is the target of a context. The environment comes before the default
// context and after one that was named.
func (a *app) ofContext(c deployment, env target) (target, error) {
	t := target{c.Addr, env.key, tlsFiles{a.beside(c.CAFile), a.beside(c.CertFile), a.beside(c.KeyFile)}}
	if a.context == "" {
		t.tls = env.tls.or(t.tls)
	} else {
		t.tls = t.tls.or(env.tls)
	}
	t.tls = a.tls.or(t.tls)
	if env.key != "" && a.context == "" || c.APIKeyFile == "" {
		return t, nil
	}
	var err error
	t.key, err = readKey(a.beside(c.APIKeyFile))
	return t, err
}

// beside resolves a path of the config file, which may be empty.
func (a *app) beside(path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(a.contextsPath()), path)
}

func (f *contextsFile) names() string {
	if len(f.Contexts) == 0 {
		return "none"
	}
	return strings.Join(slices.Sorted(maps.Keys(f.Contexts)), ", ")
}

// readKey reads a file that holds one API key, which nobody else may read.
func readKey(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", usage("API key file: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return "", usage("API key file %s: mode %v lets others read it; run chmod 600", path, mode)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", usage("API key file: %w", err)
	}
	key := strings.TrimSpace(string(text))
	if key == "" || !oneKey(key) {
		return "", usage("API key file %s: it must hold one key and nothing more", path)
	}
	return key, nil
}

// oneKey reports whether text can be one API key.
func oneKey(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// completeContext offers the names of the file.
func (a *app) completeContext(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	file, err := a.contexts()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(file.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

func contextsTopic() *cobra.Command {
	return &cobra.Command{Use: "contexts", Short: "Where servers, keys and certificates are named", Long: `Where fencectl finds the servers and the API key.

The first of these that is there counts:

  1. --addr, with the key of FENCED_API_KEY
  2. --context NAME, a context of the config file, with its key; with that of
     FENCED_API_KEY where it names none
  3. FENCED_ADDR, with the key of FENCED_API_KEY
  4. the default context of the config file, with the key of FENCED_API_KEY, or else
     its own

The key of a context is sent to the servers of that context and to no others. The config
file is $FENCED_CONFIG, or else fencectl.yml in $XDG_CONFIG_HOME/fenced, which is
~/.config/fenced unless set:

  default: local
  contexts:
    local:
      addr: http://127.0.0.1:7420
    production:
      addr: https://fenced-1:7420,https://fenced-2:7420,https://fenced-3:7420
      api_key_file: production.key
      ca_file: production-ca.pem
      cert_file: me.pem
      key_file: me.key

An API key file holds one key, as "fencectl key new" prints it, and is refused where
others may read it. Paths start at the directory of the config file.

Files for TLS can be given in the same three ways: by the flags --ca, --cert and --key,
which come first, by FENCED_CA, FENCED_CERT and FENCED_KEY, and by a context. Without a
file of authorities the system's count. The certificate and its private key are for
servers that ask for one (--tls-client-ca). An address without a scheme is https then.`}
}
