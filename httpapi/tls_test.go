package httpapi_test

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
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
)

// authority signs certificates for loopback.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.sign(template, template, nil)
	return a
}

func (a *authority) sign(template, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if by == nil {
		by = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// issue writes a certificate with the given serial number and its key.
func (a *authority) issue(serial int64, certFile, keyFile string) {
	a.t.Helper()
	cert, key := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(keyFile, "PRIVATE KEY", der)
	a.write(certFile, "CERTIFICATE", cert.Raw)
}

func (a *authority) write(file, kind string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// A client without a certificate is refused, one with is served over HTTP/2, and
// a replaced certificate is used without a restart.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	ca := newAuthority(t)
	ca.write(path("ca.pem"), "CERTIFICATE", ca.cert.Raw)
	ca.issue(2, path("server.pem"), path("server.key"))
	ca.issue(3, path("client.pem"), path("client.key"))

	cfg, err := httpapi.TLSFiles{Cert: path("server.pem"), Key: path("server.key"), ClientCA: path("ca.pem")}.Config(quiet())
	if err != nil {
		t.Fatal(err)
	}
	srv := httpapi.NewServer(newHandler(t, etcdtest.Server(t)))
	srv.TLSConfig, srv.ErrorLog = cfg, log.New(io.Discard, "", 0)
	listener, err := httpapi.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go srv.ServeTLS(listener, "", "")
	t.Cleanup(func() { srv.Close() })

	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	clientCert, err := tls.LoadX509KeyPair(path("client.pem"), path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	get := func(certs ...tls.Certificate) (*http.Response, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: certs}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String() + "/readyz")
		if err == nil {
			t.Cleanup(func() { resp.Body.Close() })
		}
		return resp, err
	}

	if resp, err := get(); err == nil {
		t.Errorf("without a certificate: status %d", resp.StatusCode)
	}
	resp, err := get(clientCert)
	if err != nil {
		t.Fatal(err)
	}
	if decode[wire.Health](t, resp, http.StatusOK); resp.ProtoMajor != 2 || resp.TLS.PeerCertificates[0].SerialNumber.Int64() != 2 {
		t.Errorf("HTTP/%d, certificate %v", resp.ProtoMajor, resp.TLS.PeerCertificates[0].SerialNumber)
	}
	ca.issue(4, path("server.pem"), path("server.key"))
	for end := time.Now().Add(3 * time.Second); ; { // a second for the look, a second for the pair to fit, 1 s slack
		resp, err := get(clientCert)
		if err != nil {
			t.Fatal(err)
		}
		if resp.TLS.PeerCertificates[0].SerialNumber.Int64() == 4 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the new certificate is not used")
		}
	}
}

func TestTLSFiles_refuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := newAuthority(t)
	cert, key, empty := filepath.Join(dir, "cert"), filepath.Join(dir, "key"), filepath.Join(dir, "empty")
	ca.issue(2, cert, key)
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]httpapi.TLSFiles{
		"no key":              {Cert: cert},
		"key for a cert":      {Cert: key, Key: cert},
		"no such file":        {Cert: cert, Key: key + "x"},
		"empty authorities":   {Cert: cert, Key: key, ClientCA: empty},
		"missing authorities": {Cert: cert, Key: key, ClientCA: empty + "x"},
	} {
		if _, err := files.Config(quiet()); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
