// Package mysqltest starts a throwaway MariaDB server, for tests that want the
// real thing without a container or a service that somebody has to run. It
// imports no testing package, so a program may use it.
//
// A [Server] lives in a fresh temporary directory and dies with the process that
// started it: on Linux the kernel stops it even when that process is killed (its
// directory then stays behind). Nothing of it is durable. When the caller is
// root, the server runs as the user mysql or, where there is none, nobody. It has
// no network port: it answers on a unix socket in its own directory, which only
// its user and root can enter.
//
// # In tests
//
// One server is shared by the tests of a package, and every test has a database
// of its own on it. Where no server is installed the test is skipped:
//
//	func TestMain(m *testing.M) { os.Exit(mysqltest.Main(m).Run()) }
//
//	func TestTransfer(t *testing.T) {
//		db := mysqltest.New(t) // a *sql.DB on an empty database
//		...
//	}
//
// # Errors
//
// [Start] wraps [ErrNotInstalled] where no server can be found; the message names
// the package to install. Other errors carry the end of the server's log.
//
// # Concurrency
//
// All functions and methods may be called from any number of goroutines.
package mysqltest
