//go:build linux

package examples_test

import (
	"testing"
)

// kept is a Python program that holds a lock until it is lost.
const kept = `
import fenced, time
hold = fenced.acquire("kept", "kept.py", ttl=3)
print("token", hold.token, flush=True)
try:
    while hold.check():
        time.sleep(0.02)
except fenced.Lost as loss:
    print(loss)
`

// unclear is a write to a store with a fault.
const unclear = `
import fenced
try:
    fenced.send("PUT", fenced.SERVER + "/orders/42")
except fenced.Unavailable as err:
    print("not known:", err, flush=True)
`

// ignores is a unit of work that looks away where a statement fails.
const ignores = `
import os, psycopg, fenced, pay
with fenced.acquire("orders/43", "ignores.py") as hold, psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
    try:
        with pay.fence(conn, hold, 10):
            try:
                conn.execute("SELECT 1/0")
            except psycopg.Error:
                pass
        print("done")
    except psycopg.Error as err:
        print(err)
`

func TestPython(t *testing.T) {
	t.Parallel()
	python := interpreter(t, "python", "Python with Debian's python3-psycopg", []string{"python3", "/usr/bin/python3"}, "-c", "import psycopg")
	p := newPlace(t, "python")
	p.env = append(p.env, "PYTHONDONTWRITEBYTECODE=1")
	p.prints([]string{"I hold orders/42 with token"}, python, "quickstart.py")
	p.prints(simulated, python, "simulate.py")
	p.prints([]string{"nothing is written: an error was ignored"}, python, "-c", ignores)
	p.stalls("3", python, "pay.py")
	p.keeps(python, "-c", kept)
	p.survives(python, "-c", unclear+kept)
	p.givesUp(python, "pay.py")
}
