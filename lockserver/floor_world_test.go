package lockserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/fenced/fenced/lockserver"
)

// What TestFloor_TokensRiseInEveryDisaster needs to have a real store and real servers.

type upServer struct {
	*lockserver.Server
	cancel context.CancelFunc
	done   chan error
}

func (w *world) need(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) name(what string) string {
	w.names++
	return filepath.Join(w.dir, fmt.Sprint(what, w.names))
}

func (w *world) file(i int) string { return filepath.Join(w.dir, fmt.Sprint("issued", i)) }

// view is what the store says.
type view struct {
	rev, at int64 // at is the token of the revision
	closed  bool
	highest int64 // of the closure
	holds   int64
}

func (w *world) look() (v view) {
	const p = lockserver.DefaultPrefix
	resp, err := w.node.Client().Txn(context.Background()).Then(
		clientv3.OpGet(p+"base"), clientv3.OpGet(p+"closed"), clientv3.OpGet(p+"h/", clientv3.WithPrefix(), clientv3.WithCountOnly()),
	).Commit()
	w.need(err)
	v.rev, v.holds = resp.Header.Revision, resp.Responses[2].GetResponseRange().Count
	v.at = v.rev
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		base, err := strconv.ParseInt(string(kv.Value), 10, 64)
		w.need(err)
		v.at += base
	}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		closure := struct{ H int64 }{}
		w.need(json.Unmarshal(kv.Value, &closure))
		v.closed, v.highest = true, closure.H
	}
	return v
}

func (w *world) run(i int) {
	server, err := lockserver.New(lockserver.Config{
		Client: w.node.Client(), Managed: true, Name: fmt.Sprint("n", i), IssuedFile: w.file(i), Restored: w.restored,
	})
	w.need(err)
	ctx, cancel := context.WithCancel(context.Background())
	s := &upServer{server, cancel, make(chan error, 1)}
	go func() { s.done <- server.Run(ctx) }()
	w.up[i] = s
}

// copyDir copies a directory, and leaves a hole where etcd has reserved room in a file.
func copyDir(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		target := filepath.Join(to, path[len(from):])
		if err != nil || d.IsDir() {
			return errors.Join(err, os.MkdirAll(target, 0o700))
		}
		content, err := os.ReadFile(path)
		used := bytes.TrimRight(content, "\x00")
		return errors.Join(err, os.WriteFile(target, used, 0o600), os.Truncate(target, int64(len(content))))
	})
}

func (w *world) halt(i int) {
	s := w.up[i]
	w.up[i] = nil
	s.cancel()
	w.need(<-s.done)
}

func (w *world) end() {
	for _, s := range w.up {
		if s != nil {
			s.cancel()
			<-s.done
		}
	}
	if w.node != nil {
		_ = w.node.Close()
	}
	_ = os.RemoveAll(w.dir)
}
