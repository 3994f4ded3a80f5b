package main

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"
)

// tlsFiles are the PEM files by which fencectl and a server know each other. All of
// them empty means the authorities of the system, and no certificate of our own.
type tlsFiles struct {
	ca, cert, key string
}

func (f tlsFiles) given() bool { return f != tlsFiles{} }

// or fills in what f leaves empty. A certificate and its key belong together.
func (f tlsFiles) or(g tlsFiles) tlsFiles {
	if f.ca == "" {
		f.ca = g.ca
	}
	if f.cert == "" && f.key == "" {
		f.cert, f.key = g.cert, g.key
	}
	return f
}

// config reads the files; nil where none is given. The certificate is read again for
// each connection, because "fencectl run" can outlive it.
func (f tlsFiles) config() (*tls.Config, error) {
	if !f.given() {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	switch {
	case strings.HasPrefix(f.key, "fk_"): // not shown: it may be a real one
		return nil, usage("--key and FENCED_KEY name a file; an API key goes into FENCED_API_KEY")
	case (f.cert == "") != (f.key == ""):
		return nil, usage("--cert and --key must be given together")
	case f.cert != "":
		if _, err := tls.LoadX509KeyPair(f.cert, f.key); err != nil {
			return nil, usage("--cert, --key: %w", err)
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.cert, f.key)
			return &pair, err
		}
	}
	if f.ca == "" {
		return cfg, nil
	}
	pem, err := os.ReadFile(f.ca)
	if err != nil {
		return nil, usage("--ca: %w", err)
	}
	cfg.RootCAs = x509.NewCertPool()
	if !cfg.RootCAs.AppendCertsFromPEM(pem) {
		return nil, usage("--ca: %s holds no certificate", f.ca)
	}
	return cfg, nil
}

// endpoints splits addresses. One without a scheme is https where files for TLS are
// given; they would do nothing for one that is http.
func (f tlsFiles) endpoints(addr string) ([]string, error) {
	var all []string
	for e := range strings.SplitSeq(addr, ",") {
		e = strings.TrimSpace(e)
		switch {
		case e == "":
			continue
		case strings.Contains(e, "://"):
		case f.given():
			e = "https://" + e
		default:
			e = "http://" + e
		}
		if f.given() && strings.HasPrefix(e, "http://") {
			return nil, usage("certificates are given, and %s is not https", e)
		}
		all = append(all, e)
	}
	if len(all) == 0 && f.given() {
		return nil, usage("certificates are given, and no address: set --addr or FENCED_ADDR")
	}
	return all, nil
}
