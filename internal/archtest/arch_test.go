package archtest_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/fenced/fenced"

// maxLines is how long a Go file may be before it wants a second room.
const maxLines = 600

// rules say what a package, and everything below it, must never reach, also not
// through others. Test files are free.
var rules = []struct {
	room  string
	never []string
}{
	{"tokens", []string{"lockserver", "httpapi", "clientsdk", "internal/", "go.etcd.io/", "github.com/go-chi/"}},
	{"internal/apierr", []string{"lockserver", "httpapi", "clientsdk", "tokens"}},
	{"internal/wire", []string{"lockserver", "httpapi", "clientsdk", "go.etcd.io/"}},
	{"lockserver", []string{"httpapi", "clientsdk", "internal/wire", "github.com/go-chi/", "github.com/jackc/"}},
	{"httpapi", []string{"clientsdk", "github.com/jackc/", "go.etcd.io/etcd/server"}},
	{"clientsdk", []string{"lockserver", "httpapi", "go.etcd.io/", "github.com/jackc/", "github.com/go-chi/"}},
	{"cmd/fenced", []string{"clientsdk"}},
	{"cmd/fencectl", []string{"lockserver", "httpapi", "go.etcd.io/"}},
}

// only lists packages that nothing but the named rooms may import directly.
var only = map[string][]string{
	"go.etcd.io/etcd/server/v3/embed": {"lockserver/embedded", "examples/racelab", "bench"},
	"testing":                         {"clientsdk/sdktest", "tokens/fencetest", "internal/"},
}

// listed is what go list tells of one package.
type listed struct {
	ImportPath string
	Dir        string
	GoFiles    []string
	Imports    []string
	Deps       []string
}

func (p listed) room() string { return strings.TrimPrefix(p.ImportPath, module+"/") }

func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Dir,GoFiles,Imports,Deps", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var p listed
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if len(p.GoFiles) > 0 {
			all = append(all, p)
		}
	}
	return all
}

func within(room, rule string) bool {
	return room == strings.TrimSuffix(rule, "/") || strings.HasPrefix(room, strings.TrimSuffix(rule, "/")+"/")
}

// breaks reports whether an import path is what a rule forbids. A rule without a
// dot in its first element names a room of this module.
func breaks(path, never string) bool {
	if !strings.Contains(strings.SplitN(never, "/", 2)[0], ".") {
		room, ours := strings.CutPrefix(path, module+"/")
		return ours && within(room, never)
	}
	return strings.HasPrefix(path, never)
}

func TestImportsPointOneWay(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		for _, rule := range rules {
			if !within(p.room(), rule.room) {
				continue
			}
			for _, dep := range p.Deps {
				for _, never := range rule.never {
					if breaks(dep, never) {
						t.Errorf("%s reaches %s, which %s may not", p.room(), dep, rule.room)
					}
				}
			}
		}
		for _, dep := range p.Imports {
			if rooms, limited := only[dep]; limited && !anyWithin(p.room(), rooms) {
				t.Errorf("%s imports %s; only %v may", p.room(), dep, rooms)
			}
		}
	}
}

// sdkMay is all that the SDK is made of, beside the standard library: who imports it
// gets no more than that.
var sdkMay = []string{"clientsdk/internal/clock", "tokens", "internal/apierr", "internal/wire"}

func TestTheSDKIsSmall(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if p.room() != "clientsdk" {
			continue
		}
		for _, dep := range p.Deps {
			room, ours := strings.CutPrefix(dep, module+"/")
			foreign := strings.Contains(strings.SplitN(dep, "/", 2)[0], ".")
			if ours && !slices.Contains(sdkMay, room) || foreign && !ours {
				t.Errorf("clientsdk reaches %s", dep)
			}
		}
		return
	}
	t.Error("there is no package clientsdk")
}

func anyWithin(room string, rooms []string) bool {
	for _, r := range rooms {
		if within(room, r) {
			return true
		}
	}
	return false
}

func TestExamplesImportWhatAnOutsideUserCould(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		if !within(p.room(), "examples") {
			continue
		}
		for _, dep := range p.Imports {
			room, ours := strings.CutPrefix(dep, module+"/")
			if ours && !within(room, "clientsdk") && !within(room, "tokens") && !within(room, "examples") {
				t.Errorf("%s imports %s: an outside user could not, or should not", p.room(), dep)
			}
		}
	}
}

func TestPackagesAreNamedAndDocumented(t *testing.T) {
	t.Parallel()
	for _, p := range packages(t) {
		switch filepath.Base(p.Dir) {
		case "util", "utils", "common", "helpers", "models":
			t.Errorf("%s: a name that says nothing", p.room())
		}
		documented := false
		fset := token.NewFileSet()
		for _, name := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			documented = documented || file.Doc != nil
			if file.Name.Name != "main" {
				checkComments(t, p.room()+"/"+name, file)
			}
		}
		if !documented {
			t.Errorf("%s has no package comment", p.room())
		}
	}
}

// checkComments wants a comment on each exported function, method, type, and
// group or line of constants and variables.
func checkComments(t *testing.T, where string, file *ast.File) {
	t.Helper()
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && exportedReceiver(d) && d.Doc == nil {
				t.Errorf("%s: %s has no comment", where, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if name, bare := bareName(spec); bare && d.Doc == nil {
					t.Errorf("%s: %s has no comment", where, name)
				}
			}
		}
	}
}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	switch d.Name.Name {
	case "Error", "Unwrap", "Is", "String", "Len", "Less", "Swap", "Push", "Pop":
		return false // what they do is in their names
	}
	expr := d.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.Ident:
			return e.IsExported()
		default:
			return false
		}
	}
}

// bareName returns the first exported name of a spec that has no comment.
func bareName(spec ast.Spec) (string, bool) {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		return s.Name.Name, s.Name.IsExported() && s.Doc == nil && s.Comment == nil
	case *ast.ValueSpec:
		for _, n := range s.Names {
			if n.IsExported() {
				return n.Name, s.Doc == nil && s.Comment == nil
			}
		}
	}
	return "", false
}

func TestFilesAreShort(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(text, []byte("\n")); n > maxLines && !bytes.Contains(text, []byte("\n// Code generated ")) {
			t.Errorf("%s has %d lines, more than %d", path, n, maxLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
