package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/pawlq/pawl/internal/ondisk"
)

// The marks file is two slots, written in turn, so that a torn write leaves the other. A slot is
//
//	"pawlmark" | identity 25 | sequence 8 | count 4 | count × (shard 4, epoch 8, term 8, index 8, vote 8) | CRC-32C 4
const (
	slotMagic  = "pawlmark"
	slotHead   = len(slotMagic) + identityLen + 8 + 4
	markLen    = 4 + 8 + 8 + 8 + 8
	slotLen    = 40 << 10
	maxShards  = (slotLen - slotHead - 4) / markLen // 1,136
	markPeriod = 100 * time.Millisecond
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// mark records how far a shard's log had reached: the term and the vote of its hard state, and its last index.
type mark struct {
	shard uint32
	epoch uint64
	position
	vote uint64
}

// marks is the marks file of a node. It is safe for concurrent use.
type marks struct {
	path string
	id   Identity
	file vfs.File
	fail func(error)

	kick chan struct{} // holds a token when there is something to write
	quit chan struct{}
	idle chan struct{} // closed when the writer goroutine has ended

	writes *writeTracker

	// io holds a token while nobody writes, and is taken before mu. It is not a mutex, because it may be held for as long as
	// the disk hangs, and in tests fake time must advance while others wait for it.
	io chan struct{}

	mu      sync.Mutex // never held over I/O: the write path takes it
	byShard map[uint32]mark
	seq     uint64
	dirty   bool
	err     error // of the first failed write; there is no second
}

// openMarks reads the marks. If of is nil there is no file; if there is an error, both slots are damaged.
func openMarks(fs vfs.FS, path string, id Identity, writes *writeTracker) (m *marks, err error) {
	m = &marks{path: path, id: id, writes: writes, kick: make(chan struct{}, 1), quit: make(chan struct{}), idle: make(chan struct{}),
		io: make(chan struct{}, 1)}
	m.io <- struct{}{}
	b, err := readFile(fs, path)
	if errors.Is(err, os.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return nil, err
	}
	var first error
	for slot := range 2 {
		lo := min(slot*slotLen, len(b))
		owner, seq, of, err := decodeSlot(b[lo:min(lo+slotLen, len(b))])
		if err == nil {
			err = id.check(owner)
		}
		if errors.Is(err, ErrIdentity) {
			return m, err
		}
		if err != nil {
			first = errors.Join(first, fmt.Errorf("slot %d: %w", slot, err))
		} else if seq > m.seq { // the first is 1
			m.seq, m.byShard = seq, of
		}
	}
	if m.byShard == nil {
		return m, &ondisk.DamageError{What: "log", File: path, To: int64(len(b)), Reason: first.Error()}
	}
	return m, nil
}

// Owner reads whose logs are in a directory, if their marks are readable.
func Owner(fs vfs.FS, dir string) (id Identity, ok bool) {
	b, err := readFile(fs, fs.PathJoin(dir, "marks"))
	if err != nil {
		return id, false
	}
	for slot := range 2 {
		lo := min(slot*slotLen, len(b))
		if owner, _, _, err := decodeSlot(b[lo:min(lo+slotLen, len(b))]); err == nil && owner[0] == recordVersion {
			copy(id.Cluster[:], owner[1:])
			id.Node = binary.BigEndian.Uint64(owner[17:])
			return id, true
		}
	}
	return id, false
}

// create writes a new file, without marks. It replaces an old file atomically.
func (m *marks) create(fs vfs.FS) error {
	m.byShard = make(map[uint32]mark)
	tmp := m.path + ".new"
	f, err := fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	m.seq++
	b := make([]byte, 2*slotLen) // both slots, so that later writes don't change the file's size
	copy(b[m.slot():], m.encodeSlot())
	_, err = f.Write(b)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := fs.Rename(tmp, m.path); err != nil {
		return err
	}
	return ondisk.SyncDir(fs, fs.PathDir(m.path))
}

// start opens the file for writing and starts the writer goroutine, which ends in close. It first writes what was read once more: after
// a failed sync of an earlier process that may only have been in memory. The bytes are the same as on disk, so a torn write does no harm.
func (m *marks) start(fs vfs.FS, fail func(error)) (err error) {
	m.fail = fail
	if m.file, err = fs.OpenReadWrite(m.path, vfs.WriteCategoryUnspecified); err != nil {
		return err
	}
	if err := m.writeSlot(m.encodeSlot(), m.slot()); err != nil {
		return errors.Join(err, m.file.Close())
	}
	go m.write()
	return nil
}

// write syncs the marks that advance has changed, at most once every markPeriod.
func (m *marks) write() {
	defer close(m.idle)
	pause := time.NewTimer(markPeriod)
	defer pause.Stop()
	for {
		select {
		case <-m.quit:
			return
		case <-m.kick:
		}
		if err := m.sync(); err != nil {
			return
		}
		pause.Reset(markPeriod)
		select {
		case <-m.quit:
			return
		case <-pause.C:
		}
	}
}

// get returns the mark of a shard.
func (m *marks) get(shard uint32) (mark, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.byShard[shard]
	return k, ok
}

// advance records what a log has reached. It is synced soon.
func (m *marks) advance(k mark) {
	m.mu.Lock()
	m.byShard[k.shard], m.dirty = k, true
	m.mu.Unlock()
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// set sets a mark and syncs it before it returns.
func (m *marks) set(k mark) error {
	m.mu.Lock()
	_, known := m.byShard[k.shard]
	full := !known && len(m.byShard) == maxShards
	if !full {
		m.byShard[k.shard], m.dirty = k, true
	}
	m.mu.Unlock()
	if full {
		return fmt.Errorf("marks %q: a node has at most %d shards", m.path, maxShards)
	}
	return m.sync()
}

// remove removes a mark, and syncs the removal before it returns.
func (m *marks) remove(shard uint32) error {
	m.mu.Lock()
	_, known := m.byShard[shard]
	delete(m.byShard, shard)
	m.dirty = m.dirty || known
	m.mu.Unlock()
	return m.sync()
}

// sync writes the current marks, unless another call has already done so: once it has io, no other write is in
// progress.
func (m *marks) sync() error {
	<-m.io
	defer func() { m.io <- struct{}{} }()
	m.mu.Lock()
	if m.err != nil || !m.dirty {
		defer m.mu.Unlock()
		return m.err
	}
	m.seq++
	b, at := m.encodeSlot(), m.slot()
	m.dirty = false
	m.mu.Unlock()

	err := m.writeSlot(b, at)
	if err == nil {
		return nil
	}
	m.mu.Lock()
	m.err = err
	m.mu.Unlock()
	m.fail(err)
	return err
}

// writeSlot writes and syncs the marks in b.
func (m *marks) writeSlot(b []byte, at int64) error {
	m.writes.begin()
	defer m.writes.end()
	_, err := m.file.WriteAt(b, at)
	if err == nil {
		err = m.file.SyncData()
	}
	if err != nil {
		return fmt.Errorf("marks %q: %w", m.path, err)
	}
	return nil
}

// slot returns where in the file the marks numbered seq go: never over the marks before them.
func (m *marks) slot() int64 { return int64(m.seq%2) * slotLen }

// close syncs the exact marks.
func (m *marks) close() error {
	close(m.quit)
	<-m.idle
	return errors.Join(m.sync(), m.file.Close())
}

// encodeSlot encodes the marks: the same ones in the same order.
func (m *marks) encodeSlot() []byte {
	p := append(make([]byte, 0, slotHead+len(m.byShard)*markLen+4), slotMagic...)
	p = append(p, m.id.encode()...)
	p = binary.BigEndian.AppendUint64(p, m.seq)
	p = binary.BigEndian.AppendUint32(p, uint32(len(m.byShard)))
	for _, shard := range slices.Sorted(maps.Keys(m.byShard)) {
		k := m.byShard[shard]
		p = binary.BigEndian.AppendUint32(p, k.shard)
		p = binary.BigEndian.AppendUint64(p, k.epoch)
		p = binary.BigEndian.AppendUint64(p, k.term)
		p = binary.BigEndian.AppendUint64(p, k.index)
		p = binary.BigEndian.AppendUint64(p, k.vote)
	}
	return binary.BigEndian.AppendUint32(p, crc32.Checksum(p, castagnoli))
}

// decodeSlot decodes the marks and their owner from b.
func decodeSlot(b []byte) (owner []byte, seq uint64, of map[uint32]mark, err error) {
	if len(b) < slotHead+4 || string(b[:len(slotMagic)]) != slotMagic {
		return nil, 0, nil, fmt.Errorf("slot of %d bytes: unknown format", len(b))
	}
	p := b[len(slotMagic):]
	owner, p = p[:identityLen], p[identityLen:]
	seq, p = binary.BigEndian.Uint64(p), p[8:]
	count, p := binary.BigEndian.Uint32(p), p[4:]
	if count > uint32(maxShards) || len(p) < int(count)*markLen+4 {
		return nil, 0, nil, fmt.Errorf("slot of %d bytes: cut short", len(b))
	}
	end := slotHead + int(count)*markLen
	if crc32.Checksum(b[:end], castagnoli) != binary.BigEndian.Uint32(b[end:]) {
		return nil, 0, nil, errors.New("checksum does not match")
	}
	of = make(map[uint32]mark, count)
	for ; count > 0; count, p = count-1, p[markLen:] {
		k := mark{shard: binary.BigEndian.Uint32(p), epoch: binary.BigEndian.Uint64(p[4:])}
		k.term, k.index = binary.BigEndian.Uint64(p[12:]), binary.BigEndian.Uint64(p[20:])
		k.vote = binary.BigEndian.Uint64(p[28:])
		of[k.shard] = k
	}
	return owner, seq, of, nil
}

// readFile reads at most the size of a marks file.
func readFile(fs vfs.FS, path string) ([]byte, error) {
	f, err := fs.Open(path)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 2*slotLen))
	return b, errors.Join(err, f.Close())
}
