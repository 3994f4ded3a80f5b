package lockserver

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/names"
)

// ValidateLock returns an out_of_bounds error unless name is a lock's name: 1 to
// [MaxLockName] bytes of UTF-8 in NFC without characters of the categories Cc,
// Cf, Cs, Co, Cn, Zl and Zp. Names are compared byte by byte, and what is stored
// equals what was sent.
func ValidateLock(name string) error {
	return validateText("lock", name, 1, MaxLockName)
}

// ValidateOwner returns an out_of_bounds error unless owner is 1 to [MaxOwner]
// bytes of the characters that [ValidateLock] allows.
func ValidateOwner(owner string) error {
	return validateText("owner", owner, 1, MaxOwner)
}

func validateText(field, text string, low, high int) error {
	return names.Check(field, text, low, high)
}

// validateTTL checks what a caller asked for against the server's maximum. It
// never rounds.
func validateTTL(ttl, highest time.Duration) error {
	if ttl < MinTTL || ttl > highest || ttl%time.Millisecond != 0 {
		return apierr.Bounds("ttl", fmt.Sprintf("%s to %s in whole milliseconds", MinTTL, highest))
	}
	return nil
}

// ValidateWait returns an out_of_bounds error unless wait is 0 to [MaxWait] in
// whole milliseconds.
func ValidateWait(wait time.Duration) error {
	if wait < 0 || wait > MaxWait || wait%time.Millisecond != 0 {
		return apierr.Bounds("wait", fmt.Sprintf("0s to %s in whole milliseconds; ask again to wait longer", MaxWait))
	}
	return nil
}

func validateMetadata(metadata map[string]string) error {
	if len(metadata) > MaxMetadata {
		return apierr.Bounds("metadata", fmt.Sprintf("at most %d entries", MaxMetadata))
	}
	total := 0
	for k, v := range metadata {
		total += len(k) + len(v)
		if !utf8.ValidString(k) || !utf8.ValidString(v) || k == "" {
			return apierr.Bounds("metadata", "valid UTF-8 with non-empty keys")
		}
	}
	if total > MaxMetadataBytes {
		return apierr.Bounds("metadata", fmt.Sprintf("at most %d bytes, keys and values together", MaxMetadataBytes))
	}
	return nil
}

// normalize fills in defaults and refuses what is out of bounds. The idempotency
// key comes back in canonical form.
func (r *AcquireRequest) normalize(highest time.Duration) error {
	if r.TTL == 0 && r.Session == "" {
		r.TTL = min(DefaultTTL, highest)
	}
	if r.TTL != 0 {
		if err := validateTTL(r.TTL, highest); err != nil {
			return err
		}
	}
	for _, check := range []error{
		ValidateLock(r.Lock), ValidateOwner(r.Owner), ValidateWait(r.Wait), validateMetadata(r.Metadata),
	} {
		if check != nil {
			return check
		}
	}
	if r.IdempotencyKey != "" {
		key, err := normalKey(r.IdempotencyKey)
		r.IdempotencyKey = key
		return err
	}
	if r.KeepPlace {
		return apierr.Bounds("keep_place", "used with an Idempotency-Key, by which the place can be asked for again")
	}
	return nil
}
