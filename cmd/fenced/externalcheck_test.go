package main

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"google.golang.org/grpc"

	"github.com/fenced/fenced/internal/certtest"
)

// TestExternal_OverTLS runs on an etcd that takes only clients with a certificate of its
// authority, and is refused with half of the settings, or the wrong authority.
func TestExternal_OverTLS(t *testing.T) {
	t.Parallel()
	authority := certtest.New(t)
	etcd := newEtcd(t)
	etcd.client = strings.Replace(etcd.client, "http://", "https://", 1)
	etcd.tls = transport.TLSInfo{TrustedCAFile: authority.CA(), ClientCertAuth: true}
	etcd.tls.CertFile, etcd.tls.KeyFile = authority.Issue(certtest.Names{Common: "etcd"})
	etcd.start(t.TempDir())
	cert, key := authority.Issue(certtest.Names{Common: "fenced"})
	stranger := certtest.New(t)
	foreignCert, foreignKey := stranger.Issue(certtest.Names{Common: "fenced"})

	for name, set := range map[string]func(*Config){
		"no client certificate":              func(c *Config) { c.EtcdCA = authority.CA() },
		"no authority":                       func(c *Config) { c.EtcdCert, c.EtcdKey = cert, key },
		"another authority":                  func(c *Config) { c.EtcdCert, c.EtcdKey, c.EtcdCA = cert, key, stranger.CA() },
		"a certificate of another authority": func(c *Config) { c.EtcdCert, c.EtcdKey, c.EtcdCA = foreignCert, foreignKey, authority.CA() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := etcd.config()
			config.Listen = "127.0.0.1:0"
			set(config)
			program, err := New(config, io.Discard, new(logBuffer))
			if err != nil {
				t.Fatal(err)
			}
			if err := program.Run(t.Context()); err == nil || !strings.Contains(err.Error(), etcd.client) {
				t.Errorf("the server ended with %v", err)
			}
		})
	}

	config := etcd.config()
	config.EtcdCert, config.EtcdKey, config.EtcdCA = cert, key, authority.CA()
	server, _, _ := startConfig(t, config)
	release(t, server, acquire(t, server, `{"lock":"a","owner":"me"}`))
}

// saysVersion has a real etcd say that it is another version.
func saysVersion(version string) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := call(ctx, method, req, reply, cc, opts...)
		if status, ok := reply.(*etcdserverpb.StatusResponse); ok && err == nil {
			status.Version = version
		}
		return err
	})}
}

func TestExternal_AnOldEtcdIsRefusedUnlessAllowed(t *testing.T) {
	t.Parallel()
	etcd := newEtcd(t)
	etcd.start(t.TempDir())
	logs := new(logBuffer)
	log := slog.New(slog.NewTextHandler(logs, nil))
	const warning = "an old etcd was allowed"
	for _, c := range []struct {
		version        string
		allow          bool
		refused, warns bool
	}{
		{version: "3.5.28", refused: true},
		{version: "3.5.28", allow: true, warns: true},
		{version: "3.7.1"},
	} {
		config := etcd.config()
		config.AllowOldEtcd = c.allow
		before := strings.Count(logs.String(), warning)
		s, err := openExternal(t.Context(), config, log, saysVersion(c.version))
		if err == nil {
			err = s.close()
		} else if c.refused && strings.Contains(err.Error(), c.version) && strings.Contains(err.Error(), "--allow-old-etcd") {
			continue
		}
		if err != nil || c.refused {
			t.Errorf("version %s, allowed %v: %v", c.version, c.allow, err)
		}
		if warned := strings.Count(logs.String(), warning) > before; warned != c.warns {
			t.Errorf("version %s, allowed %v: warned %v", c.version, c.allow, warned)
		}
	}
}
