package embedded

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A file that has grown to its quota takes no writes, also when its history is gone;
// the node makes it smaller and lifts the alarm by itself.
func TestNode_MendsAFullStore(t *testing.T) {
	t.Parallel()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	node, err := Start(ctx, Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true, QuotaBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	put := func() (rev int64, err error) {
		resp, err := node.Client().Put(ctx, "ballast", strings.Repeat("x", 1<<20))
		if err == nil {
			rev = resp.Header.Revision
		}
		return rev, err
	}
	var rev int64
	for err == nil {
		var done int64
		if done, err = put(); err == nil {
			rev = done
		}
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatal(err)
	}
	node.inUse() // what is still on its way to the file makes it grow
	full := node.etcd.Server.Backend().Size()
	node.mendFull(ctx, time.Now(), log)
	if got := node.etcd.Server.Backend().Size(); got != full {
		t.Errorf("a file that is full of what is in use went from %d to %d bytes", full, got)
	}
	// A reader still looks at the history while it is dropped: nothing that is freed
	// counts as free then, and no write comes that would tell later.
	reader := node.etcd.Server.Backend().ConcurrentReadTx()
	reader.RLock()
	_, err = node.Client().Compact(ctx, rev, clientv3.WithCompactPhysical())
	reader.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	for looks := 0; len(node.etcd.Server.Alarms()) > 0 && looks < 100; looks++ {
		node.mendFull(ctx, time.Now(), log)
		time.Sleep(10 * time.Millisecond) // the end of a reader is told to nobody; Upkeep looks every 10 s
	}
	if _, err := put(); err != nil {
		t.Errorf("the store stays full: %v", err)
	}
	if got := node.etcd.Server.Backend().Size(); got > full/2 {
		t.Errorf("the file has %d bytes after %d", got, full)
	}
	if alarms := node.etcd.Server.Alarms(); len(alarms) > 0 {
		t.Errorf("alarms %v", alarms)
	}
}
