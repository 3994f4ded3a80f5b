package httpapi

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fenced/fenced/internal/apierr"
)

//go:embed docs
var docFiles embed.FS

var docPage = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"trimRef": func(ref string) string { return strings.TrimPrefix(ref, schemaPrefix) },
}).ParseFS(docFiles, "docs/page.html"))

// docPolicy lets the page use its own style sheet and nothing else.
const docPolicy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

// exampleOf is the body of a problem with code.
func exampleOf(code apierr.Code) []byte {
	err := exampleProblems[code]
	if err == nil {
		err = apierr.New(code, "")
	}
	body, fault := json.Marshal(problemOf(err))
	if fault != nil {
		panic(fault)
	}
	return body
}

// serveDocument adds the OpenAPI document in both versions and the page made of
// it. All are made once, here.
func (a *api) serveDocument() error {
	v31, err := json.Marshal(a.doc)
	if err != nil {
		return fmt.Errorf("openapi document: %w", err)
	}
	v30, err := downgrade(a.doc)
	if err != nil {
		return fmt.Errorf("openapi 3.0 document: %w", err)
	}
	page, err := a.renderDocs()
	if err != nil {
		return fmt.Errorf("docs page: %w", err)
	}
	style, err := docFiles.ReadFile("docs/style.css")
	if err != nil {
		return fmt.Errorf("docs page: %w", err)
	}
	a.serveBytes("/openapi.json", "application/json", v31)
	a.serveBytes("/openapi-3.0.json", "application/json", v30)
	a.serveBytes("/docs", "text/html; charset=utf-8", page)
	a.serveBytes("/docs/style.css", "text/css; charset=utf-8", style)
	return nil
}

func (a *api) serveBytes(path, contentType string, body []byte) {
	a.route(operation{method: http.MethodGet, path: path}, func(c *call) error {
		h := c.w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Security-Policy", docPolicy)
		h.Set("Cache-Control", "no-cache")
		_, _ = c.w.Write(body)
		return nil
	})
}

// downgrade returns the document in OpenAPI 3.0. huma leaves one thing to do:
// 3.0 has no type null.
func downgrade(doc *huma.OpenAPI) ([]byte, error) {
	body, err := doc.Downgrade()
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(body, &tree); err != nil {
		return nil, err
	}
	nullable(tree)
	return json.Marshal(tree)
}

// nullable turns oneOf [X, null] into allOf [X] with nullable.
func nullable(node any) {
	switch node := node.(type) {
	case map[string]any:
		if one, ok := node["oneOf"].([]any); ok && len(one) == 2 {
			if last, ok := one[1].(map[string]any); ok && last["type"] == "null" {
				delete(node, "oneOf")
				node["allOf"], node["nullable"] = one[:1], true
			}
		}
		for _, child := range node {
			nullable(child)
		}
	case []any:
		for _, child := range node {
			nullable(child)
		}
	}
}

// docSection is one group of operations on the page.
type docSection struct {
	Name, Text string
	Operations []*huma.Operation
}

// docCode is one row of the table of codes.
type docCode struct {
	Code apierr.Code
	apierr.Info
}

func (a *api) renderDocs() ([]byte, error) {
	var page bytes.Buffer
	err := docPage.Execute(&page, map[string]any{
		"Info":     a.doc.Info,
		"Sections": a.docSections(),
		"Codes":    docCodes(),
		"Schemas":  a.doc.Components.Schemas.Map(),
	})
	return page.Bytes(), err
}

func (a *api) docSections() []docSection {
	sections := make([]docSection, len(documentTags))
	for i, tag := range documentTags {
		sections[i] = docSection{Name: tag.Name, Text: tag.Description}
		for _, item := range a.doc.Paths {
			for _, op := range []*huma.Operation{item.Get, item.Post, item.Delete} {
				if op != nil && op.Tags[0] == tag.Name {
					sections[i].Operations = append(sections[i].Operations, op)
				}
			}
		}
		slices.SortFunc(sections[i].Operations, func(x, y *huma.Operation) int {
			return strings.Compare(x.Path+" "+x.Method, y.Path+" "+y.Method)
		})
	}
	return sections
}

func docCodes() []docCode {
	var rows []docCode
	for _, code := range apierr.Codes() {
		rows = append(rows, docCode{code, code.Info()})
	}
	slices.SortFunc(rows, func(x, y docCode) int {
		if x.Status != y.Status {
			return x.Status - y.Status
		}
		return strings.Compare(string(x.Code), string(y.Code))
	})
	return rows
}
