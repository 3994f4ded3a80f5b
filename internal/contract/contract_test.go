package contract_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/fenced/fenced/clientsdk/sdktest"
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

func TestRealServer(t *testing.T) {
	t.Parallel()
	p := sdktest.Start(t, nil)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	contract.Run(t, func(t *testing.T) contract.Server {
		return contract.Server{Config: p.Config(), HTTP: &http.Client{Transport: tr}, URL: p.URL()}
	})
}
