//go:build linux

package compose_test

import (
	"archive/tar"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

// images are the names of what the stack is made of, for this test alone.
var images = map[string]string{
	"FENCED_IMAGE":     "fenced-test:latest",
	"REWARDS_IMAGE":    "fenced-test-rewards:latest",
	"POSTGRES_IMAGE":   "fenced-test-postgres:latest",
	"PROMETHEUS_IMAGE": "fenced-test-prometheus:latest",
}

const binariesImage = "fenced-test-binaries:latest"

// removeImages leaves none of a run behind; what is not there is not missed.
func removeImages() {
	args := []string{"image", "rm", "--force", binariesImage}
	for _, image := range images {
		args = append(args, image)
	}
	_ = exec.Command("docker", args...).Run()
}

// buildImages makes the project's images by the Dockerfile, from binaries that are
// built here: the engine cannot pull a compiler.
func buildImages(t *testing.T, s *stack) {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", dir,
		"./cmd/fenced", "./cmd/fencectl", "./examples/rewards/rewardctl", "./packaging/compose/keys")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	f := newFiles(t)
	for _, name := range []string{"fenced", "fencectl", "rewardctl", "keys"} {
		f.copy(filepath.Join(dir, name), "/out/bin/"+name)
	}
	f.copy(filepath.Join(root, "examples/rewards/testdata/season-week-34.ndjson"), "/out/season-week-34.ndjson")
	f.text("/out/ca-certificates.crt", "")
	f.dir("/out/empty", 0, 0o755)
	f.load(s, binariesImage)
	f.final(s, images["FENCED_IMAGE"], "fenced")
	f.final(s, images["REWARDS_IMAGE"], "rewards")
}

// compileStage is the part of the Dockerfile that needs an image with a compiler. An
// engine without BuildKit would run it, needed or not.
var compileStage = regexp.MustCompile(`(?s)FROM \$\{GO_IMAGE\} AS build\n.*?\n\n`)

// final builds one of the final stages of the Dockerfile.
func (f *files) final(s *stack, image, stage string) {
	f.t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		f.t.Fatal(err)
	}
	dir := f.t.TempDir()
	rest := compileStage.ReplaceAll(text, nil)
	if len(rest) == len(text) {
		f.t.Fatal("the Dockerfile has no stage that compiles")
	}
	if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), rest, 0o600); err != nil {
		f.t.Fatal(err)
	}
	s.docker("build", "--quiet", "--build-arg", "BINARIES="+binariesImage, "--target", stage, "--tag", image, dir)
}

// postgresEntry does what the official image does at the start.
const postgresEntry = `set -e
if [ ! -s "$PGDATA/PG_VERSION" ]; then
  printf %s "$POSTGRES_PASSWORD" > /tmp/password
  initdb -D "$PGDATA" -U "$POSTGRES_USER" --pwfile=/tmp/password -A scram-sha-256 --auth-local=trust -E UTF8 --locale=C
  echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
  pg_ctl -D "$PGDATA" -o "-c listen_addresses=''" -w start
  createdb -U "$POSTGRES_USER" "$POSTGRES_DB"
  for f in /docker-entrypoint-initdb.d/*.sql; do psql -v ON_ERROR_STOP=1 -U "$POSTGRES_USER" -d "$POSTGRES_DB" -f "$f"; done
  pg_ctl -D "$PGDATA" -w stop
fi
exec postgres -D "$PGDATA" -c "listen_addresses=*"
`

const postgresUser = 999

// buildPostgres makes an image of the installed PostgreSQL.
func buildPostgres(t *testing.T, s *stack) {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("PostgreSQL is not installed: no image of it can be made")
	}
	home := filepath.Dir(filepath.Dir(found[len(found)-1]))
	share := "/usr/share/postgresql/" + filepath.Base(home)
	f := newFiles(t)
	for _, name := range []string{"postgres", "initdb", "pg_ctl", "pg_isready", "psql", "createdb"} {
		f.program(filepath.Join(home, "bin", name), filepath.Join(home, "bin", name))
	}
	f.program("/bin/sh", "/bin/sh")
	f.program("/bin/cat", "/bin/cat")
	f.tree(filepath.Join(home, "lib"), func(name string) bool { return !strings.Contains(name, "llvm") && !strings.Contains(name, "bitcode") })
	f.tree(share, nil)
	f.tree("/usr/share/zoneinfo", nil)
	f.text("/etc/passwd", "postgres:x:999:999::/var/lib/postgresql:/bin/sh\n")
	f.text("/entrypoint.sh", postgresEntry)
	f.link("/run", "/var/run")
	f.dir("/tmp", 0, 0o1777)
	f.dir("/run/postgresql", postgresUser, 0o3777)
	f.dir("/var/lib/postgresql/data", postgresUser, 0o700)
	f.load(s, images["POSTGRES_IMAGE"], "ENV PATH="+home+"/bin:/bin", "ENV LC_ALL=C", "USER postgres",
		`ENTRYPOINT ["/bin/sh", "/entrypoint.sh"]`)
}

// buildPrometheus makes an image of the installed Prometheus, if there is one.
func buildPrometheus(t *testing.T, s *stack) bool {
	t.Helper()
	path, err := exec.LookPath("prometheus")
	if err != nil {
		t.Log("Prometheus is not installed: the profile observability was not started")
		return false
	}
	f := newFiles(t)
	f.program(path, "/bin/prometheus")
	f.text("/etc/passwd", "nobody:x:65534:65534::/:/bin/false\n")
	f.dir("/prometheus", 65534, 0o755)
	f.load(s, images["PROMETHEUS_IMAGE"], "USER nobody", `ENTRYPOINT ["/bin/prometheus"]`)
	return true
}

// files gathers what goes into an image.
type files struct {
	t    *testing.T
	path string
	file *os.File
	tar  *tar.Writer
	has  map[string]bool
}

func newFiles(t *testing.T) *files {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.tar")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &files{t: t, path: path, file: file, tar: tar.NewWriter(file), has: map[string]bool{}}
}

func (f *files) add(h *tar.Header, content []byte) {
	f.t.Helper()
	if f.has[h.Name] {
		return
	}
	f.has[h.Name] = true
	h.Name, h.Size = strings.TrimPrefix(h.Name, "/"), int64(len(content))
	err := f.tar.WriteHeader(h)
	if err == nil {
		_, err = f.tar.Write(content)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *files) text(name, content string) {
	f.add(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, []byte(content))
}

func (f *files) dir(name string, owner int, mode int64) {
	f.add(&tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: mode, Uid: owner, Gid: owner}, nil)
}

func (f *files) link(target, name string) {
	f.add(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: target, Mode: 0o777}, nil)
}

// copy adds a file of this machine, following links.
func (f *files) copy(from, name string) {
	f.t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		f.t.Fatal(err)
	}
	f.add(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o755}, content)
}

// tree adds the files below a directory, at the same place.
func (f *files) tree(dir string, wanted func(path string) bool) {
	f.t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || wanted != nil && !wanted(path) {
			return err
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() { // a link may lead nowhere
			f.copy(path, path)
		}
		return nil
	})
	if err != nil {
		f.t.Fatal(err)
	}
}

var library = regexp.MustCompile(`(?m)(/\S+) \(0x`)

// program adds an executable and the libraries that it is linked to.
func (f *files) program(from, name string) {
	f.t.Helper()
	f.copy(from, name)
	out, _ := exec.CommandContext(f.t.Context(), "ldd", from).Output() // fails for a static one
	for _, m := range library.FindAllStringSubmatch(string(out), -1) {
		f.copy(m[1], m[1])
	}
}

// load makes the image, with instructions of a Dockerfile.
func (f *files) load(s *stack, image string, instructions ...string) {
	f.t.Helper()
	if err := f.tar.Close(); err != nil {
		f.t.Fatal(err)
	}
	args := []string{"import"}
	for _, i := range instructions {
		args = append(args, "--change", i)
	}
	s.docker(append(args, f.path, image)...)
}
