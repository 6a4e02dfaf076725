package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// rowVersion opens every row.
const rowVersion = 1

// The kinds of rows of a shard. Keys are 0x01, the shard, the kind, and for entries the index, so that a shard's
// entries lie in order and apart from its other rows.
const (
	entryRow     = 'e'
	hardStateRow = 'h'
	startRow     = 's'
	epochRow     = 'x'
)

var identityKey = []byte{0x00, 'i'}

// entryKeyLen is what a key of an entry takes.
const entryKeyLen = 1 + 4 + 1 + 8

func rowKey(shard uint32, kind byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0x01}, shard), kind)
}

func entryKey(shard uint32, index uint64) []byte {
	return appendEntryKey(make([]byte, 0, entryKeyLen), shard, index)
}

func appendEntryKey(b []byte, shard uint32, index uint64) []byte {
	b = append(b, 0x01)
	b = binary.BigEndian.AppendUint32(b, shard)
	b = append(b, entryRow)
	return binary.BigEndian.AppendUint64(b, index)
}

// decodeEntryIndex returns the index in a key that entryKey made.
func decodeEntryIndex(key []byte) (uint64, error) {
	if len(key) != entryKeyLen {
		return 0, fmt.Errorf("entry key %x: unknown form", key)
	}
	return binary.BigEndian.Uint64(key[6:]), nil
}

// position is a place in a log: the last entry it has, or the one before its first.
type position struct{ index, term uint64 }

// An entry is: version, index, term, type, data. The index is there, though the key has it, so that a row that turns up
// in another's place is noticed.

func entrySize(e *pb.Entry) int {
	return 2 + uvarintLen(e.GetIndex()) + uvarintLen(e.GetTerm()) + len(e.GetData())
}

func putEntry(b []byte, e *pb.Entry) {
	b[0] = rowVersion
	n := 1 + binary.PutUvarint(b[1:], e.GetIndex())
	n += binary.PutUvarint(b[n:], e.GetTerm())
	b[n] = byte(e.GetType())
	copy(b[n+1:], e.GetData())
}

// decodeEntry returns the entry with its data in place, so it is valid as long as b is.
func decodeEntry(b []byte) (*pb.Entry, error) {
	f, rest, err := decodeRow(b, 2)
	if err != nil {
		return nil, fmt.Errorf("entry: %w", err)
	}
	if len(rest) == 0 {
		return nil, errors.New("entry is cut short")
	}
	kind := pb.EntryType(rest[0])
	if kind != pb.EntryNormal && kind != pb.EntryConfChange && kind != pb.EntryConfChangeV2 {
		return nil, fmt.Errorf("entry %d has unknown type %d", f[0], kind)
	}
	e := &pb.Entry{Index: new(f[0]), Term: new(f[1]), Type: kind.Enum()}
	if len(rest) > 1 {
		e.Data = rest[1:]
	}
	return e, nil
}

func encodeHardState(hs *pb.HardState) []byte {
	return encodeRow(hs.GetTerm(), hs.GetVote(), hs.GetCommit())
}

func decodeHardState(b []byte) (*pb.HardState, error) {
	f, err := decodeExact(b, 3)
	if err != nil {
		return nil, fmt.Errorf("hard state: %w", err)
	}
	return &pb.HardState{Term: new(f[0]), Vote: new(f[1]), Commit: new(f[2])}, nil
}

func encodeRow(fields ...uint64) []byte {
	b := []byte{rowVersion}
	for _, f := range fields {
		b = binary.AppendUvarint(b, f)
	}
	return b
}

// decodeExact decodes a row of n numbers and nothing else.
func decodeExact(b []byte, n int) ([]uint64, error) {
	f, rest, err := decodeRow(b, n)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("row has %d bytes too many", len(rest))
	}
	return f, err
}

// decodeRow decodes the n numbers that a row begins with.
func decodeRow(b []byte, n int) (fields []uint64, rest []byte, err error) {
	if len(b) == 0 || b[0] != rowVersion {
		return nil, nil, fmt.Errorf("row of %d bytes: unknown form", len(b))
	}
	rest = b[1:]
	for range n {
		v, used := binary.Uvarint(rest)
		if used <= 0 {
			return nil, nil, errors.New("row is cut short")
		}
		fields, rest = append(fields, v), rest[used:]
	}
	return fields, rest, nil
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}
