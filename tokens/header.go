package tokens

import (
	"fmt"
	"net/http"
)

// Header is the name of the one HTTP header that carries a token, in requests
// and in answers alike.
const Header = "Fencing-Token"

// SetHeader puts t into h in place of any token there.
func SetHeader(h http.Header, t Token) { h.Set(Header, t.String()) }

// FromHeader returns the token of h. It gives an error that wraps [ErrMissing]
// where h has none, and one that wraps [ErrInvalid] where the value is malformed
// (see [Parse]) or the header is repeated, also with equal values: proxies
// disagree about which of two headers counts.
func FromHeader(h http.Header) (Token, error) {
	switch vs := h.Values(Header); len(vs) {
	case 0:
		return 0, fmt.Errorf("header %s: %w", Header, ErrMissing)
	case 1:
		t, err := Parse(vs[0])
		if err != nil {
			return 0, fmt.Errorf("header %s: %w", Header, err)
		}
		return t, nil
	default:
		return 0, fmt.Errorf("header %s: given %d times: %w", Header, len(vs), ErrInvalid)
	}
}
