package embedded

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/pkg/v3/pbutil"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
)

// checkName refuses a data directory whose member has another name. etcd would start
// it, and rename the member: two directories that were mistaken for each other would
// swap the names that people go by. A directory that does not tell is left to etcd.
func checkName(dir, name string) error {
	id, err := memberID(filepath.Join(dir, memberDir, "wal"))
	if err != nil {
		return nil
	}
	has, err := memberName(filepath.Join(dir, memberDir, "snap", "db"), id)
	if err != nil || has == "" || has == name {
		return nil
	}
	return fmt.Errorf("%s has the data of member %q, and is started as %q: start each member on the directory that it has made%s",
		dir, has, name, aboutAlone(has, name))
}

// aboutAlone explains a name that nobody has given.
func aboutAlone(names ...string) string {
	for _, n := range names {
		if n == singleName {
			return fmt.Sprintf(" (%q is also the name of a node that is alone)", n)
		}
	}
	return ""
}

// memberID returns whose log lies in a directory. Each file of a log begins with it.
func memberID(dir string) (types.ID, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.wal"))
	if err != nil || len(files) == 0 {
		return 0, errors.Join(err, os.ErrNotExist)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	log := wal.NewDecoder(fileutil.NewFileReader(f))
	var record walpb.Record
	for record.GetType() != wal.MetadataType {
		if err := log.Decode(&record); err != nil {
			return 0, err
		}
		if record.GetType() == wal.CrcType {
			log.UpdateCRC(record.GetCrc())
		}
	}
	var metadata etcdserverpb.Metadata
	pbutil.MustUnmarshalMessage(&metadata, record.Data) // its checksum was right
	return types.ID(metadata.GetNodeID()), nil
}

// memberName returns the name of a member in a store's file that nobody else has open,
// "" where it has none yet.
func memberName(file string, id types.ID) (name string, err error) {
	db, err := bolt.Open(file, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return "", err
	}
	defer func() { _ = db.Close() }()
	err = db.View(func(tx *bolt.Tx) error {
		members := tx.Bucket(schema.Members.Name())
		if members == nil {
			return nil
		}
		value := members.Get(schema.BackendMemberKey(id))
		if value == nil {
			return nil
		}
		var m membership.Member
		if err := json.Unmarshal(value, &m); err != nil {
			return err
		}
		name = m.Name
		return nil
	})
	return name, err
}
