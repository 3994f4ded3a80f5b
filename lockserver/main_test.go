package lockserver_test

import (
	"testing"

	"github.com/fenced/fenced/internal/etcdtest"
)

func TestMain(m *testing.M) { etcdtest.VerifyNoLeaks(m) }
