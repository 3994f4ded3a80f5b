package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Role is what a key may do. A higher role includes the lower ones.
type Role uint8

// The roles.
const (
	// Read sees locks, sessions, events, metrics and the status.
	Read Role = iota + 1
	// Lock makes, keeps and ends holds and sessions.
	Lock
	// Admin breaks holds and changes the server.
	Admin
)

var roleNames = [...]string{Read: "read", Lock: "lock", Admin: "admin"}

// String returns "read", "lock" or "admin".
func (r Role) String() string {
	if r < Read || r > Admin {
		return fmt.Sprintf("Role(%d)", uint8(r))
	}
	return roleNames[r]
}

// MarshalText writes the name of the role.
func (r Role) MarshalText() ([]byte, error) {
	if r < Read || r > Admin {
		return nil, fmt.Errorf("role %d: not read, lock or admin", uint8(r))
	}
	return []byte(roleNames[r]), nil
}

// UnmarshalText reads the name of a role.
func (r *Role) UnmarshalText(text []byte) error {
	for role := Read; role <= Admin; role++ {
		if roleNames[role] == string(text) {
			*r = role
			return nil
		}
	}
	return fmt.Errorf("role %q: not read, lock or admin", text)
}

// Grant is a role over the locks whose names start with one of Prefixes, which
// are compared byte by byte. At least one is needed; "" is every name.
type Grant struct {
	Role     Role     `json:"role"`
	Prefixes []string `json:"prefixes"`
}

// Quota bounds the use of one key on one server. 0 means no bound.
type Quota struct {
	// Held is how many holds may be held at a time.
	Held int `json:"held,omitempty"`
	// Waiting is how many requests and event streams may wait at a time.
	Waiting int `json:"waiting,omitempty"`
	// PerSecond is how many requests a second may be made, on average over a
	// second.
	PerSecond int `json:"requests_per_second,omitempty"`
}

// Key is one entry of the file.
type Key struct {
	// ID is the public part of the key. It stands in logs.
	ID string `json:"id"`
	// Name says for people whose key it is: 1 to 64 printable bytes.
	Name string `json:"name"`
	// SHA256 is the hash of the secret in hex.
	SHA256 string  `json:"sha256"`
	Grants []Grant `json:"grants"`
	Quota  Quota   `json:"quota,omitzero"`

	hash [sha256.Size]byte
}

const (
	keyPrefix = "fk_"
	idBytes   = 6
	idLen     = 10
	maxName   = 64
)

var text32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Generate makes a key. The text is what its owner presents; nothing keeps it.
func Generate(name string, grants []Grant, quota Quota) (text string, k Key, err error) {
	var id [idBytes]byte
	var secret [32]byte
	_, _ = rand.Read(id[:]) // never fails
	_, _ = rand.Read(secret[:])
	k = Key{ID: text32.EncodeToString(id[:]), Name: name, Grants: grants, Quota: quota}
	plain := text32.EncodeToString(secret[:])
	hash := sha256.Sum256([]byte(plain))
	k.SHA256 = hex.EncodeToString(hash[:])
	if err := k.validate(); err != nil {
		return "", Key{}, err
	}
	return keyPrefix + k.ID + "_" + plain, k, nil
}

// validate names the field that is wrong and fills in the hash.
func (k *Key) validate() error {
	if len(k.ID) != idLen {
		return fmt.Errorf("key %q: id: not %d characters", k.Name, idLen)
	}
	if k.Name == "" || len(k.Name) > maxName || strings.ContainsFunc(k.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return fmt.Errorf("key %s: name: not 1 to %d printable ASCII characters", k.ID, maxName)
	}
	hash, err := hex.DecodeString(k.SHA256)
	if err != nil || len(hash) != sha256.Size {
		return fmt.Errorf("key %s: sha256: not %d hex digits", k.ID, 2*sha256.Size)
	}
	k.hash = [sha256.Size]byte(hash)
	if len(k.Grants) == 0 {
		return fmt.Errorf("key %s: grants: none", k.ID)
	}
	for _, g := range k.Grants {
		if _, err := g.Role.MarshalText(); err != nil {
			return fmt.Errorf("key %s: grants: %w", k.ID, err)
		}
		if len(g.Prefixes) == 0 {
			return fmt.Errorf(`key %s: grants: no prefixes; use "" for every name`, k.ID)
		}
		for _, prefix := range g.Prefixes {
			if !utf8.ValidString(prefix) { // no name starts with it, and JSON would keep another
				return fmt.Errorf("key %s: grants: prefix %q: not valid UTF-8", k.ID, prefix)
			}
		}
	}
	if k.Quota.Held < 0 || k.Quota.Waiting < 0 || k.Quota.PerSecond < 0 {
		return fmt.Errorf("key %s: quota: negative", k.ID)
	}
	return nil
}

// Allows reports whether k may act in role on the lock of that name. A nil key
// may do nothing.
func (k *Key) Allows(role Role, lock string) bool {
	return k.covers(role, func(prefix string) bool { return strings.HasPrefix(lock, prefix) })
}

// AllowsAll reports whether k may act in role on every lock whose name starts
// with prefix.
func (k *Key) AllowsAll(role Role, prefix string) bool { return k.Allows(role, prefix) }

// Has reports whether k may act in role on some lock.
func (k *Key) Has(role Role) bool {
	return k.covers(role, func(string) bool { return true })
}

func (k *Key) covers(role Role, covers func(prefix string) bool) bool {
	if k == nil {
		return false
	}
	for _, g := range k.Grants {
		if g.Role < role {
			continue
		}
		for _, prefix := range g.Prefixes {
			if covers(prefix) {
				return true
			}
		}
	}
	return false
}

// Set is the keys of one file by their ids.
type Set map[string]*Key

// Lookup returns the key that text presents, nil where it is none of the set's.
func (s Set) Lookup(text string) *Key {
	id, secret, ok := split(text)
	if !ok {
		return nil
	}
	if k := s[id]; k != nil && k.matches(secret) {
		return k
	}
	return nil
}

// split takes a presented key apart. It says nothing of whether it is known.
func split(text string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, "_")
}

// matches compares in constant time.
func (k *Key) matches(secret string) bool {
	hash := sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(hash[:], k.hash[:]) == 1
}
