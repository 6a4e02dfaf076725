package node

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/pawlq/pawl/internal/transport"
)

// identity says whose data directory it is, and what it holds. It has a file of its own; the owner is also recorded in every store.
type identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // 32 hexadecimal digits; "" until it joins one
	Node    uint32 `json:"node"`    // its number
	Name    string `json:"name"`
	// Nonce identifies the directory, so that a join whose answer was lost can be retried.
	Nonce string `json:"nonce"`
	// Replicas are the replicas in this directory. A replica is recorded here before anything of it is created.
	Replicas map[uint32]holding `json:"replicas"`
	// Recovering: Recover has begun, and must be repeated until it completes.
	Recovering bool `json:"recovering,omitempty"`
	// Aside is the directory that damaged data of the node's former number is being moved to; "": none.
	Aside string `json:"aside,omitempty"`
	// Shards is the number of data shards of a directory of format 1.
	Shards int `json:"shards,omitempty"`
}

// holding is a replica in a data directory.
type holding struct {
	Replica uint64 `json:"replica"`
	// Founder: it is the first replica of its shard.
	Founder bool `json:"founder,omitempty"`
	// Leaving: what remains of it is being deleted.
	Leaving bool `json:"leaving,omitempty"`
}

// The identity is stored twice: without it, nothing else in the directory can be used. The copy is written first, so that it is
// never older.
const (
	identityFile   = "node.json"
	identityCopy   = "node.json.copy"
	identityFormat = 2
	// nonceLen is the length of a cluster's or directory's id, in bytes.
	nonceLen = 16
)

func newNonce() string {
	var b [nonceLen]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// decodeID decodes what newNonce made, already validated when it was read.
func decodeID(s string) (id [nonceLen]byte) {
	_, _ = hex.Decode(id[:], []byte(s))
	return id
}

// member reports whether the directory belongs to a cluster.
func (i identity) member() bool { return i.Cluster != "" }

// identityStore is the identity of a directory, and its file. It may be used from any goroutine.
type identityStore struct {
	dir string // "": in memory

	mu sync.Mutex
	id identity
}

// openIdentity reads the identity of a data directory, or creates one for an empty directory.
func openIdentity(dir, name string, log *slog.Logger) (*identityStore, error) {
	b := &identityStore{dir: dir, id: newIdentity(name)}
	if dir == "" {
		return b, nil
	}
	id, err := loadIdentity(dir, log)
	if errors.Is(err, os.ErrNotExist) {
		if err := mustBeNew(dir); err != nil {
			return nil, err
		}
		return b, b.save()
	}
	if err != nil {
		return nil, err
	}
	if id.Format == 1 {
		id = id.fromFormat1(name)
	}
	if id.Recovering {
		return nil, fmt.Errorf("the recovery of %s did not finish: repeat `pawl recover`", dir)
	}
	if id.Name != name {
		return nil, fmt.Errorf("--node (Name) is %q, but %s is of node %q: a directory stays with its node", name, dir, id.Name)
	}
	b.id = id
	return b, nil
}

// newIdentity returns the identity of a node that belongs to no cluster yet.
func newIdentity(name string) identity {
	return identity{Format: identityFormat, Name: name, Nonce: newNonce(), Replicas: map[uint32]holding{}}
}

// loadIdentity reads the identity of a directory, or its copy if it is lost or damaged, and makes both the same.
func loadIdentity(dir string, log *slog.Logger) (identity, error) {
	if err := mustNotBeRestoring(dir); err != nil {
		return identity{}, err
	}
	id, text, err := readIdentity(filepath.Join(dir, identityFile))
	lost := errors.Is(err, os.ErrNotExist)
	if err != nil && !lost && !errors.Is(err, ErrDamaged) {
		return id, err
	}
	fromCopy, copied, copyErr := readIdentity(filepath.Join(dir, identityCopy))
	switch {
	case err == nil && bytes.Equal(text, copied):
		return id, nil
	case err == nil: // written by an older release, which keeps no copy
		return id, replaceFile(filepath.Join(dir, identityCopy), text)
	case copyErr == nil:
		log.Warn("the identity of the data directory was lost or damaged, its copy is used", "error", err)
		return fromCopy, replaceFile(filepath.Join(dir, identityFile), copied)
	case lost && errors.Is(copyErr, ErrDamaged):
		return id, copyErr
	}
	return id, err
}

func readIdentity(path string) (id identity, text []byte, err error) {
	if text, err = os.ReadFile(path); err != nil {
		return id, nil, err
	}
	if id, err = parseIdentity(text); err != nil {
		var damage *DamageError
		if errors.As(err, &damage) {
			damage.File = path
			return id, text, damage
		}
		return id, text, fmt.Errorf("%s %w", path, err)
	}
	return id, text, nil
}

// fromFormat1 returns the identity of a node from before there were clusters. Its file stays as it is until something changes.
func (i identity) fromFormat1(name string) identity {
	out := identity{Format: identityFormat, Cluster: i.Cluster, Node: i.Node, Name: name, Nonce: newNonce(), Replicas: map[uint32]holding{}}
	for shard := range uint32(i.Shards + 1) {
		out.Replicas[shard] = holding{Replica: uint64(i.Node), Founder: true}
	}
	return out
}

// An identity begins with a checksum over all of it, with the checksum's own digits as zeros. Releases from before the checksum
// ignore it, and write none.
const (
	sumField  = `{"sum":"`
	sumDigits = 8
)

func formatIdentity(id identity) ([]byte, error) {
	text, err := json.Marshal(struct {
		Sum string `json:"sum"`
		identity
	}{strings.Repeat("0", sumDigits), id})
	if err != nil {
		return nil, err
	}
	text = append(text, '\n')
	copy(text[len(sumField):], fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)))
	return text, nil
}

// checkSum reports whether the text's checksum, if it has one, is right.
func checkSum(text []byte) bool {
	if !bytes.HasPrefix(text, []byte(sumField)) || len(text) < len(sumField)+sumDigits {
		return true
	}
	blank := bytes.Clone(text)
	digits := blank[len(sumField):][:sumDigits]
	want := string(digits)
	copy(digits, strings.Repeat("0", sumDigits))
	return want == fmt.Sprintf("%08x", crc32.ChecksumIEEE(blank))
}

// parseIdentity is the inverse of formatIdentity. Damage is a *DamageError without a file.
func parseIdentity(b []byte) (id identity, err error) {
	damaged := func(format string, args ...any) error {
		return &DamageError{What: "identity", Reason: fmt.Sprintf(format, args...)}
	}
	if !checkSum(b) {
		return id, damaged("its checksum does not match")
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return id, damaged("%v", err)
	}
	if id.Format != 1 && id.Format != identityFormat {
		return id, fmt.Errorf("has format %d, this version knows %d", id.Format, identityFormat)
	}
	cluster, err := hex.DecodeString(id.Cluster)
	nonce, err2 := hex.DecodeString(id.Nonce)
	switch {
	case err != nil || len(cluster) != nonceLen && (id.Format == 1 || id.member() || id.Node != 0 || len(id.Replicas) > 0):
		return id, damaged("cluster is %q", id.Cluster)
	case id.Node == 0 && id.member():
		return id, damaged("node is 0")
	case id.Format == 1 && (id.Shards < 1 || id.Shards > maxDataShards):
		return id, damaged("it has %d shards", id.Shards)
	case id.Format == identityFormat && (err2 != nil || len(nonce) != nonceLen):
		return id, damaged("nonce is %q", id.Nonce)
	}
	if id.Replicas == nil {
		id.Replicas = map[uint32]holding{}
	}
	return id, nil
}

// mustBeEmpty keeps a node out of a directory that is not its own.
func mustBeEmpty(dir string) error {
	others, err := foreign(dir)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("%s has no %s but is not empty (%q): it is not a data directory", dir, identityFile, others[0])
}

// foreign returns the names in a directory that keep a new node from using it.
func foreign(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		name := e.Name()
		ours := name == lockFile || name == identityFile+".new" || name == identityCopy+".new" || name == archiveDir || name == statsFile || name == statsFile+".new"
		if !ours && !strings.HasPrefix(name, damagedPrefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// mustBeNew refuses a directory that a new node can't use: it is another node's, or has lost its identity.
func mustBeNew(dir string) error {
	others, err := foreign(dir)
	if err != nil {
		return err
	}
	for _, name := range others {
		if name == mapFile || name == logDir || strings.HasPrefix(name, "shard-") {
			return &DamageError{What: "identity", File: filepath.Join(dir, identityFile), Reason: fmt.Sprintf("it is missing, and %q is there", name)}
		}
	}
	return mustBeEmpty(dir)
}

// read returns a copy of the identity. Its map must not be modified.
func (b *identityStore) read() identity {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

// peer returns how this node identifies itself to other nodes.
func (b *identityStore) peer() transport.Peer {
	me := b.read()
	return transport.Peer{Cluster: decodeID(me.Cluster), Number: me.Node, Name: me.Name}
}

// found makes the directory that of the first node of a cluster, with the first replicas of all its shards: in one step, or a crash
// could leave only some of them.
func (b *identityStore) found(dataShards int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id.Cluster, b.id.Node = newNonce(), 1
	b.id.Replicas = make(map[uint32]holding, dataShards+1)
	for id := range uint32(dataShards + 1) {
		b.id.Replicas[id] = holding{Replica: 1, Founder: true}
	}
	return b.save()
}

// join records which cluster the directory belongs to, and where its previous contents are being moved, if they are damaged.
func (b *identityStore) join(cluster string, number uint32, aside string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id.Cluster, b.id.Node, b.id.Aside = cluster, number, aside
	return b.save()
}

// reset makes the node one without a cluster, until it has joined: the file stays as it is.
func (b *identityStore) reset(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id = newIdentity(name)
}

// asideCleared records that all of the previous contents have been moved.
func (b *identityStore) asideCleared() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id.Aside = ""
	return b.save()
}

// hold records a replica, or its removal if h is nil.
func (b *identityStore) hold(shard uint32, h *holding) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := make(map[uint32]holding, len(b.id.Replicas)+1)
	for s, have := range b.id.Replicas {
		next[s] = have
	}
	delete(next, shard)
	if h != nil {
		next[shard] = *h
	}
	b.id.Replicas = next
	return b.save()
}

// save replaces the file and its copy, each in one step that survives a power loss.
func (b *identityStore) save() error {
	if b.dir == "" {
		return nil
	}
	text, err := formatIdentity(b.id)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(b.dir, identityCopy), text); err != nil {
		return err
	}
	return replaceFile(filepath.Join(b.dir, identityFile), text)
}

// replaceFile writes a file atomically and durably.
func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
