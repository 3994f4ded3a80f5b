package clientsdk

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"
)

// Whatever an answer holds, it becomes an error that can be told, and its pause is
// none or in the future.
func FuzzDecodeProblem(f *testing.F) {
	f.Add(409, "1", []byte(`{"code":"lock_held","status":409,"holder":{"owner":"w","token":7}}`))
	f.Add(502, "9223372036854775807", []byte(`<html>bad gateway`))
	f.Add(503, "Wed, 21 Oct 2015 07:28:00 GMT", []byte(`{"code":"no_quorum"}`))
	f.Add(412, "-1", []byte(`{"code":"stale_token","current":-1}`))
	f.Fuzz(func(t *testing.T, status int, after string, body []byte) {
		err := decodeProblem(&http.Response{StatusCode: status, Header: http.Header{"Retry-After": {after}}}, body, "acquire")
		if err == nil || err.Error() == "" {
			t.Fatalf("status %d, %q is no error", status, body)
		}
		var api *APIError
		if errors.As(err, &api) && (api.RetryAfter < 0 || api.ErrCode == "") {
			t.Errorf("Retry-After %q is %s, code %q", after, api.RetryAfter, api.ErrCode)
		}
	})
}

// A stream of any bytes ends, and no event comes of it that has no name.
func FuzzEventStream(f *testing.F) {
	client, err := New(Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { client.Close() })
	f.Add("id: 7.0\nevent: granted\ndata: {\"lock\":\"a\",\"token\":7}\n\n: heartbeat\n\n")
	f.Add("event: resync\ndata: {}\n\n\n\ndata\n:\n::\nid\n\n")
	f.Add("event: granted\r\ndata: [\r\n\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		s := &eventStream{c: client, yield: func(e Event, err error) bool {
			if err != nil || e.Kind == "" {
				t.Errorf("%q has an event without a name: %+v, %v", text, e, err)
			}
			return true
		}}
		var ev Event
		lines := bufio.NewScanner(strings.NewReader(text))
		for lines.Split(wholeLines); lines.Scan(); {
			if !strings.Contains(text, lines.Text()+"\n") && !strings.Contains(text, lines.Text()+"\r\n") {
				t.Errorf("%q: %q is no whole line", text, lines.Text())
			}
			if err := s.line(lines.Text(), &ev); err != nil && !errors.Is(err, ErrUnavailable) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}
