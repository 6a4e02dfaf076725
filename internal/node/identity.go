package node

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// identity says whose data directory it is. It is in a file of its own, and in every store.
type identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // 32 hexadecimal digits
	Node    uint64 `json:"node"`
	Shards  int    `json:"shards"` // data shards
}

const (
	identityFile   = "node.json"
	identityFormat = 1
)

// newIdentity is that of a new node, with a data shard at least.
func newIdentity(shards int) identity {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return identity{Format: identityFormat, Cluster: hex.EncodeToString(id[:]), Node: 1, Shards: max(shards, 1)}
}

func (i identity) cluster() (id [16]byte) {
	_, _ = hex.Decode(id[:], []byte(i.Cluster)) // checked when it was read
	return id
}

// readIdentity reads the identity of a data directory, or makes one for an empty directory. Shards is how many data
// shards are asked for; 0: those that are there. More than those are added.
func readIdentity(dir string, shards int) (identity, error) {
	path := filepath.Join(dir, identityFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := mustBeEmpty(dir); err != nil {
			return identity{}, err
		}
		id := newIdentity(shards)
		return id, writeIdentity(dir, id)
	}
	if err != nil {
		return identity{}, err
	}
	id, err := parseIdentity(b)
	if err != nil {
		return identity{}, fmt.Errorf("%s %w", path, err)
	}
	switch {
	case shards == 0 || shards == id.Shards:
		return id, nil
	case shards < id.Shards: // tasks would be out of reach
		return identity{}, fmt.Errorf("--shards (DataShards) is %d, but %s has %d data shards, and their number only grows: give %d or more, or leave it out",
			shards, dir, id.Shards, id.Shards)
	}
	id.Shards = shards // the new ones are made as in a new directory
	return id, writeIdentity(dir, id)
}

func parseIdentity(b []byte) (id identity, err error) {
	if err := json.Unmarshal(b, &id); err != nil {
		return id, fmt.Errorf("is damaged (%w): put a copy of it back", err)
	}
	if id.Format != identityFormat {
		return id, fmt.Errorf("has format %d, this version knows %d", id.Format, identityFormat)
	}
	cluster, err := hex.DecodeString(id.Cluster)
	switch {
	case err != nil || len(cluster) != 16:
		return id, fmt.Errorf("is damaged (cluster %q): put a copy of it back", id.Cluster)
	case id.Node == 0:
		return id, errors.New("is damaged (node 0): put a copy of it back")
	case id.Shards < 1 || id.Shards > maxDataShards:
		return id, fmt.Errorf("is damaged (%d shards): put a copy of it back", id.Shards)
	}
	return id, nil
}

// mustBeEmpty keeps a node from settling in a directory that is not its own, or whose identity was lost.
func mustBeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if name := e.Name(); name != lockFile && name != identityFile+".new" {
			return fmt.Errorf("%s has no %s but is not empty (%q): it is not a data directory, or its identity was lost", dir, identityFile, name)
		}
	}
	return nil
}

// writeIdentity replaces the file in one step that survives a power loss.
func writeIdentity(dir string, id identity) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, identityFile)
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
