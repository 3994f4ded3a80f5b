package httpapi

import (
	"bytes"
	"encoding/json"
	"flag"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-chi/chi/v5"
	"github.com/google/go-cmp/cmp"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

var update = flag.Bool("update", false, "write docs/openapi.yaml")

const documentFile = "../docs/openapi.yaml"

// documentVersion keeps the checked-in document from changing with each release.
const documentVersion = "v1"

func documented(t *testing.T) *api {
	t.Helper()
	a, err := newAPI(Config{Version: documentVersion}.withDefaults()) // no engine: it is never called
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestDocument_is_checked_in(t *testing.T) {
	t.Parallel()
	got, err := documented(t).doc.YAML()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(documentFile, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s differs from the code; run go test ./httpapi -run TestDocument -update (-file +code)\n%s", documentFile, diff)
	}
}

// undocumented are the routes that serve the document itself and the page.
var undocumented = []string{"/docs", "/docs/style.css", "/openapi-3.0.json", "/openapi.json"}

func TestDocument_has_every_route_and_no_other(t *testing.T) {
	t.Parallel()
	a := documented(t)
	if err := a.serveDocument(); err != nil {
		t.Fatal(err)
	}
	var routes, operations []string
	err := chi.Walk(a.router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		if method != http.MethodHead && !slices.Contains(undocumented, route) {
			routes = append(routes, method+" "+route)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range operationsOf(a.doc) {
		operations = append(operations, op.Method+" "+op.Path)
	}
	slices.Sort(routes)
	slices.Sort(operations)
	if diff := cmp.Diff(routes, operations); diff != "" {
		t.Errorf("(-routes +document)\n%s", diff)
	}
}

func operationsOf(doc *huma.OpenAPI) []*huma.Operation {
	var ops []*huma.Operation
	for _, item := range doc.Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op != nil {
				ops = append(ops, op)
			}
		}
	}
	return ops
}

func TestDocument_describes_everything(t *testing.T) {
	t.Parallel()
	a := documented(t)
	for _, op := range operationsOf(a.doc) {
		if op.OperationID == "" || op.Summary == "" || len(op.Tags) != 1 {
			t.Errorf("%s %s: id %q, summary %q, tags %v", op.Method, op.Path, op.OperationID, op.Summary, op.Tags)
		}
		if op.RequestBody != nil && op.RequestBody.Content["application/json"].Example == nil {
			t.Errorf("%s has no example of its body", op.OperationID)
		}
		for _, p := range op.Parameters {
			if p.Description == "" {
				t.Errorf("%s: parameter %s has no description", op.OperationID, p.Name)
			}
		}
	}
	for name, s := range a.doc.Components.Schemas.Map() {
		for field, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
}

// Every code must have its row on the page that problems point at, and every one
// that this service can answer must stand at some operation.
func TestDocument_has_every_code(t *testing.T) {
	t.Parallel()
	a := documented(t)
	page, err := a.renderDocs()
	if err != nil {
		t.Fatal(err)
	}
	yaml, err := a.doc.YAML()
	if err != nil {
		t.Fatal(err)
	}
	// These belong to routes that are none and to guards.
	elsewhere := []apierr.Code{
		apierr.NotFound, apierr.MethodNotAllowed, apierr.Duplicate, apierr.TokenMissing,
	}
	for _, code := range apierr.Codes() {
		if !bytes.Contains(page, []byte(`id="`+string(code)+`"`)) {
			t.Errorf("the page has no row for %s", code)
		}
		if !slices.Contains(elsewhere, code) && !bytes.Contains(yaml, []byte("`"+string(code)+"`")) {
			t.Errorf("no operation answers %s", code)
		}
	}
}

func TestDocument_downgrades_to_3_0(t *testing.T) {
	t.Parallel()
	body, err := downgrade(documented(t).doc)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI    string
		Components struct {
			Schemas map[string]struct {
				Properties map[string]map[string]any
			}
		}
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		t.Fatal(err)
	}
	if doc.OpenAPI != "3.0.3" {
		t.Errorf("openapi %q", doc.OpenAPI)
	}
	if got := doc.Components.Schemas["Hold"].Properties["previous"]["nullable"]; got != true {
		t.Errorf("Hold.previous nullable: %v", got)
	}
	if strings.Contains(string(body), `"null"`) {
		t.Error("the document has the type null, which 3.0 does not know")
	}
}

// What the document says of bounds is what the engine enforces.
func TestDocument_constraints_match_the_engine(t *testing.T) {
	t.Parallel()
	schemas := documented(t).doc.Components.Schemas.Map()
	for field, want := range map[string]int{
		"AcquireRequest.lock":  lockserver.MaxLockName,
		"AcquireRequest.owner": lockserver.MaxOwner,
		"SessionRequest.owner": lockserver.MaxOwner,
		"CheckItem.lock":       lockserver.MaxLockName,
		"BreakRequest.lock":    lockserver.MaxLockName,
		"BreakRequest.reason":  lockserver.MaxReason,
	} {
		schema, property, _ := strings.Cut(field, ".")
		if got := schemas[schema].Properties[property].MaxLength; got == nil || *got != want {
			t.Errorf("%s: maxLength %v, want %d", field, got, want)
		}
	}
	if got := schemas["AcquireRequest"].Properties["metadata"].MaxProperties; got == nil || *got != lockserver.MaxMetadata {
		t.Errorf("AcquireRequest.metadata: maxProperties %v, want %d", got, lockserver.MaxMetadata)
	}
	for name, open := range map[string]bool{"AcquireRequest": false, "CheckItem": false, "Hold": true, "Problem": true} {
		if closed := schemas[name].AdditionalProperties == false; closed == open {
			t.Errorf("%s: closed is %v", name, closed)
		}
	}
}
