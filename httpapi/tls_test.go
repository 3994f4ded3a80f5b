package httpapi_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fenced/fenced/httpapi"
	"github.com/fenced/fenced/internal/certtest"
	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/internal/wire"
)

// A client without a certificate is refused, one with is served over HTTP/2, and
// a replaced certificate is used without a restart.
func TestTLSFiles(t *testing.T) {
	t.Parallel()
	ca := certtest.New(t)
	cert, key := ca.Issue(certtest.Names{Common: "first"})
	cfg, err := httpapi.TLSFiles{Cert: cert, Key: key, ClientCA: ca.CA()}.Config(quiet())
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

	clientCert := ca.Pair(certtest.Names{Common: "client"})
	get := func(certs ...tls.Certificate) (*http.Response, error) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca.Pool(), Certificates: certs}, ForceAttemptHTTP2: true}
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
	if decode[wire.Health](t, resp, http.StatusOK); resp.ProtoMajor != 2 || served(resp) != "first" {
		t.Errorf("HTTP/%d, certificate %s", resp.ProtoMajor, served(resp))
	}
	second, secondKey := ca.Issue(certtest.Names{Common: "second"})
	if err := errors.Join(os.Rename(second, cert), os.Rename(secondKey, key)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(3 * time.Second); ; { // a second for the look, a second for the pair to fit, 1 s slack
		resp, err := get(clientCert)
		if err != nil {
			t.Fatal(err)
		}
		if served(resp) == "second" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the new certificate is not used")
		}
	}
}

// served names the certificate that the server showed.
func served(resp *http.Response) string { return resp.TLS.PeerCertificates[0].Subject.CommonName }

func TestTLSFiles_refuses(t *testing.T) {
	t.Parallel()
	cert, key := certtest.New(t).Issue(certtest.Names{Common: "server"})
	empty := filepath.Join(t.TempDir(), "empty")
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
