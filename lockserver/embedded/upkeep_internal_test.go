package embedded

import (
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestNode_KeepsAMinuteOfHistory looks every 10 s for two minutes, by a clock of its own:
// what was written at least a minute before can be read no more, all that is newer can.
func TestNode_KeepsAMinuteOfHistory(t *testing.T) {
	t.Parallel()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	node, err := Start(ctx, Config{Dir: filepath.Join(t.TempDir(), "data"), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	if err := node.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	var past history
	var written []mark
	start := time.Now()
	for after := time.Duration(0); after <= 2*compactKeep; after += compactEvery {
		resp, err := node.Client().Put(ctx, "k", after.String())
		if err != nil {
			t.Fatal(err)
		}
		present := mark{start.Add(after), resp.Header.Revision}
		written = append(written, present)
		node.keep(ctx, &past, present, log)
		var last mark // the newest that is old enough; the store keeps it, and nothing below
		for _, m := range written {
			if present.when.Sub(m.when) >= compactKeep {
				last = m
			}
		}
		for _, m := range written {
			_, err := node.Client().Get(ctx, "k", clientv3.WithRev(m.rev))
			if gone := errors.Is(err, rpctypes.ErrCompacted); gone != (m.rev < last.rev) || err != nil && !gone {
				t.Fatalf("after %v revision %d of %v before: %v", after, m.rev, present.when.Sub(m.when), err)
			}
		}
	}
	if past.done == 0 {
		t.Error("nothing was dropped")
	}
}
