package lockserver

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver/internal/queue"
)

// ids are 128 bits in 26 characters of lower-case base32; the last character
// carries three bits, so its other two must be zero for the text to be canonical.
var idText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

const idLen = 26

// newID returns a fresh secret id. The generator of crypto/rand never fails.
func newID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:])
	return idText.EncodeToString(raw[:])
}

// keyedID derives the id of a hold from its lock and idempotency key, so that
// every server maps a repeat to the same hold.
func keyedID(lock, key string) string {
	h := sha256.New()
	for _, part := range []string{"fenced hold", lock, key} {
		// A length before each part: no two pairs of parts hash alike.
		h.Write([]byte{byte(len(part) >> 8), byte(len(part))})
		h.Write([]byte(part))
	}
	return idText.EncodeToString(h.Sum(nil)[:16])
}

// refOf returns the public name of a secret id.
func refOf(id string) queue.Ref {
	sum := sha256.Sum256([]byte(id))
	return queue.Ref(sum[:16])
}

func refText(ref queue.Ref) string {
	if ref == (queue.Ref{}) {
		return ""
	}
	return idText.EncodeToString(ref[:])
}

func parseRef(text string) (queue.Ref, bool) {
	var ref queue.Ref
	if !canonicalID(text) {
		return ref, false
	}
	_, _ = idText.Decode(ref[:], []byte(text))
	return ref, ref != queue.Ref{} // the zero ref stands for "none"
}

// canonicalID reports whether text could be an id or ref: 26 characters that
// decode to 16 bytes and encode back to themselves.
func canonicalID(text string) bool {
	if len(text) != idLen {
		return false
	}
	raw, err := idText.DecodeString(text)
	return err == nil && len(raw) == 16 && idText.EncodeToString(raw) == text
}

// normalKey returns the canonical form of an idempotency key: 32 lower-case hex
// digits of a UUID or of 32 hex digits.
func normalKey(key string) (string, error) {
	plain := key
	if len(key) == 36 && key[8] == '-' && key[13] == '-' && key[18] == '-' && key[23] == '-' {
		plain = strings.ReplaceAll(key, "-", "")
	}
	if _, err := hex.DecodeString(plain); err != nil || len(plain) != 32 {
		return "", &apierr.Error{
			ErrCode: apierr.BadIdempotencyKey, Field: "Idempotency-Key", Limit: "a UUID or 32 hex digits",
			Detail: "Idempotency-Key must be a UUID or 32 hex digits, fresh for each attempt to acquire",
		}
	}
	return strings.ToLower(plain), nil
}
