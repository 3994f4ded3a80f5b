package tokens

import "context"

// contextKey is one key a lock, so that a context can carry tokens of nested
// locks side by side and a look-up finds one lock's and never another's.
type contextKey struct{ lock string }

// NewContext returns a context that carries t as the token of lock, beside the
// tokens of other locks that ctx carries. Within it, t hides an earlier token of
// the same lock.
func NewContext(ctx context.Context, lock string, t Token) context.Context {
	return context.WithValue(ctx, contextKey{lock}, t)
}

// FromContext returns the token that ctx carries for lock, and whether it carries
// one. It never returns the token of another lock: a fresh token of a nested lock
// must not let a stale write in.
func FromContext(ctx context.Context, lock string) (Token, bool) {
	t, ok := ctx.Value(contextKey{lock}).(Token)
	return t, ok
}
