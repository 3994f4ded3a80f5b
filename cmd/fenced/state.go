package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/httpapi"
)

// stateTimeout bounds a look at the store: whoever asks for the status of a server
// in trouble must get it.
const stateTimeout = time.Second

// state returns a look at an etcd; endpoints are tried in turn. own says that the
// answering member is this server's.
func state(client *clientv3.Client, endpoints []string, own bool) func(context.Context) httpapi.StoreState {
	return func(ctx context.Context) httpapi.StoreState {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		var st *clientv3.StatusResponse
		err := errors.New("no endpoint")
		for i := 0; i < len(endpoints) && err != nil && ctx.Err() == nil; i++ {
			st, err = client.Status(ctx, endpoints[i])
		}
		if err != nil {
			return httpapi.StoreState{Faults: []string{"the store does not answer"}}
		}
		out := httpapi.StoreState{
			EtcdVersion: st.Version, Leads: own && st.Leader != 0 && st.Leader == st.Header.MemberId,
			Bytes: st.DbSize, Used: st.DbSizeInUse, Quota: st.DbSizeQuota,
		}
		for _, fault := range st.Errors {
			out.Faults = append(out.Faults, strings.TrimSpace(fault))
		}
		nameMembers(ctx, client, st.Leader, &out)
		return out
	}
}

// nameMembers counts the members and finds the one that leads. The list is this
// member's own: it must be had without a quorum, too.
func nameMembers(ctx context.Context, client *clientv3.Client, leader uint64, out *httpapi.StoreState) {
	list, err := client.MemberList(ctx, clientv3.WithSerializable())
	if err == nil {
		out.Members = len(list.Members)
		for _, m := range list.Members {
			if m.ID == leader {
				out.Leader = m.Name
			}
		}
	}
	if out.Leader == "" && leader != 0 {
		out.Leader = fmt.Sprintf("%016x", leader)
	}
}

// backups remembers in a file when this server last sent a whole snapshot, so that a
// restart does not forget it.
type backups struct {
	path string
	log  *slog.Logger
}

func (b backups) done(at time.Time) {
	if err := os.WriteFile(b.path, []byte(at.UTC().Format(time.RFC3339)+"\n"), 0o600); err != nil {
		b.log.Warn("the time of the backup will not be remembered", "error", err)
	}
}

// last returns the zero time where no backup is known.
func (b backups) last() time.Time {
	text, err := os.ReadFile(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}
	}
	at, parseErr := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err != nil || parseErr != nil {
		b.log.Warn("the time of the last backup cannot be read", "error", errors.Join(err, parseErr))
		return time.Time{}
	}
	return at
}
