package contract_test

import (
	"net/http"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apikey"
	"github.com/fenced/fenced/internal/contract"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFake(t *testing.T) {
	t.Parallel()
	contract.Run(t, func(t *testing.T) contract.Server {
		srv := sdktest.New()
		t.Cleanup(srv.Close)
		return contract.Server{
			Config: srv.Config(),
			HTTP:   &http.Client{Transport: srv.Transport()},
			URL:    srv.Config().Endpoints[0],
		}
	})
}

func TestFake_Access(t *testing.T) {
	t.Parallel()
	srv := sdktest.New()
	t.Cleanup(srv.Close)
	keys := contract.Keys{Prefix: "mine/", Read: srv.AddKey("read", "mine/"), Lock: srv.AddKey("lock", "mine/"),
		Admin: srv.AddKey("admin", "mine/"), Root: srv.AddKey("admin", "")}
	contract.RunAccess(t, contract.Server{
		Config: srv.Config(), HTTP: &http.Client{Transport: srv.Transport()}, URL: srv.Config().Endpoints[0],
	}, keys)
}

func TestRealServer_Access(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.json")
	add := func(role apikey.Role, prefix string) string {
		text, key, err := apikey.Generate("contract", []apikey.Grant{{Role: role, Prefixes: []string{prefix}}}, apikey.Quota{})
		if err == nil {
			err = apikey.Add(file, key)
		}
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	keys := contract.Keys{Prefix: "mine/", Read: add(apikey.Read, "mine/"), Lock: add(apikey.Lock, "mine/"),
		Admin: add(apikey.Admin, "mine/"), Root: add(apikey.Admin, "")}
	p := sdktest.Start(t, &sdktest.ProcessOptions{Args: []string{"--keys", file}})
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	contract.RunAccess(t, contract.Server{Config: p.Config(), HTTP: &http.Client{Transport: tr}, URL: p.URL()}, keys)
}

func TestRealServer(t *testing.T) {
	t.Parallel()
	p := sdktest.Start(t, nil)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	contract.Run(t, func(t *testing.T) contract.Server {
		return contract.Server{Config: p.Config(), HTTP: &http.Client{Transport: tr}, URL: p.URL()}
	})
}
