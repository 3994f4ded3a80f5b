package httpapi

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/fenced/fenced/httpapi/keys"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/lockserver"
)

// authenticate finds the key of the request and demands that it has the
// operation's role over some lock; over which, its handler asks with permit.
// Without a key file everybody may do everything.
func (a *api) authenticate(c *call, need keys.Role) error {
	if a.keys == nil || need == 0 {
		return nil
	}
	c.keys = a.keys
	return c.identify(need)
}

// again is asked before the answer to a request that has waited: its key may have been
// taken out of the file, or its role from the key, since the request was admitted.
func (c *call) again(need keys.Role) error {
	if c.keys == nil {
		return nil
	}
	return c.identify(need)
}

// stillAllowed is again for an answer that tells of a lock: a refusal has a holder.
func (c *call) stillAllowed(need keys.Role) error {
	if err := c.again(need); err != nil || c.record.lock == "" {
		return err
	}
	return c.permit(need, c.record.lock)
}

func (c *call) identify(need keys.Role) error {
	text, ok := bearer(c.r.Header)
	if !ok {
		return apierr.New(apierr.Unauthorized, "give an API key; with curl: -H 'Authorization: Bearer fk_...'")
	}
	key := c.keys.Lookup(text)
	if key == nil {
		return apierr.New(apierr.Unauthorized, "the API key is not known")
	}
	c.key = key
	if !key.Has(need) {
		return apierr.New(apierr.Forbidden, "this call needs a key with the role %s", need)
	}
	return nil
}

// bearer returns the key of the Authorization header.
func bearer(h http.Header) (string, bool) {
	values := h["Authorization"]
	if len(values) != 1 {
		return "", false
	}
	scheme, text, ok := strings.Cut(values[0], " ")
	return text, ok && strings.EqualFold(scheme, "Bearer")
}

// permit demands the role over the lock of that name.
func (c *call) permit(role keys.Role, lock string) error {
	if c.key == nil || c.key.Allows(role, lock) {
		return nil
	}
	return apierr.New(apierr.Forbidden, "the key has not the role %s over this lock", role)
}

// permitPrefix demands the role over all locks whose names start with prefix.
func (c *call) permitPrefix(role keys.Role, prefix string) error {
	if c.key == nil || c.key.AllowsAll(role, prefix) {
		return nil
	}
	return apierr.New(apierr.Forbidden, "the key has not the role %s over all locks that the call concerns; give a prefix that it has", role)
}

// who names the caller for the record: by the key, else by the certificate; "" where
// there is neither.
func (c *call) who() string {
	if c.key != nil {
		return c.key.Name
	}
	return c.certificate()
}

// certificate names the owner of the client's certificate, "" where none was asked for.
func (c *call) certificate() string {
	if c.r.TLS == nil || len(c.r.TLS.VerifiedChains) == 0 {
		return ""
	}
	return certificateName(c.r.TLS.VerifiedChains[0][0])
}

// certificateName is the common name of a certificate, else its first name of another
// kind; its fingerprint where none of them can stand in a record.
func certificateName(cert *x509.Certificate) string {
	all := []string{cert.Subject.CommonName}
	for _, u := range cert.URIs {
		all = append(all, u.String())
	}
	all = append(append(all, cert.DNSNames...), cert.EmailAddresses...)
	for _, name := range all {
		if lockserver.ValidateOwner(name) == nil {
			return name
		}
	}
	sum := sha256.Sum256(cert.Raw)
	return "sha256:" + hex.EncodeToString(sum[:])
}
