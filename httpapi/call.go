package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/fenced/fenced/httpapi/internal/strictjson"
	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

// maxBody bounds a request body unless its operation says otherwise: the longest
// valid one, with every character escaped, fits.
const maxBody = 32 << 10

// none stands for the body of a request or an answer that has none.
type none struct{}

// call is one request on its way through a handler.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	query url.Values
	// status overrides the operation's where it is not 0.
	status int
	// keys and key are nil where there are no keys, and where none is needed.
	keys   *keys.Store
	key    *keys.Key
	waited bool // it was allowed to
	// audited says that the audit log will have a line of it, whatever comes of it.
	audited bool
	record  record
}

// handle adds an operation whose request body is an In and whose answer is an
// Out. The handler returns a nil *Out for an answer without a body.
func handle[In, Out any](a *api, op operation, h func(context.Context, *call, *In) (*Out, error)) {
	op.in, op.out = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	limit := op.bodyLimit()
	a.route(op, func(c *call) error {
		var in In
		if err := readBody(c, &in, limit); err != nil {
			return err
		}
		out, err := h(c.r.Context(), c, &in)
		if err != nil && c.waited {
			err = cmp.Or(c.stillAllowed(op.role), err)
		}
		if err != nil {
			return err
		}
		if c.status == 0 {
			c.status = op.status
		}
		if out == nil {
			c.w.WriteHeader(c.status)
			return nil
		}
		return writeJSON(c.w, c.status, "application/json", out)
	})
}

// buffers keeps bodies of both directions; none of them outlives its call.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// largestKept keeps one large body from staying in the pool for ever.
const largestKept = 64 << 10

func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= largestKept {
		b.Reset()
		buffers.Put(b)
	}
}

// writeJSON writes v, or returns an error before anything is written. It does not
// escape <, > and &: answers carry nosniff and a type that no browser renders.
func writeJSON(w http.ResponseWriter, status int, contentType string, v any) error {
	b := buffers.Get().(*bytes.Buffer)
	defer putBuffer(b)
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %T: %w", v, err)
	}
	w.Header()["Content-Type"] = []string{contentType}
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the client may be gone; there is nobody to tell
	return nil
}

// readBody reads the request's body into in. An operation without a body takes
// none, or an empty object, which some clients always send.
func readBody[In any](c *call, in *In, limit int64) error {
	if _, empty := any(in).(*none); empty && c.r.ContentLength == 0 {
		return nil
	}
	if err := checkContentType(c.r); err != nil {
		return err
	}
	b := buffers.Get().(*bytes.Buffer)
	defer putBuffer(b)
	// Reading up to the end of the body is what makes net/http watch the
	// connection, so that a waiter's close is seen.
	if _, err := b.ReadFrom(http.MaxBytesReader(c.w, c.r.Body, limit)); err != nil {
		return bodyError(err, limit)
	}
	return strictjson.Decode(b.Bytes(), in)
}

func bodyError(err error, limit int64) error {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return &apierr.Error{
			ErrCode: apierr.TooLarge, Field: "body", Limit: fmt.Sprintf("at most %d bytes", limit),
			Detail: fmt.Sprintf("the body must be at most %d bytes", limit),
		}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return apierr.New(apierr.Malformed, "the body did not arrive in time")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return apierr.New(apierr.Malformed, "the body breaks off before its announced end")
	}
	return &apierr.Error{ErrCode: apierr.Malformed, Detail: "the body cannot be read", Cause: err}
}

// checkContentType demands application/json, in UTF-8 where a charset is named.
// A form or text type is what a page of another site could send unasked.
func checkContentType(r *http.Request) error {
	if coding := r.Header["Content-Encoding"]; len(coding) > 0 && !(len(coding) == 1 && strings.EqualFold(coding[0], "identity")) {
		return apierr.New(apierr.UnsupportedMediaType, "send the body as it is: this service takes no Content-Encoding")
	}
	value := r.Header.Get("Content-Type")
	if value == "application/json" {
		return nil
	}
	kind, params, err := mime.ParseMediaType(value)
	charset := params["charset"]
	if err == nil && kind == "application/json" && (charset == "" || strings.EqualFold(charset, "utf-8")) {
		return nil
	}
	return apierr.New(apierr.UnsupportedMediaType, "send the body as application/json; with curl: -H 'Content-Type: application/json'")
}

// parseQuery takes the values of the query and refuses what the operation does
// not know, and what is there twice: two readers could take two different values.
func (c *call) parseQuery(known []param) error {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	query, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return apierr.New(apierr.Malformed, "the query string cannot be read")
	}
	for name, values := range query {
		if !slices.ContainsFunc(known, func(p param) bool { return p.name == name }) {
			return apierr.Bounds("query", "made of values that this call knows: "+names(known))
		}
		if len(values) > 1 {
			return &apierr.Error{ErrCode: apierr.Malformed, Detail: "the query value " + name + " is given twice", Field: name}
		}
		if !utf8.ValidString(values[0]) {
			return &apierr.Error{ErrCode: apierr.Malformed, Detail: "the query value " + name + " is not UTF-8", Field: name}
		}
	}
	c.query = query
	return nil
}

func names(params []param) string {
	if len(params) == 0 {
		return "none"
	}
	list := make([]string, len(params))
	for i, p := range params {
		list[i] = p.name
	}
	return strings.Join(list, ", ")
}

// path returns the id in the route.
func (c *call) path(name string) string { return chi.URLParam(c.r, name) }

// number reads an integer from 1 to high, or 0 where the query does not have it.
func (c *call) number(name string, high int) (int, error) {
	if !c.query.Has(name) {
		return 0, nil
	}
	text := c.query.Get(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > high || strconv.Itoa(n) != text {
		return 0, apierr.Bounds(name, fmt.Sprintf("an integer from 1 to %d", high))
	}
	return n, nil
}

// duration reads text, the value of field, as a Go duration; "" is 0. Its bounds
// are the engine's to check.
func duration(field, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, apierr.Bounds(field, "a Go duration such as 5s or 1500ms")
	}
	return d, nil
}

// ttl reads a TTL, for which the engine takes 0 for "not given".
func ttl(text string) (time.Duration, error) {
	d, err := duration("ttl", text)
	if err == nil && text != "" && d <= 0 {
		return 0, apierr.Bounds("ttl", "1s or more")
	}
	return d, err
}

// wait reads the query value of that name, and whether it was given.
func (c *call) wait() (d time.Duration, given bool, err error) {
	if !c.query.Has(waitParam.name) {
		return 0, false, nil
	}
	text := c.query.Get(waitParam.name)
	if text == "" {
		return 0, false, apierr.Bounds("wait", "a Go duration such as 5s or 1500ms")
	}
	d, err = duration("wait", text)
	if err == nil {
		err = lockserver.ValidateWait(d)
	}
	return d, true, err
}
