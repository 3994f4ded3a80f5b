package main

import (
	"os"
	"testing"

	"github.com/fenced/fenced/internal/etcdtest"
	"github.com/fenced/fenced/tokens/pgfence/pgtest"
)

// The test binary is also the processes of the end-to-end tests: a real fenced,
// and workers that are really stopped.
const roleEnv = "FENCED_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "server":
		main()
		return
	case "worker":
		os.Exit(workerMain())
	}
	etcdtest.VerifyNoLeaks(pgtest.Main(m))
}
