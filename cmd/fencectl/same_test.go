package main

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/fenced/fenced/clientsdk"
	"github.com/fenced/fenced/clientsdk/sdktest"
	"github.com/fenced/fenced/internal/apierr"
	"github.com/fenced/fenced/internal/contract"
	"github.com/fenced/fenced/internal/wire"
)

// realContract is a real server for the tables that raw HTTP, SDK and this program share.
func realContract(t *testing.T) (contract.Server, contract.CLI) {
	t.Helper()
	p := sdktest.Start(t, nil)
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	cfg := p.Config()
	cli := func(t *testing.T, args ...string) (int, string, string) {
		t.Helper()
		b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": p.URL()}}
		if args[0] == "run" { // what runs a command must be a process of its own
			p := b.program(args...)
			return p.code(), p.out.String(), p.err.String()
		}
		r := b.run(args...)
		return r.code, r.out, r.err
	}
	return contract.Server{Config: cfg, HTTP: &http.Client{Transport: tr}, URL: p.URL()}, cli
}

func TestNames_AreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	s, cli := realContract(t)
	contract.RunNames(t, s, cli)
}

func TestOutcomes_AreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	s, cli := realContract(t)
	contract.RunOutcomes(t, s, cli)
}

// Every code that a server can answer with reaches the caller of raw HTTP, the SDK and
// the command line as the same code, and leads to the exit code of the one table.
func TestCodes_AreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup // at once: what may pass is tried again for some seconds
	for _, code := range apierr.Codes() {
		all.Go(func() { codeEverywhere(t, code) })
	}
	all.Wait()
}

func codeEverywhere(t *testing.T, code apierr.Code) {
	srv := sdktest.New()
	defer srv.Close()
	h := httptest.NewServer(srv)
	defer h.Close()
	for range 1000 {
		srv.On(sdktest.Renew, sdktest.Fault{Code: string(code)})
	}
	if got := httpCode(t, h.URL); got != code {
		t.Errorf("HTTP: %q, want %q", got, code)
	}
	if got := sdkCode(t, srv); got != code {
		t.Errorf("SDK: %q, want %q", got, code)
	}
	b := &bundle{T: t, env: map[string]string{"FENCED_ADDR": h.URL}}
	r := b.run("renew", "x", "-o", "json")
	var body struct{ Error struct{ Code apierr.Code } }
	if err := json.Unmarshal([]byte(r.err), &body); err != nil || body.Error.Code != code || r.code != code.Info().Exit {
		t.Errorf("CLI: %+v, want code %s and exit code %d", r, code, code.Info().Exit)
	}
}

func httpCode(t *testing.T, url string) apierr.Code {
	t.Helper()
	resp, err := http.Post(url+"/v1/holds/x/renew", "", nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	var p wire.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Error(err)
	}
	if resp.StatusCode != p.Code.Info().Status {
		t.Errorf("status %d for %s", resp.StatusCode, p.Code)
	}
	return p.Code
}

func sdkCode(t *testing.T, srv *sdktest.Server) apierr.Code {
	t.Helper()
	cfg := srv.Config()
	cfg.RetryFor = 1 // no second try
	client, err := clientsdk.New(cfg)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer client.Close()
	_, err = client.RenewID(t.Context(), "x")
	if code := apierr.CodeOf(err); clientsdk.SafeToRetry(err) != code.Info().Retryable && !errors.Is(err, clientsdk.ErrUnavailable) {
		t.Errorf("SafeToRetry(%v) is not what the table says", err)
	}
	return apierr.CodeOf(err)
}
