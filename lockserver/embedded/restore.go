package embedded

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
)

// RevisionBump is what a restore adds to the revision of a snapshot: more than any
// store writes between a snapshot and its loss, and small enough for thousands of
// restores below tokens.Max.
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
func Restore(file string, config Config) (id string, err error) {
	settings, err := config.settings()
	if err != nil {
		return "", err
	}
	if id, err = restoreID(file); err != nil {
		return "", fmt.Errorf("embedded: restore: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(settings.Dir), 0o700); err != nil {
		return "", fmt.Errorf("embedded: restore: %w", err)
	}
	lock, err := lockDir(settings.Dir)
	if err != nil {
		return "", fmt.Errorf("embedded: restore into %s: %w", config.Dir, err)
	}
	defer func() { _ = lock.Close() }()
	if entries, err := os.ReadDir(settings.Dir); len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("embedded: restore into %s: the directory must be empty or missing; move it away first", config.Dir)
	}
	// The id comes first: data of a snapshot without it would be served as it is.
	if err := writeID(restoredFile(settings.Dir), id); err != nil {
		return "", fmt.Errorf("embedded: restore: %w", err)
	}
	err = snapshot.NewV3(zapTo(config.Logger)).Restore(snapshot.RestoreConfig{
		SnapshotPath: file, OutputDataDir: settings.Dir,
		Name: settings.Name, PeerURLs: []string{settings.AdvertisePeerUrls[0].String()},
		InitialCluster: settings.InitialCluster,
		// A token of its own keeps members of the time before out.
		InitialClusterToken: "restored-" + id,
		// Both or neither: etcd ignores one without the other.
		RevisionBump: RevisionBump, MarkCompacted: true,
	})
	if err != nil {
		return "", fmt.Errorf("embedded: restore %s: %w", file, err)
	}
	return id, nil
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

// restoreID derives the id from the snapshot's bytes: members that restore the
// same file agree on it, and no snapshot can hold its own.
func restoreID(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(hash.Sum(nil)[:15])), nil
}

func restoredFile(dir string) string { return filepath.Clean(dir) + ".restored" }

// RestoreID returns the id that [Restore] left beside a data directory, "" where
// the directory was not restored.
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
