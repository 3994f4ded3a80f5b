package httpfence

import (
	"errors"
	"maps"
	"net/http"
)

// MaxAnswer is how many bytes of body a handler under [Fence.Handle] may write.
const MaxAnswer = 1 << 20

// ErrAnswerTooLarge: a handler wrote more than [MaxAnswer]. Its write to the
// store may have taken effect, so this is for the service's developers; the
// client gets 500.
var ErrAnswerTooLarge = errors.New("httpfence: the handler's answer is too large to hold back")

// buffer holds an answer back until it is known to be true.
type buffer struct {
	header   http.Header
	status   int
	sent     http.Header // the headers as they were at WriteHeader
	body     []byte
	tooLarge bool
}

func (b *buffer) Header() http.Header {
	if b.header == nil {
		b.header = make(http.Header)
	}
	return b.header
}

// WriteHeader keeps the first final status, as net/http does; informational ones
// cannot be sent ahead and are dropped.
func (b *buffer) WriteHeader(status int) {
	if b.status == 0 && status >= 200 {
		b.status = status
		b.sent = b.Header().Clone()
	}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	if b.tooLarge || len(b.body)+len(p) > MaxAnswer {
		b.tooLarge = true
		return 0, ErrAnswerTooLarge
	}
	b.body = append(b.body, p...)
	return len(p), nil
}

func (b *buffer) sendTo(w http.ResponseWriter) {
	b.WriteHeader(http.StatusOK)
	clear(w.Header())
	maps.Copy(w.Header(), b.sent)
	w.WriteHeader(b.status)
	if len(b.body) > 0 {
		_, _ = w.Write(b.body) // the client has gone; there is nobody to tell
	}
}
