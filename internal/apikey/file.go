package apikey

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// file is what stands in the file.
type file struct {
	Keys []Key `json:"keys"`
}

// maxFile bounds what is read: some 10,000 keys.
const maxFile = 4 << 20

// Load returns the keys of the file at path by their ids.
func Load(path string) (Set, error) {
	all, err := List(path)
	if err != nil {
		return nil, err
	}
	known := make(Set, len(all))
	for i := range all {
		known[all[i].ID] = &all[i]
	}
	return known, nil
}

// parse returns the keys of a file, each valid and each id once.
func parse(body []byte) ([]Key, error) {
	var content file
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&content); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("text behind the JSON value")
	}
	ids := make(map[string]bool, len(content.Keys))
	for i := range content.Keys {
		k := &content.Keys[i]
		if err := k.validate(); err != nil {
			return nil, err
		}
		if ids[k.ID] {
			return nil, fmt.Errorf("key %s: two keys have this id", k.ID)
		}
		ids[k.ID] = true
	}
	return content.Keys, nil
}

// List returns the keys of the file at path, in its order.
func List(path string) ([]Key, error) {
	body, err := read(path)
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	all, err := parse(body)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return all, nil
}

// read reads a file that nobody else may write.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("%s: mode %v lets others write it", path, info.Mode().Perm())
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s: %d bytes, limit is %d", path, info.Size(), maxFile)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// Add puts k into the file at path, which is made with mode 0600 if there is none.
func Add(path string, k Key) error {
	if err := replaceable(path); err != nil {
		return err
	}
	all, err := List(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return write(path, append(all, k))
}

// Remove takes the key of that id out of the file at path.
func Remove(path, id string) error {
	if err := replaceable(path); err != nil {
		return err
	}
	all, err := List(path)
	if err != nil {
		return err
	}
	for i, k := range all {
		if k.ID == id {
			return write(path, append(all[:i], all[i+1:]...))
		}
	}
	return fmt.Errorf("key file %s: no key %s", path, id)
}

// replaceable refuses what a rename must not take the place of: a device, or a link to
// the file that the server reads.
func replaceable(path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("key file %s: it is there and is not a regular file (%s): name the file itself", path, info.Mode().Type())
	}
	return nil // what else is wrong with it shows when it is read
}

// write replaces the file in one step.
func write(path string, all []Key) (err error) {
	body, err := json.MarshalIndent(file{all}, "", "  ")
	if err != nil {
		return err
	}
	if _, err := parse(body); err != nil {
		return fmt.Errorf("key file %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if info, statErr := os.Stat(path); statErr == nil {
		err = f.Chmod(info.Mode().Perm()) // the server may read it as a member of a group
	}
	_, writeErr := f.Write(append(body, '\n'))
	if err = errors.Join(err, writeErr, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("key file: %w", err)
	}
	return nil
}
