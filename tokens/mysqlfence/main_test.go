//go:build unix

package mysqlfence_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens"
	"github.com/fenced/fenced/tokens/mysqlfence"
	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
)

func TestMain(m *testing.M) {
	runWorkerIfAsked()
	goleak.VerifyTestMain(mysqltest.Main(m))
}

// install returns a pool on a fresh database with the guard table and with the
// table account.
func install(t *testing.T) *sql.DB {
	t.Helper()
	db, _ := installAt(t)
	return db
}

func installAt(t *testing.T) (*sql.DB, *mysql.Config) {
	t.Helper()
	c := mysqltest.NewDatabase(t)
	db := mysqltest.Open(t, c)
	if err := mysqlfence.Install(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	mustExec(t, db, "CREATE TABLE account (id bigint PRIMARY KEY, balance bigint NOT NULL) ENGINE=InnoDB")
	mustExec(t, db, "INSERT INTO account VALUES (42, 100)")
	return db, c
}

func mustExec(t *testing.T, db mysqlfence.Querier, statement string, args ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func queryInt(t *testing.T, db mysqlfence.Querier, query string) (n int64) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return n
}

func balance(t *testing.T, db mysqlfence.Querier) int64 {
	t.Helper()
	return queryInt(t, db, "SELECT balance FROM account WHERE id = 42")
}

// add returns the function of a unit of work that adds to the account.
func add(amount int64) func(context.Context, *mysqlfence.Tx) error {
	return func(ctx context.Context, tx *mysqlfence.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance + ? WHERE id = 42", amount)
		return err
	}
}

func claim(resource string, t tokens.Token, m tokens.Mode) tokens.Claim {
	return tokens.Claim{Resource: resource, Token: t, Mode: m}
}

// advance is one committed unit that does nothing but raise the fence.
func advance(t *testing.T, db *sql.DB, c tokens.Claim) {
	t.Helper()
	err := mysqlfence.WithFence(t.Context(), db, c, func(context.Context, *mysqlfence.Tx) error { return nil })
	if err != nil {
		t.Fatalf("advance %+v: %v", c, err)
	}
}

func begin(t *testing.T, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// waiting returns how many transactions of db's database wait for a lock.
func waiting(ctx context.Context, db *sql.DB) (int, error) {
	innodbTrx.Lock()
	defer innodbTrx.Unlock()
	// The view is a copy that InnoDB makes anew only when nobody has read it for
	// 0.1 s: readers that come more often see the same old copy for ever.
	time.Sleep(time.Until(innodbTrx.read.Add(innodbTrxIdle)))
	var n int
	err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.INNODB_TRX
		JOIN information_schema.PROCESSLIST ON ID = trx_mysql_thread_id
		WHERE trx_state = 'LOCK WAIT' AND DB = DATABASE()`).Scan(&n)
	innodbTrx.read = time.Now()
	return n, err
}

// innodbTrx makes the readers of information_schema.INNODB_TRX take turns.
var innodbTrx struct {
	sync.Mutex
	read time.Time
}

const innodbTrxIdle = 120 * time.Millisecond

// eventually returns when cond holds; that it never does fails the test.
func eventually(t *testing.T, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal("it never came about")
		}
	}
}

// cutter loses answers of the server on command.
type cutter struct {
	// lose cuts every connection whose server answers while it is set, after the
	// answer has come and before the driver has it.
	lose atomic.Bool
}

// behind returns a pool whose connections go through the cutter.
func (c *cutter) behind(t *testing.T, config *mysql.Config) *sql.DB {
	t.Helper()
	config = config.Clone()
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return cutConn{conn, &c.lose}, err
	}
	return mysqltest.Open(t, config)
}

type cutConn struct {
	net.Conn
	lose *atomic.Bool
}

var errCut = errors.New("the test has cut the connection")

func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == nil && c.lose.Load() {
		return 0, errors.Join(errCut, c.Close())
	}
	return n, err
}

// connectionID returns the server's number of tx's connection.
func connectionID(ctx context.Context, tx *sql.Tx) (id int64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT CONNECTION_ID()").Scan(&id)
	return id, err
}

func kill(ctx context.Context, db mysqlfence.Querier, id int64) error {
	_, err := db.ExecContext(ctx, "KILL "+strconv.FormatInt(id, 10))
	return err
}
