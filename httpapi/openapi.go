package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/wire"
	"github.com/fenced/fenced/tokens"
)

// operation says all that the router and the document need of one route.
type operation struct {
	method, path string
	// id is what generators name a function by. An operation without one is not
	// in the document.
	id, tag, summary, text string

	query   []param // all that the query may hold
	headers []param // headers that the request may have
	// waits marks a GET that may stay open; HEAD does not know it.
	waits bool
	// role is what a key needs over some lock; 0 leaves the call open to all.
	role keys.Role
	// audited marks what changes something.
	audited bool

	status  int // of the good answer
	also    int // another good status with the same body, or 0
	answers []param
	content string // type of an answer that is not JSON
	example any    // a request body
	codes   []apierr.Code

	maxBody int64        // 0 means [maxBody]
	in, out reflect.Type // set by handle
}

// name is what metrics call the operation.
func (op operation) name() string {
	if op.id != "" {
		return op.id
	}
	return op.path
}

// param is a value in a query or a header.
type param struct {
	name, text, example string
	required            bool
	integer             bool
}

func (op operation) bodyLimit() int64 {
	if op.maxBody != 0 {
		return op.maxBody
	}
	return maxBody
}

// keyScheme names the API key in the document.
const keyScheme = "apiKey"

const schemaPrefix = "#/components/schemas/"

func newDocument(version string) *huma.OpenAPI {
	schemas := huma.NewMapRegistry(schemaPrefix, huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[tokens.Token](), reflect.TypeFor[tokenSchema]())
	return &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title:       "fenced",
			Version:     version,
			Description: documentText,
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Tags: documentTags,
		Components: &huma.Components{
			Schemas:  schemas,
			Examples: map[string]*huma.Example{},
			SecuritySchemes: map[string]*huma.SecurityScheme{keyScheme: {
				Type: "http", Scheme: "bearer", Description: "An API key, where the server has keys",
			}},
		},
	}
}

// tokenSchema describes a token, whose codecs huma would take for text.
type tokenSchema int64

// Schema implements huma.SchemaProvider.
func (tokenSchema) Schema(huma.Registry) *huma.Schema {
	low, high := 1.0, float64(tokens.Max)
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &low, Maximum: &high}
}

// document adds op to the document.
func (a *api) document(op operation) {
	if op.id == "" {
		return
	}
	doc := &huma.Operation{
		Method: op.method, Path: op.path, OperationID: op.id,
		Tags: []string{op.tag}, Summary: op.summary, Description: op.text,
		Parameters: op.parameters(),
		Responses:  a.problems(op.allCodes()),
	}
	if op.hasBody() {
		a.requests[requestName(op.in)] = true
		doc.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json": {Schema: a.schema(op.in), Example: op.example},
		}}
	}
	if op.role != 0 {
		doc.Security = []map[string][]string{{keyScheme: {}}, {}}
		doc.Description = strings.TrimSpace(doc.Description + fmt.Sprintf("\n\nWhere the server has API keys, the key needs the role `%s`.", op.role))
	}
	for _, status := range []int{op.status, op.also} {
		if status != 0 {
			doc.Responses[strconv.Itoa(status)] = a.good(op, status)
		}
	}
	a.doc.AddOperation(doc)
}

var pathParam = regexp.MustCompile(`\{(\w+)\}`)

func (op operation) parameters() []*huma.Param {
	var list []*huma.Param
	for _, m := range pathParam.FindAllStringSubmatch(op.path, -1) {
		list = append(list, &huma.Param{
			Name: m[1], In: "path", Required: true, Description: "Secret id of the " + m[1],
			Schema: &huma.Schema{Type: huma.TypeString},
		})
	}
	for _, p := range op.query {
		list = append(list, p.document("query"))
	}
	for _, p := range op.headers {
		list = append(list, p.document("header"))
	}
	return list
}

func (p param) document(in string) *huma.Param {
	return &huma.Param{
		Name: p.name, In: in, Required: p.required, Description: p.text, Schema: p.schema(), Example: p.value(),
	}
}

func (p param) schema() *huma.Schema {
	if p.integer {
		low := 1.0
		return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &low}
	}
	return &huma.Schema{Type: huma.TypeString}
}

func (p param) value() any {
	if n, err := strconv.Atoi(p.example); err == nil && p.integer {
		return n
	}
	if p.example == "" {
		return nil
	}
	return p.example
}

func (op operation) hasBody() bool { return op.in != nil && op.in != reflect.TypeFor[none]() }

// good describes an answer that is no problem.
func (a *api) good(op operation, status int) *huma.Response {
	r := &huma.Response{Description: http.StatusText(status), Headers: map[string]*huma.Param{}}
	for _, h := range op.answers {
		r.Headers[h.name] = &huma.Param{Description: h.text, Schema: h.schema(), Example: h.value()}
	}
	switch {
	case op.content != "":
		r.Content = map[string]*huma.MediaType{op.content: {Schema: &huma.Schema{Type: huma.TypeString}}}
	case op.out != nil && op.out != reflect.TypeFor[none]():
		r.Content = map[string]*huma.MediaType{"application/json": {Schema: a.schema(op.out)}}
	}
	return r
}

// schema returns a reference to the schema of t.
func (a *api) schema(t reflect.Type) *huma.Schema {
	s := a.doc.Components.Schemas.Schema(t, true, "")
	s.Nullable = false // huma lets every list be null
	return s
}

// mendSchemas corrects what huma takes for granted: that lists may be null, and
// that every object is closed. Requests are, since unknown fields are refused;
// answers may grow.
func (a *api) mendSchemas() {
	for name, s := range a.doc.Components.Schemas.Map() {
		if !a.requests[name] {
			s.AdditionalProperties = nil
		}
		for _, p := range s.Properties {
			p.Nullable = p.Nullable && p.Type != huma.TypeArray
		}
	}
	hold := a.doc.Components.Schemas.Map()["Hold"].Properties
	hold["previous"] = &huma.Schema{
		Description: hold["previous"].Description,
		OneOf:       []*huma.Schema{{Ref: hold["previous"].Ref}, {Type: "null"}},
	}
}

// requestName is the component of a request body, whose fields are all that it
// may have.
func requestName(t reflect.Type) string {
	if t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	return t.Name()
}

// allCodes are the codes of op and those that every such operation can answer.
func (op operation) allCodes() []apierr.Code {
	codes := append([]apierr.Code{apierr.Misdirected, apierr.Internal, apierr.Malformed, apierr.OutOfBounds}, op.codes...)
	if op.role != 0 {
		codes = append(codes, apierr.Unauthorized, apierr.Forbidden, apierr.Quota)
	}
	if op.hasBody() {
		codes = append(codes, apierr.TooLarge, apierr.UnsupportedMediaType)
	}
	slices.SortFunc(codes, func(x, y apierr.Code) int { return strings.Compare(string(x), string(y)) })
	return slices.Compact(codes)
}

// problems groups codes by status, each with an example.
func (a *api) problems(codes []apierr.Code) map[string]*huma.Response {
	schema := a.schema(reflect.TypeFor[wire.Problem]())
	responses := map[string]*huma.Response{}
	for _, code := range codes {
		info := code.Info()
		r := responses[strconv.Itoa(info.Status)]
		if r == nil {
			r = &huma.Response{Content: map[string]*huma.MediaType{
				problemType: {Schema: schema, Examples: map[string]*huma.Example{}},
			}}
			responses[strconv.Itoa(info.Status)] = r
		}
		r.Description = strings.TrimPrefix(r.Description+"; ", "; ") + fmt.Sprintf("`%s`: %s", code, info.Meaning)
		r.Content[problemType].Examples[string(code)] = a.example(code)
		if info.Retryable {
			r.Headers = map[string]*huma.Param{"Retry-After": {
				Description: "Seconds to wait before a repeat", Schema: &huma.Schema{Type: huma.TypeInteger}, Example: 1,
			}}
		}
	}
	return responses
}

// example refers to the one example of code that all operations share.
func (a *api) example(code apierr.Code) *huma.Example {
	a.doc.Components.Examples[string(code)] = &huma.Example{
		Summary: code.Info().Meaning, Value: json.RawMessage(exampleOf(code)),
	}
	return &huma.Example{Ref: "#/components/examples/" + string(code)}
}
