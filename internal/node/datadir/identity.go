package datadir

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/archive"
	"github.com/pawlq/pawl/internal/ondisk"
)

// Identity says whose data directory it is, and what it holds. It has a file of its own; the owner is also recorded in every store.
type Identity struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // 32 hexadecimal digits; "" until it joins one
	Node    uint32 `json:"node"`    // its number
	Name    string `json:"name"`
	// Nonce identifies the directory, so that a join whose answer was lost can be retried.
	Nonce string `json:"nonce"`
	// Replicas are the replicas in this directory. A replica is recorded here before anything of it is created.
	Replicas map[uint32]Holding `json:"replicas"`
	// Recovering: Recover has begun, and must be repeated until it completes.
	Recovering bool `json:"recovering,omitempty"`
	// Others: the cluster has other nodes, according to the latest map. Only a node without others decides alone what is lost.
	Others bool `json:"others,omitempty"`
	// Replayed: Recover has put everything from the logs into the states, durably, and the logs may be incomplete or gone.
	Replayed bool `json:"replayed,omitempty"`
	// Aside is the directory that damaged data of the node's former number is being moved to; "": none.
	Aside string `json:"aside,omitempty"`
	// Shards is the number of data shards of a directory of format 1.
	Shards int `json:"shards,omitempty"`
}

// Holding is a replica in a data directory.
type Holding struct {
	Replica uint64 `json:"replica"`
	// Founder: it is the first replica of its shard.
	Founder bool `json:"founder,omitempty"`
	// Ran: its log and its state exist, and it may have promised something. It is recorded before the replica runs for the first time,
	// and from then on a missing log or state is damage.
	Ran bool `json:"ran,omitempty"`
	// Leaving: what remains of it is being deleted.
	Leaving bool `json:"leaving,omitempty"`
}

// The identity is stored twice: without it, nothing else in the directory can be used. The copy is written first, so that it is
// never older.
const (
	IdentityFile   = "node.json"
	IdentityCopy   = "node.json.copy"
	IdentityFormat = 2
	// NonceLen is the length of a cluster's or directory's id, in bytes.
	NonceLen = 16
)

func NewNonce() string {
	var b [NonceLen]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// DecodeID decodes what NewNonce made, already validated when it was read.
func DecodeID(s string) (id [NonceLen]byte) {
	_, _ = hex.Decode(id[:], []byte(s))
	return id
}

// Member reports whether the directory belongs to a cluster.
func (i Identity) Member() bool { return i.Cluster != "" }

// Ran reports whether any of its replicas has run.
func (i Identity) Ran() bool {
	for _, h := range i.Replicas {
		if h.Ran {
			return true
		}
	}
	return false
}

// NotRun returns the replicas as if none had run, since their logs start over.
func (i Identity) NotRun() map[uint32]Holding {
	replicas := maps.Clone(i.Replicas)
	for id, h := range replicas {
		h.Ran = false
		replicas[id] = h
	}
	return replicas
}

// IdentityStore is the identity of a directory, and its file. It may be used from any goroutine.
type IdentityStore struct {
	fs  vfs.FS
	dir string // "": in memory

	mu      sync.Mutex
	id      Identity
	unsaved bool // it is not in both files as it is
}

// OpenIdentity reads the identity of a data directory, or makes one for an empty directory. It changes nothing on disk: see Keep.
func OpenIdentity(fs vfs.FS, dir, name string, log *slog.Logger) (*IdentityStore, error) {
	b := &IdentityStore{fs: fs, dir: dir, id: NewIdentity(name)}
	if dir == "" {
		return b, nil
	}
	id, mend, err := findIdentity(fs, dir, log)
	if errors.Is(err, os.ErrNotExist) {
		b.unsaved = true
		return b, mustBeNew(fs, dir)
	}
	if err != nil {
		return nil, err
	}
	b.unsaved = mend != nil
	if id.Format == 1 {
		id = id.Upgraded(name)
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

// NewIdentityStore returns the store of an identity that is not saved yet; dir is "" in memory.
func NewIdentityStore(fs vfs.FS, dir string, id Identity) *IdentityStore {
	return &IdentityStore{fs: fs, dir: dir, id: id}
}

// NewIdentity returns the identity of a node that belongs to no cluster yet.
func NewIdentity(name string) Identity {
	return Identity{Format: IdentityFormat, Name: name, Nonce: NewNonce(), Replicas: map[uint32]Holding{}}
}

// LoadIdentity reads the identity of a directory, or its copy if it is lost or damaged, and makes both the same.
func LoadIdentity(fs vfs.FS, dir string, log *slog.Logger) (Identity, error) {
	id, mend, err := findIdentity(fs, dir, log)
	if err != nil || mend == nil {
		return id, err
	}
	return id, mend()
}

// findIdentity reads the identity of a directory, or its copy if it is lost or damaged. mend makes the other file the same; nil: it is.
func findIdentity(fs vfs.FS, dir string, log *slog.Logger) (id Identity, mend func() error, err error) {
	if err := MustNotBeRestoring(fs, dir); err != nil {
		return id, nil, err
	}
	path, copyPath := fs.PathJoin(dir, IdentityFile), fs.PathJoin(dir, IdentityCopy)
	id, text, err := readIdentity(fs, path)
	lost := errors.Is(err, os.ErrNotExist)
	if err != nil && !lost && !errors.Is(err, ondisk.ErrDamaged) {
		return id, nil, err
	}
	fromCopy, copied, copyErr := readIdentity(fs, copyPath)
	switch {
	case err == nil && bytes.Equal(text, copied):
		return id, nil, nil
	case err == nil: // written by an older release, which keeps no copy
		return id, func() error { return ReplaceFile(fs, copyPath, text) }, nil
	case copyErr == nil:
		log.Warn("the identity of the data directory was lost or damaged, its copy is used", "error", err)
		return fromCopy, func() error { return ReplaceFile(fs, path, copied) }, nil
	case lost && errors.Is(copyErr, ondisk.ErrDamaged):
		return id, nil, copyErr
	}
	return id, nil, err
}

func readIdentity(fs vfs.FS, path string) (id Identity, text []byte, err error) {
	if text, err = ReadFile(fs, path); err != nil {
		return id, nil, err
	}
	if id, err = parseIdentity(text); err != nil {
		var damage *ondisk.DamageError
		if errors.As(err, &damage) {
			damage.File = path
			return id, text, damage
		}
		return id, text, fmt.Errorf("%s %w", path, err)
	}
	return id, text, nil
}

// Upgraded returns an identity of format 1, of a node from before there were clusters, in the current format. Its file stays as it is
// until something changes.
func (i Identity) Upgraded(name string) Identity {
	out := Identity{Format: IdentityFormat, Cluster: i.Cluster, Node: i.Node, Name: name, Nonce: NewNonce(), Replicas: map[uint32]Holding{}}
	for shard := range uint32(i.Shards + 1) {
		out.Replicas[shard] = Holding{Replica: uint64(i.Node), Founder: true}
	}
	return out
}

// An identity begins with a checksum over all of it, with the checksum's own digits as zeros. Releases from before the checksum
// ignore it, and write none.
const (
	sumField  = `{"sum":"`
	sumDigits = 8
)

func formatIdentity(id Identity) ([]byte, error) {
	text, err := json.Marshal(struct {
		Sum string `json:"sum"`
		Identity
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

// parseIdentity is the inverse of formatIdentity. Damage is a *ondisk.DamageError without a file.
func parseIdentity(b []byte) (id Identity, err error) {
	damaged := func(format string, args ...any) error {
		return &ondisk.DamageError{What: "identity", Reason: fmt.Sprintf(format, args...)}
	}
	if !checkSum(b) {
		return id, damaged("its checksum does not match")
	}
	if err := json.Unmarshal(b, &id); err != nil {
		return id, damaged("%v", err)
	}
	if id.Format != 1 && id.Format != IdentityFormat {
		return id, fmt.Errorf("has format %d, this version knows %d", id.Format, IdentityFormat)
	}
	cluster, err := hex.DecodeString(id.Cluster)
	nonce, err2 := hex.DecodeString(id.Nonce)
	switch {
	case err != nil || len(cluster) != NonceLen && (id.Format == 1 || id.Member() || id.Node != 0 || len(id.Replicas) > 0):
		return id, damaged("cluster is %q", id.Cluster)
	case id.Node == 0 && id.Member():
		return id, damaged("node is 0")
	case id.Format == 1 && (id.Shards < 1 || id.Shards > MaxShards):
		return id, damaged("it has %d shards", id.Shards)
	case id.Format == IdentityFormat && (err2 != nil || len(nonce) != NonceLen):
		return id, damaged("nonce is %q", id.Nonce)
	}
	if id.Replicas == nil {
		id.Replicas = map[uint32]Holding{}
	}
	return id, nil
}

// MustBeEmpty keeps a node out of a directory that is not its own.
func MustBeEmpty(fs vfs.FS, dir string) error {
	others, err := foreign(fs, dir)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("%s has no %s but is not empty (%q): it is not a data directory", dir, IdentityFile, others[0])
}

// ownFiles are what a new node may find in its directory: left by a start that failed, or kept when damaged data was set aside.
var ownFiles = []string{LockFile, IdentityFile + ".new", IdentityCopy + ".new", archive.DirName, StatsFile, StatsFile + ".new",
	WitnessFile, WitnessFile + ".new"}

// foreign returns the names in a directory that keep a new node from using it.
func foreign(fs vfs.FS, dir string) (names []string, err error) {
	all, err := fs.List(dir)
	slices.Sort(all)
	for _, name := range all {
		if !slices.Contains(ownFiles, name) && !strings.HasPrefix(name, damagedPrefix) {
			names = append(names, name)
		}
	}
	return names, err
}

// mustBeNew refuses a directory that a new node can't use: it is another node's, or has lost its identity.
func mustBeNew(fs vfs.FS, dir string) error {
	others, err := foreign(fs, dir)
	if err != nil {
		return err
	}
	for _, name := range others {
		if name == MapFile || name == LogDir || strings.HasPrefix(name, "shard-") {
			return &ondisk.DamageError{What: "identity", File: fs.PathJoin(dir, IdentityFile),
				Reason: fmt.Sprintf("it is missing, and %q is there",
					name)}
		}
	}
	return MustBeEmpty(fs, dir)
}

// Read returns a copy of the identity. Its map must not be modified.
func (b *IdentityStore) Read() Identity {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.id
}

// Found makes the directory that of the first node of a cluster, with the first replicas of all its shards: in one step, or a crash
// could leave only some of them.
func (b *IdentityStore) Found(dataShards int) error {
	replicas := make(map[uint32]Holding, dataShards+1)
	for id := range uint32(dataShards + 1) {
		replicas[id] = Holding{Replica: 1, Founder: true}
	}
	return b.Update(func(i *Identity) { i.Cluster, i.Node, i.Replicas = NewNonce(), 1, replicas })
}

// Join records which cluster the directory belongs to, and where its previous contents are being moved, if they are damaged.
func (b *IdentityStore) Join(cluster string, number uint32, aside string) error {
	return b.Update(func(i *Identity) { i.Cluster, i.Node, i.Others, i.Aside = cluster, number, true, aside })
}

// Update saves a changed identity. If that fails the identity stays as it was. Change must not modify the map, but may replace it.
func (b *IdentityStore) Update(change func(*Identity)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.id
	change(&next)
	if err := save(b.fs, b.dir, next); err != nil {
		return err
	}
	b.id, b.unsaved = next, false
	return nil
}

// Reset makes the node one without a cluster, until it has joined: the file stays as it is.
func (b *IdentityStore) Reset(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.id = NewIdentity(name)
}

// asideCleared records that all of the previous contents have been moved.
func (b *IdentityStore) asideCleared() error {
	return b.Update(func(i *Identity) { i.Aside = "" })
}

// Hold records a replica, or its removal if h is nil.
func (b *IdentityStore) Hold(shard uint32, h *Holding) error {
	return b.Update(func(i *Identity) {
		i.Replicas = maps.Clone(i.Replicas)
		delete(i.Replicas, shard)
		if h != nil {
			i.Replicas[shard] = *h
		}
	})
}

// Save saves the identity as it is.
func (b *IdentityStore) Save() error { return b.Update(func(*Identity) {}) }

// Keep saves the identity unless both files have it already.
func (b *IdentityStore) Keep() error {
	b.mu.Lock()
	unsaved := b.unsaved
	b.mu.Unlock()
	if !unsaved {
		return nil
	}
	return b.Save()
}

// NoteRun records that a replica is about to run for the first time.
func (b *IdentityStore) NoteRun(shard uint32) error {
	h := b.Read().Replicas[shard]
	h.Ran = true
	return b.Hold(shard, &h)
}

// NoteOthers records whether the cluster has other nodes, unless it is recorded already.
func (b *IdentityStore) NoteOthers(others bool) error {
	if b.Read().Others == others {
		return nil
	}
	return b.Update(func(i *Identity) { i.Others = others })
}

// save replaces the file and its copy, each in one step that survives a power loss.
func save(fs vfs.FS, dir string, id Identity) error {
	if dir == "" {
		return nil
	}
	text, err := formatIdentity(id)
	if err != nil {
		return err
	}
	if err := ReplaceFile(fs, fs.PathJoin(dir, IdentityCopy), text); err != nil {
		return err
	}
	return ReplaceFile(fs, fs.PathJoin(dir, IdentityFile), text)
}
