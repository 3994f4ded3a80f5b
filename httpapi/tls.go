package httpapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/fenced/fenced/httpapi/internal/reload"
)

// TLSFiles names the PEM files of a server's certificate. They may be replaced
// while it runs: new connections use the new ones within a second.
type TLSFiles struct {
	// Cert is the certificate with its chain, Key its private key. Required.
	Cert, Key string
	// ClientCA, if not "", holds the authorities whose certificates clients must
	// present.
	ClientCA string
	_        struct{}
}

// Config reads the files and returns a configuration that follows them. The
// logger gets what is wrong with later versions; nil means [slog.Default].
func (f TLSFiles) Config(log *slog.Logger) (*tls.Config, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("TLS files: Cert and Key are both needed")
	}
	paths := []string{f.Cert, f.Key}
	if f.ClientCA != "" {
		paths = append(paths, f.ClientCA)
	}
	current, err := reload.New(log, f.read, paths...)
	if err != nil {
		return nil, fmt.Errorf("TLS files: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return current.Get(), nil
		},
	}, nil
}

// read makes the configuration of one version of the files.
func (f TLSFiles) read() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"},
	}
	if f.ClientCA == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, err
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !cfg.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s: no certificate in it", f.ClientCA)
	}
	return cfg, nil
}
