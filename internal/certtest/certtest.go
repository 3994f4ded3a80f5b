// Package certtest makes certificates for tests: an authority that lives for an hour,
// and what it signs for loopback and for clients.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates into files of one directory.
type Authority struct {
	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority whose files end with the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, dir: tb.TempDir()}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(template, template, nil)
	a.write("ca.pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// CA is the file of the authority's own certificate.
func (a *Authority) CA() string { return filepath.Join(a.dir, "ca.pem") }

// Pool holds the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Names are what a certificate says of its owner.
type Names struct {
	Common string
	DNS    []string
	URIs   []string
}

// Issue signs a certificate for 127.0.0.1 and for clients, and returns its files.
func (a *Authority) Issue(n Names) (cert, key string) {
	a.tb.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: n.Common}, DNSNames: n.DNS, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, text := range n.URIs {
		u, err := url.Parse(text)
		if err != nil {
			a.tb.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	signed, private := a.sign(template, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.tb.Fatal(err)
	}
	name := rand.Text()
	return a.write(name+".pem", "CERTIFICATE", signed.Raw), a.write(name+".key", "PRIVATE KEY", der)
}

// Pair is Issue, loaded.
func (a *Authority) Pair(n Names) tls.Certificate {
	a.tb.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(n))
	if err != nil {
		a.tb.Fatal(err)
	}
	return pair
}

// Serve serves h over TLS to clients that have a certificate of the authority, until
// the test ends.
func (a *Authority) Serve(h http.Handler) *httptest.Server {
	a.tb.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.TLS = &tls.Config{
		Certificates: []tls.Certificate{a.Pair(Names{Common: "server"})},
		ClientCAs:    a.Pool(), ClientAuth: tls.RequireAndVerifyClientCert,
	}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	a.tb.Cleanup(srv.Close)
	return srv
}

func (a *Authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	if by == nil {
		by = key
	}
	template.SerialNumber = new(big.Int).SetBytes([]byte(rand.Text()))
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	return cert, key
}

func (a *Authority) write(name, kind string, der []byte) string {
	a.tb.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.tb.Fatal(err)
	}
	return path
}
