package httpapi

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"log/slog"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/tokens"
)

// record is what the audit log tells of one call, as far as its handler knows.
type record struct {
	lock   string
	ref    string
	token  tokens.Token
	reason string
}

// auditLine writes who did what to which lock, and what came of it. Refused calls
// are written too, and of calls that change nothing those that nobody has let in: who
// tries keys must leave a trace. Callers' text is a value of its own; the handler
// escapes it.
func (a *api) auditLine(op *operation, c *call, err error) {
	if a.audit == nil || !c.audited && !turnedAway(err) {
		return
	}
	keyID := ""
	if c.key != nil {
		keyID = c.key.ID
	}
	a.audit.LogAttrs(c.r.Context(), slog.LevelInfo, "audit",
		slog.String("who", c.who()),
		slog.String("key", keyID),
		slog.String("certificate", c.certificate()),
		slog.String("remote", c.r.RemoteAddr),
		slog.String("what", op.id),
		slog.String("lock", c.record.lock),
		slog.String("ref", c.record.ref),
		slog.Int64("token", int64(c.record.token)),
		slog.String("reason", c.record.reason),
		slog.String("result", outcome(err)),
		slog.String("request_id", recorderOf(c.w).id))
}

func turnedAway(err error) bool {
	code := apierr.CodeOf(err)
	return code == apierr.Unauthorized || code == apierr.Forbidden
}

// outcome is ok or the code of err, for logs and metrics.
func outcome(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, errClientGone):
		return "client_gone"
	}
	return string(apierr.CodeOf(err))
}

var refText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// refOf is the public name of a secret id, for calls whose answer does not tell it.
func refOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return refText.EncodeToString(sum[:16])
}
