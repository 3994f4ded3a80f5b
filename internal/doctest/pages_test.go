//go:build unix

package doctest_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// refused names the SQLSTATE with which a block must fail.
var refused = regexp.MustCompile(`-- refused: (\w+)`)

// TestPages_PostgreSQL runs the SQL of a page in order, in one database with the
// schema, and its shell after that.
func TestPages_PostgreSQL(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/postgres.md", "docs/rewards.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			if err := pgfence.Install(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			url := pool.Config().ConnString()
			for _, b := range blocks(t, page) {
				switch b.lang {
				case "sql":
					_, err := pool.Exec(t.Context(), b.text)
					want := ""
					if m := refused.FindStringSubmatch(b.text); m != nil {
						want = m[1]
					}
					if got := sqlState(err); got != want {
						t.Errorf("SQLSTATE %q (%v), want %q, from\n%s", got, err, want, b.text)
					}
				case "sh":
					run(t, []string{"DATABASE_URL=" + url, "FENCED_DATABASE_URL=" + url}, "sh", "-euc", b.text)
				}
			}
		})
	}
}

func sqlState(err error) string {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pgErr.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// TestPages_MySQL does the same with MariaDB, statement by statement.
func TestPages_MySQL(t *testing.T) {
	t.Parallel()
	db := mysqltest.New(t)
	for _, b := range blocks(t, "docs/mysql.md") {
		if b.lang != "sql" {
			continue
		}
		for statement := range strings.SplitSeq(strings.TrimSpace(b.text), ";\n") {
			if _, err := db.ExecContext(t.Context(), strings.TrimSuffix(statement, ";")); err != nil {
				t.Errorf("%v, from\n%s", err, statement)
			}
		}
	}
}

// TestPages_Go wants each Go block to stand in a program or a tested example.
func TestPages_Go(t *testing.T) {
	t.Parallel()
	for page, source := range map[string]string{
		"docs/postgres.md": "tokens/pgfence/example_test.go",
		"docs/mysql.md":    "tokens/mysqlfence/example_test.go",
		"docs/rewards.md":  "examples/rewards/worker_test.go",
	} {
		text, err := os.ReadFile(filepath.Join(root, source))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range blocks(t, page) {
			if b.lang == "go" && !strings.Contains(flatten(string(text)), flatten(b.text)) {
				t.Errorf("%s: this block does not stand in %s:\n%s", page, source, b.text)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#:]+)[^)]*\)`)

// TestPages_Links wants what a page links to in the repository to be there.
func TestPages_Links(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"docs/README.md", "docs/postgres.md", "docs/mysql.md", "docs/rewards.md", "README.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(root, filepath.Dir(page), m[1])); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
}
