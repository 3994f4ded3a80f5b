package httpapi

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"net/url"
	"strings"
	"testing"
)

func TestCertificateName(t *testing.T) {
	t.Parallel()
	spiffe, err := url.Parse("spiffe://example/worker")
	if err != nil {
		t.Fatal(err)
	}
	common := func(name string) pkix.Name { return pkix.Name{CommonName: name} }
	for want, cert := range map[string]x509.Certificate{
		"alice":                   {Subject: common("alice"), DNSNames: []string{"a.example"}},
		"spiffe://example/worker": {URIs: []*url.URL{spiffe}, DNSNames: []string{"a.example"}},
		"a.example":               {Subject: common("two\nlines"), DNSNames: []string{"a.example"}},
		"a@example.com":           {Subject: common(strings.Repeat("x", 129)), EmailAddresses: []string{"a@example.com"}},
		// Of no bytes at all, as this test's certificates are.
		"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": {Subject: common("\u202eevil")},
	} {
		if got := certificateName(&cert); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
