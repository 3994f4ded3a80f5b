// Command keys makes the API keys of the deployment in docker-compose.yml: one for
// people, which it prints this once, and one each for the reward workers and for
// Prometheus, which find theirs in a file.
//
// It is given the directory. Where the key file is there already it changes nothing;
// the key file is the last that it writes, so a run that was cut off begins anew.
package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/fenced/fenced/internal/apikey"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: keys DIRECTORY")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "keys:", err)
		os.Exit(1)
	}
}

// user is one that needs a key.
type user struct {
	name  string
	grant apikey.Grant
	mode  fs.FileMode // of its file; 0 is a key that is printed instead
}

var users = []user{
	{name: "people", grant: apikey.Grant{Role: apikey.Admin, Prefixes: []string{""}}},
	{name: "rewards", grant: apikey.Grant{Role: apikey.Lock, Prefixes: []string{"reward/"}}, mode: 0o600},
	// Prometheus runs as another user, and may see all and do nothing.
	{name: "prometheus", grant: apikey.Grant{Role: apikey.Read, Prefixes: []string{""}}, mode: 0o644},
}

func run(dir string, out io.Writer) error {
	path := filepath.Join(dir, "keys.json")
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			fmt.Fprintln(out, "the API keys were made before; docker compose run --rm fencectl key new makes another")
		}
		return err
	}
	unfinished := path + ".new"
	if err := os.Remove(unfinished); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, u := range users {
		if err := u.add(dir, unfinished, out); err != nil {
			return err
		}
	}
	return os.Rename(unfinished, path)
}

// add makes a key, tells its user and adds its hash to the key file.
func (u user) add(dir, file string, out io.Writer) error {
	text, key, err := apikey.Generate(u.name, []apikey.Grant{u.grant}, apikey.Quota{})
	if err != nil {
		return err
	}
	if u.mode == 0 {
		fmt.Fprintf(out, "the API key, shown this once:\nexport FENCED_API_KEY=%s\n", text)
	} else if err := write(filepath.Join(dir, u.name+".key"), text, u.mode); err != nil {
		return err
	}
	return apikey.Add(file, key)
}

// write replaces a file; the umask has no say in its mode.
func write(path, text string, mode fs.FileMode) error {
	if err := os.WriteFile(path, []byte(text+"\n"), mode); err != nil {
		return err
	}
	return os.Chmod(path, mode)
}
