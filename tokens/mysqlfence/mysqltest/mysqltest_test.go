//go:build unix

package mysqltest_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(mysqltest.Main(m)) }

func TestNew_EachTestHasItsOwnDatabase(t *testing.T) {
	t.Parallel()
	a, b := mysqltest.New(t), mysqltest.New(t)
	if _, err := a.ExecContext(t.Context(), "CREATE TABLE mine (id int)"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ExecContext(t.Context(), "SELECT * FROM mine"); err == nil {
		t.Error("a table of one database is seen in another")
	}
}

func TestServer_StopIsIdempotentAndRemovesTheDirectory(t *testing.T) {
	t.Parallel()
	s, err := mysqltest.Start(t.Context())
	if errors.Is(err, mysqltest.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Dir(s.Config("mysql").Addr)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is still there: %v", err)
	}
}

func TestStart_NotInstalled(t *testing.T) {
	if _, err := os.Stat("/usr/sbin/mariadbd"); err == nil {
		t.Skip("the server is in a place that this test cannot hide")
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := mysqltest.Start(t.Context()); !errors.Is(err, mysqltest.ErrNotInstalled) || !strings.Contains(err.Error(), "apt-get") {
		t.Errorf("Start = %v, want ErrNotInstalled with what to install", err)
	}
}
