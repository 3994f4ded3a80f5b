//go:build unix

package doctest_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fenced/fenced/tokens/mysqlfence/mysqltest"
	"github.com/fenced/fenced/tokens/pgfence"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// page says how the blocks of a page are run. What has no function is not run, and
// a block of it fails the test.
type page struct {
	// generated names the test that compares the page with what it is made from;
	// its blocks are that test's business.
	generated string
	// shell runs the blocks of shell, and of files, as one script.
	shell func(t *testing.T, script []block) (out string)
	want  []string // what the shell must print
	sql   func(t *testing.T, blocks []block)
}

var pages = map[string]page{
	"README.md": {shell: newcomer, want: []string{
		`"state":"held"`, `"code":"lock_held"`, `"waiters":0`, "I hold orders/42 with token", "under token ",
	}},
	"docs/cli.md":        {generated: "TestDocs of cmd/fencectl"},
	"docs/mysql.md":      {sql: onMariaDB},
	"docs/postgres.md":   {sql: onPostgreSQL, shell: withDatabase, want: []string{"9002"}},
	"docs/rewards.md":    {sql: onPostgreSQL, shell: withDatabase},
	"docs/operations.md": {shell: operate, want: []string{"nothing is wrong", "saved", "restored", "token base", "floor"}},
	"docs/scale.md":      {shell: twoClusters, want: []string{"token base"}},
	"docs/security.md":   {shell: alone},
}

// pageOf returns how a page is run. Pages in other languages are for newcomers.
func pageOf(path string) page {
	if p, ok := pages[path]; ok || filepath.ToSlash(filepath.Dir(path)) == "docs" {
		return p
	}
	return page{shell: newcomer, sql: onPostgreSQL}
}

// TestPages runs the blocks of every page, and fails for one that is neither run nor
// marked.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, path := range allPages(t) {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			how := pageOf(path)
			if how.generated != "" {
				return
			}
			var script, sql []block
			for _, b := range blocks(t, path) {
				switch {
				case b.skip != "" || b.lang == "text":
				case b.promtool:
					promtool(t, b.text, "check", "config", "--syntax-only")
				case (b.lang == "sh" || b.file != "") && how.shell != nil:
					script = append(script, b)
				case b.lang == "sql" && how.sql != nil:
					sql = append(sql, b)
				case b.lang == "go":
					stands(t, path, b)
				default:
					t.Errorf("%s:%d: nothing runs this block of %q, and no mark says why not", path, b.line, b.lang)
				}
			}
			if len(sql) > 0 && !t.Failed() {
				how.sql(t, sql)
			}
			if len(script) > 0 && !t.Failed() {
				contains(t, how.shell(t, script), how.want)
			}
		})
	}
}

func contains(t *testing.T, out string, want []string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			t.Errorf("the output lacks %q:\n%s", w, out)
		}
	}
}

// refused names the SQLSTATE with which a block must fail.
var refused = regexp.MustCompile(`-- refused: (\w+)`)

// onPostgreSQL runs SQL in order, in one database with the schema.
func onPostgreSQL(t *testing.T, blocks []block) {
	pool := pgtest.New(t)
	if err := pgfence.Install(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	for _, b := range blocks {
		_, err := pool.Exec(t.Context(), b.text)
		want := ""
		if m := refused.FindStringSubmatch(b.text); m != nil {
			want = m[1]
		}
		if got := sqlState(err); got != want {
			t.Errorf("SQLSTATE %q (%v), want %q, from\n%s", got, err, want, b.text)
		}
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

// onMariaDB does the same, statement by statement.
func onMariaDB(t *testing.T, blocks []block) {
	db := mysqltest.New(t)
	for _, b := range blocks {
		for statement := range strings.SplitSeq(strings.TrimSpace(b.text), ";\n") {
			if _, err := db.ExecContext(t.Context(), strings.TrimSuffix(statement, ";")); err != nil {
				t.Errorf("%v, from\n%s", err, statement)
			}
		}
	}
}

// sources are the programs and tested examples that a page may quote.
var sources = []string{
	"examples/*/*.go", "examples/*/*/*.go", "tokens/*/example_test.go", "tokens/example_test.go", "clientsdk/example_test.go",
}

// stands wants a block of Go to stand in one of the sources, but for indentation.
func stands(t *testing.T, path string, b block) {
	t.Helper()
	for _, pattern := range sources {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			name, _ := filepath.Rel(root, file)
			if strings.Contains(flatten(read(t, name)), flatten(b.text)) {
				return
			}
		}
	}
	t.Errorf("%s:%d: this block stands in no program and no tested example:\n%s", path, b.line, b.text)
}

// flatten drops the indentation, which a block in a page has less of.
func flatten(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}

// promtool has Prometheus's own tool look at a text, where it is installed.
func promtool(t *testing.T, text string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Log("promtool is not installed: a block for Prometheus was not looked at")
		return
	}
	file := filepath.Join(t.TempDir(), "file.yml")
	write(t, file, text)
	run(t, nil, "promtool", append(args, file)...)
}

// TestBlocks_marks: a mark without a reason is none, and no page has a stage unasked.
func TestBlocks_marks(t *testing.T) {
	t.Parallel()
	for mark, want := range map[string]block{
		"":                                {lang: "sh"},
		"text":                            {lang: "sh"},
		"<!-- not run: why -->":           {lang: "sh"}, // no reason
		"<!-- not run: needs a robot -->": {lang: "sh", skip: "needs a robot"},
		"<!-- file a.yml -->":             {lang: "sh", file: "a.yml"},
		isPromtool:                        {lang: "sh", promtool: true},
	} {
		if got := marked(block{lang: "sh"}, mark); got != want {
			t.Errorf("%q: %+v, want %+v", mark, got, want)
		}
	}
	if p := pageOf("docs/unknown.md"); p.shell != nil || p.sql != nil {
		t.Error("a page that is not in the table has a stage")
	}
}
