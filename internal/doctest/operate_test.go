//go:build unix

package doctest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// The machines of operations.md are directories: ssh, scp and systemctl are small
// scripts that put a machine's paths below its directory and start and stop the real
// server. The addresses 10.0.0.N are 127.0.71.N, all of which are this machine's own.
const (
	printedNet = "10.0.0."
	stageNet   = "127.0.71."
)

var stageScripts = map[string]string{
	// Paths of the machine in a command or in a file of settings.
	"below": `exec sed "s,/etc/default,$1&,g; s,/etc/fenced,$1&,g; s,/var/lib/fenced,$1&,g; s,/var/log/fenced,$1&,g"`,

	"ssh": `machine=$STAGE/$1; shift
mkdir -p $machine/etc/fenced $machine/etc/default $machine/var/lib/fenced $machine/var/log/fenced
command=$(printf '%s' "$*" | below $machine)
exec env -i STAGE=$STAGE MACHINE=$machine HOME=$machine PATH=$STAGE/machine:$PATH sh -euc "$command"`,

	"scp": `for to; do :; done
ssh ${to%%:*} true
to=$STAGE/${to%%:*}${to#*:}
while test $# -gt 1; do
  case $1 in
  *.yml) below ${to%%/etc/*} < $1 > $to/$(basename $1) ;;
  *) cp $1 $to ;;
  esac
  shift
done`,

	"machine/chown":   `exit 0`, // its user fenced is the one who runs the test
	"machine/runuser": `shift 3; exec "$@"`,

	// A server dies with the test, whose end of descriptor 3 is closed then.
	"machine/systemctl": `case $1 in
start)
  set -a; . $MACHINE/etc/default/fenced; set +a
  (
    fenced serve --config $MACHINE/etc/fenced/fenced.yml 3<&- & server=$!
    echo $server > $MACHINE/pid
    (cat <&3 > $MACHINE/end; kill -9 $server) & watcher=$!
    wait $server || true
    kill $watcher
    rm $MACHINE/pid
  ) >> $MACHINE/log 2>&1 < /dev/null & ;;
stop)
  if test -f $MACHINE/pid; then kill -TERM $(cat $MACHINE/pid); fi
  while test -f $MACHINE/pid; do sleep 0.02; done ;;
restart) systemctl stop fenced; systemctl start fenced ;;
esac`,
}

// operate runs the page of the people on call, on a cluster with TLS that it sets up,
// loses and brings back, beside a database.
func operate(t *testing.T, script []block) string {
	if runtime.GOOS != "linux" {
		t.Skip("the machines of the page need 127.0.71.N, which only Linux has")
	}
	for _, tool := range []string{"openssl", "jq", "psql"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the page's commands need %s: %v", tool, err)
		}
	}
	stage := t.TempDir()
	if err := os.Mkdir(filepath.Join(stage, "machine"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range stageScripts {
		if err := os.WriteFile(filepath.Join(stage, name), []byte("#!/bin/sh\nset -eu\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range script {
		script[i].text = strings.ReplaceAll(script[i].text, printedNet, stageNet)
	}
	env := append(databaseEnv(t), "STAGE="+stage, "PATH="+stage+":"+programs(t)+":"+os.Getenv("PATH"))
	return shellWithLife(t, stage, env, script)
}

// shellWithLife gives the script descriptor 3, which closes when the test ends, and
// waits then for the servers to be gone.
func shellWithLife(t *testing.T, stage string, env []string, script []block) string {
	t.Helper()
	life, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = ours.Close()
		_ = life.Close()
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
			left, _ := filepath.Glob(filepath.Join(stage, stageNet+"*", "pid"))
			if len(left) == 0 {
				break
			}
			time.Sleep(10 * time.Millisecond) // other processes' files: nothing tells when they go
		}
		if t.Failed() {
			logs, _ := filepath.Glob(filepath.Join(stage, stageNet+"*", "log"))
			for _, name := range logs {
				text, _ := os.ReadFile(name)
				t.Logf("%s:\n%s", name, text[max(0, len(text)-4000):])
			}
		}
	})
	return shell(t, stage, env, script, life)
}
