// Package pgtest starts a throwaway PostgreSQL server, for tests, examples and
// demonstrations that want the real thing without a container or a service that
// somebody has to run. It imports no testing package, so a program may use it.
//
// A [Server] lives in a fresh temporary directory and dies with the process that
// started it: on Linux the kernel stops it even when that process is killed
// (its directory then stays behind). Durability is off by default: a crash of the
// machine loses its data, a crash of the server ([Server.Kill]) does not.
//
// PostgreSQL refuses to run as root. When the caller is root, the server runs as
// the user postgres or, where there is none, nobody.
//
// The server answers on a unix socket in its own directory, which only its user
// and root can enter, and on a free loopback port, where it asks for a random
// password: another user of the machine cannot reach it.
//
// # In tests
//
// One server is shared by the tests of a package, and every test has a database
// of its own on it:
//
//	func TestMain(m *testing.M) { os.Exit(pgtest.Main(m).Run()) }
//
//	func TestTransfer(t *testing.T) {
//		pool := pgtest.New(t) // a *pgxpool.Pool on an empty database
//		...
//	}
//
// # Errors
//
// [Start] wraps [ErrNotInstalled] where no server binaries can be found; the
// message names the package to install. Other errors carry the end of the
// server's log.
//
// # Concurrency
//
// All functions and methods may be called from any number of goroutines.
package pgtest
