package lockserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/fenced/fenced/lockserver/internal/queue"
)

// formatVersion is the major version of what this build writes: in each value that
// has fields, and for the prefix as a whole in the key format. Readers ignore fields
// that they do not know, so a field may be added at any time. A change after which an
// older build would misread the store takes the next number, and the server that
// makes it puts that number into format in the same transaction; older builds end
// then, see [FormatError].
const formatVersion = 1

// formatText is the value of the key format.
const formatText = "1"

// keyspace is the layout under one prefix; doc.go lists the keys.
type keyspace struct{ prefix string }

func (k keyspace) hold(ref queue.Ref) string    { return k.prefix + "h/" + refText(ref) }
func (k keyspace) session(ref queue.Ref) string { return k.prefix + "s/" + refText(ref) }
func (k keyspace) holds() string                { return k.prefix + "h/" }
func (k keyspace) sessions() string             { return k.prefix + "s/" }
func (k keyspace) ends() string                 { return k.prefix + "ends" }
func (k keyspace) base() string                 { return k.prefix + "base" }
func (k keyspace) cluster() string              { return k.prefix + "cluster" }
func (k keyspace) format() string               { return k.prefix + "format" }
func (k keyspace) closed() string               { return k.prefix + "closed" }
func (k keyspace) restored(id string) string    { return k.prefix + "restored/" + id }
func (k keyspace) vouch(id string) string       { return k.prefix + "vouch/" + id }
func (k keyspace) clock() string                { return k.prefix + "clock" }

// keyKind is the kind of thing that a key names.
type keyKind uint8

const (
	otherKey keyKind = iota
	holdKey
	sessionKey
	endsKey
	baseKey
	clusterKey
	formatKey
	closedKey
	restoredKey
	clockKey
	vouchKey
)

// parse tells what a key names; ref is set for holds and sessions.
func (k keyspace) parse(key []byte) (kind keyKind, ref queue.Ref) {
	rest, ok := strings.CutPrefix(string(key), k.prefix)
	if !ok {
		return otherKey, ref
	}
	switch {
	case rest == "ends":
		return endsKey, ref
	case rest == "base":
		return baseKey, ref
	case rest == "cluster":
		return clusterKey, ref
	case rest == "format":
		return formatKey, ref
	case rest == "closed":
		return closedKey, ref
	case rest == "clock":
		return clockKey, ref
	case strings.HasPrefix(rest, "restored/"):
		return restoredKey, ref
	case strings.HasPrefix(rest, "vouch/"):
		return vouchKey, ref
	case strings.HasPrefix(rest, "h/"):
		kind = holdKey
	case strings.HasPrefix(rest, "s/"):
		kind = sessionKey
	default:
		return otherKey, ref
	}
	ref, ok = parseRef(rest[2:])
	if !ok {
		return otherKey, ref
	}
	return kind, ref
}

// holdValue is the value of a hold's key. Field names are short because every
// member keeps every value in memory.
type holdValue struct {
	Version  int               `json:"v"`
	Lock     string            `json:"l"`
	Owner    string            `json:"o"`
	Metadata map[string]string `json:"m,omitempty"`
	Session  string            `json:"s,omitempty"`
	TTLMS    int64             `json:"t"`
	Server   string            `json:"n"`
	Created  int64             `json:"c"` // Unix milliseconds
}

func encodeHold(h *queue.Hold) []byte {
	return encode(holdValue{
		Version: formatVersion, Lock: h.Lock, Owner: h.Owner, Metadata: h.Metadata,
		Session: refText(h.Session), TTLMS: h.TTL.Milliseconds(), Server: h.Server,
		Created: h.Created.UnixMilli(),
	})
}

// encode returns a value of the store. All of them are structs of plain fields.
func encode(v any) []byte {
	value, err := json.Marshal(v)
	if err != nil {
		panic("lockserver: a value of plain fields must encode: " + err.Error())
	}
	return value
}

// decodeHold refuses what no server of this version could have written.
func decodeHold(ref queue.Ref, value []byte) (*queue.Hold, error) {
	var v holdValue
	if err := decodeValue(value, &v, &v.Version); err != nil {
		return nil, err
	}
	if err := ValidateLock(v.Lock); err != nil {
		return nil, err
	}
	if v.TTLMS < 1 || v.TTLMS > MaxTTL.Milliseconds() {
		return nil, fmt.Errorf("hold value: ttl of %d ms", v.TTLMS)
	}
	h := &queue.Hold{
		Ref: ref, Lock: v.Lock, Owner: v.Owner, Metadata: v.Metadata,
		TTL: time.Duration(v.TTLMS) * time.Millisecond, Server: v.Server, Created: time.UnixMilli(v.Created).UTC(),
	}
	if v.Session != "" {
		session, ok := parseRef(v.Session)
		if !ok {
			return nil, fmt.Errorf("hold value: session %q is no ref", v.Session)
		}
		h.Session = session
	}
	return h, nil
}

func decodeValue(value []byte, into any, version *int) error {
	if err := json.Unmarshal(value, into); err != nil {
		return fmt.Errorf("value: %w", err)
	}
	if *version < 1 || *version > formatVersion {
		return fmt.Errorf("value: format version %d, this build knows up to %d", *version, formatVersion)
	}
	return nil
}

// sessionValue is the value of a session's key.
type sessionValue struct {
	Version int    `json:"v"`
	Owner   string `json:"o"`
	TTLMS   int64  `json:"t"`
	Server  string `json:"n"`
	Created int64  `json:"c"`
}

// endEntry says how one hold or session ended and, of a break, who and why.
type endEntry struct {
	Ref    string `json:"r"`
	End    End    `json:"e"`
	By     string `json:"b,omitempty"`
	Reason string `json:"w,omitempty"`
}

// endsValue is the value of the ends key: the entries of one batch.
type endsValue struct {
	Version int        `json:"v"`
	Ends    []endEntry `json:"e"`
}

func encodeEnds(entries []endEntry) []byte {
	return encode(endsValue{Version: formatVersion, Ends: entries})
}

// decodeEnds returns the entries by ref. An entry of a way of ending that this
// build does not know reads as unknown.
func decodeEnds(value []byte) (map[queue.Ref]endEntry, error) {
	var v endsValue
	if err := decodeValue(value, &v, &v.Version); err != nil {
		return nil, err
	}
	entries := make(map[queue.Ref]endEntry, len(v.Ends))
	for _, e := range v.Ends {
		ref, ok := parseRef(e.Ref)
		if !ok {
			return nil, fmt.Errorf("ends value: %q is no ref", e.Ref)
		}
		if e.End == NotEnded || e.End > EndUnknown {
			e.End = EndUnknown
		}
		entries[ref] = e
	}
	return entries, nil
}

// closure is the value of the closed key: why granting is closed, and the highest
// token that the servers which closed it know to have been issued. A raise through
// any of them goes above it.
type closure struct {
	Version int    `json:"v"`
	Highest int64  `json:"h"`
	Reason  string `json:"w"`
}

// decodeClosure reads a closure. One that cannot be read closes too.
func decodeClosure(value []byte) closure {
	var c closure
	if err := decodeValue(value, &c, &c.Version); err != nil || c.Reason == "" {
		c.Reason = "another server closed it and the reason cannot be read"
	}
	return c
}
