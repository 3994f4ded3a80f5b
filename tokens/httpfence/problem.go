package httpfence

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/fenced/fenced/tokens"
)

// problem is the body of every refusal. Its size is bounded: the texts are fixed,
// and a resource name has at most tokens.MaxResourceLen bytes.
type problem struct {
	Title     string       `json:"title"`
	Status    int          `json:"status"`
	Code      string       `json:"code"`
	Detail    string       `json:"detail,omitempty"`
	Resource  string       `json:"resource,omitempty"`
	Presented tokens.Token `json:"presented,omitempty"`
	Current   tokens.Token `json:"current,omitempty"`

	retryAfter string
}

var (
	tokenMissing = problem{Title: "The request carries no fencing token", Status: http.StatusPreconditionRequired, Code: "token_missing",
		Detail: "Send the token of your grant in the header " + tokens.Header + "."}
	malformed = problem{Title: "The request cannot be read", Status: http.StatusBadRequest, Code: "malformed",
		Detail: "The header " + tokens.Header + " must be given once, as a decimal integer from 1 to " +
			strconv.FormatInt(int64(tokens.Max), 10) + ", and the request must name what it locks."}
	staleToken = problem{Title: "A newer holder has written", Status: http.StatusPreconditionFailed, Code: "stale_token",
		Detail: "Nothing was written. Do not repeat it with this token."}
	duplicate = problem{Title: "This token was used before", Status: http.StatusConflict, Code: "duplicate",
		Detail: "Nothing was written now. Look up what the first request did."}
	busy = problem{Title: "Another writer is at work", Status: http.StatusServiceUnavailable, Code: "busy",
		Detail: "Nothing was written. Repeat it with the same token.", retryAfter: "1"}
	outcomeUnknown = problem{Title: "The outcome is not known", Status: http.StatusServiceUnavailable, Code: "outcome_unknown",
		Detail: "It may have been written. Repeat it with the same token.", retryAfter: "1"}
	internal = problem{Title: "The server failed", Status: http.StatusInternalServerError, Code: "internal"}
)

func (p problem) write(w http.ResponseWriter) {
	body, err := json.Marshal(p)
	if err != nil {
		// Only a token out of bounds can do this, and it comes from a broken guard.
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	if p.retryAfter != "" {
		h.Set("Retry-After", p.retryAfter)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // the client has gone; there is nobody to tell
}
