package embedded

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// RevisionBump is what a restore adds to the revision of a snapshot: more than any
// store writes between a snapshot and its loss, and small enough for thousands of
// restores below tokens.Max. It must be the same on all members that restore one
// snapshot, so it tells nothing of earlier restores: the engine does, by the clock, when
// it acts on the id.
const RevisionBump = 1_000_000_000_000

// Restore makes the data directory of config from a snapshot file, and leaves the
// id of the restore beside it, see [RestoreID]. The directory must be empty or
// missing. Of a cluster, each member restores the same file into its own
// directory; together they form a new cluster, so none may be left out.
//
// Revisions go on [RevisionBump] above the snapshot's, so tokens to come are above
// those issued before, and all history is marked as compacted, so no watch of the
// time before goes on as if nothing had happened. The holds of the snapshot are
// ended by the first server that knows the id.
//
// The file is checked first, and the data gets its place when it is whole: a restore
// that fails can be made again, and nothing of it can be served. A file that is no
// whole snapshot is an error that matches [ErrBadSnapshot].
func Restore(file string, config Config) (id string, err error) {
	settings, err := config.settings()
	if err != nil {
		return "", err
	}
	if id, err = checkSnapshot(file, config.Logger); err != nil {
		return "", fmt.Errorf("embedded: restore %s: %w", file, err)
	}
	if err := os.MkdirAll(filepath.Dir(settings.Dir), 0o700); err != nil {
		return "", fmt.Errorf("embedded: restore: %w", err)
	}
	lock, err := lockDir(settings.Dir)
	if err != nil {
		return "", fmt.Errorf("embedded: restore into %s: %w", config.Dir, err)
	}
	defer func() { _ = lock.Close() }()
	unfinished, discard, err := unfinishedDir(settings.Dir)
	if err != nil {
		return "", fmt.Errorf("embedded: restore into %s: %w", config.Dir, err)
	}
	defer discard()
	err = snapshot.NewV3(zapTo(config.Logger)).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: unfinished,
		Name: settings.Name, PeerURLs: []string{settings.AdvertisePeerUrls[0].String()},
		InitialCluster: settings.InitialCluster,
		// A token of its own keeps members of the time before out.
		InitialClusterToken: "restored-" + id,
		// Both or neither: etcd ignores one without the other.
		RevisionBump: RevisionBump, MarkCompacted: true,
	})
	if err == nil {
		err = finish(unfinished, settings.Dir, id)
	}
	if err != nil {
		return "", fmt.Errorf("embedded: restore %s: %w", file, err)
	}
	return id, nil
}

// memberDir is the one entry of a data directory of etcd.
const memberDir = "member"

// unfinishedDir makes a place within dir for data that is not whole. It is within and
// not beside, because dir may be a mount point. One that a killed restore has left
// there is replaced. discard removes it, and dir where it was made here and is empty.
func unfinishedDir(dir string) (path string, discard func(), err error) {
	const name = "restoring"
	entries, err := os.ReadDir(dir)
	made := errors.Is(err, fs.ErrNotExist)
	if err != nil && !made {
		return "", nil, err
	}
	if len(entries) > 1 || len(entries) == 1 && entries[0].Name() != name {
		return "", nil, errors.New("the directory must be empty or missing; move it away first")
	}
	path = filepath.Join(dir, name)
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o700)); err != nil {
		return "", nil, err
	}
	return path, func() {
		_ = os.RemoveAll(path)
		if made {
			_ = os.Remove(dir) // fails where the restore did not
		}
	}, nil
}

// finish gives restored data its place.
func finish(unfinished, dir, id string) error {
	// The id comes first: data of a snapshot without it would be served as it is.
	if err := writeID(restoredFile(dir), id); err != nil {
		return err
	}
	err := os.Rename(filepath.Join(unfinished, memberDir), filepath.Join(dir, memberDir))
	if err != nil {
		_ = os.Remove(restoredFile(dir))
		return err
	}
	if d, err := os.Open(dir); err == nil {
		_ = d.Sync() // not every system can
		_ = d.Close()
	}
	return nil
}

// writeID writes a file that a lost machine keeps.
func writeID(path, id string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteString(id + "\n")
	return errors.Join(err, f.Sync(), f.Close())
}

func restoredFile(dir string) string { return filepath.Clean(dir) + ".restored" }

// forgetRestore removes the id of data that is no more: what begins in its place, or
// joins a cluster there, was not restored, and its holds must not be ended.
func forgetRestore(dir string) error {
	_, err := os.Stat(filepath.Join(dir, memberDir))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(restoredFile(dir)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RestoreID returns the id that [Restore] left beside a data directory, "" where
// the directory was not restored. It is for a directory that [Start] was called on.
func RestoreID(dir string) (string, error) {
	text, err := os.ReadFile(restoredFile(dir))
	switch id := strings.TrimSpace(string(text)); {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("embedded: %w", err)
	case id == "":
		return "", fmt.Errorf("embedded: %s is empty; run the restore again", restoredFile(dir))
	default:
		return id, nil
	}
}
