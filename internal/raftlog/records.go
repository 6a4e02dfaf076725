package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// recordVersion is the first byte of every record.
const recordVersion = 1

// Kinds of records. Each record is version, kind and shard, followed by numbers as varints:
//
//	save      has hard state 1, [term, vote, commit], entries
//	copied    entries that lie in an older segment too
//	compacted index, term of the entry before the first
//	reset     index, term of that entry, term, vote, commit
//	epoch     epoch, term, vote, commit
//	removed
//	void      whatever
//
// A checkpoint is the version and, for each shard, its number, epoch, term, vote and commit, and index and term of the entry
// before the first.
const (
	recordSave = 1 + iota
	recordCopied
	recordCompacted
	recordReset
	recordEpoch
	recordRemoved
	recordVoid
)

// An entry is index, term, type 1, length of its data, data.

func entrySize(e *pb.Entry) int {
	n := len(e.GetData())
	return uvarintLen(e.GetIndex()) + uvarintLen(e.GetTerm()) + 1 + uvarintLen(uint64(n)) + n
}

func entriesSize(entries []*pb.Entry) (n int) {
	for _, e := range entries {
		n += entrySize(e)
	}
	return n
}

func appendHead(b []byte, kind byte, shard uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, recordVersion, kind), shard)
}

func appendNumbers(b []byte, numbers ...uint64) []byte {
	for _, v := range numbers {
		b = binary.AppendUvarint(b, v)
	}
	return b
}

func appendEntry(b []byte, e *pb.Entry) []byte {
	b = appendNumbers(b, e.GetIndex(), e.GetTerm())
	b = append(b, byte(e.GetType()))
	b = binary.AppendUvarint(b, uint64(len(e.GetData())))
	return append(b, e.GetData()...)
}

// reader decodes a record from its beginning.
type reader struct {
	rest []byte
	err  error
}

var errShort = errors.New("record is cut short")

// fail ends the reading with an error, unless it has ended with one before.
func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
	r.rest = nil
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.fail(errShort)
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); len(b) > 0 {
		return b[0]
	}
	return 0
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 {
		r.fail(errShort)
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) shard() uint32 {
	if b := r.bytes(4); len(b) == 4 {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) version() {
	if v := r.byte(); v != recordVersion {
		r.fail(fmt.Errorf("record has unknown version %d", v))
	}
}

func (r *reader) position() position { return position{r.number(), r.number()} }

func (r *reader) hardState() hardState { return hardState{r.number(), r.number(), r.number()} }

// entry decodes an entry. Its data aliases the record.
func (r *reader) entry() *pb.Entry {
	index, term, kind := r.number(), r.number(), pb.EntryType(r.byte())
	data := r.bytes(r.number())
	if kind != pb.EntryNormal && kind != pb.EntryConfChange && kind != pb.EntryConfChangeV2 {
		r.fail(fmt.Errorf("entry %d has unknown type %d", index, kind))
	}
	e := &pb.Entry{Index: &index, Term: &term, Type: &kind}
	if len(data) > 0 {
		e.Data = data
	}
	return e
}

// end returns an error unless the whole record has been read.
func (r *reader) end() error {
	if len(r.rest) > 0 {
		r.fail(fmt.Errorf("record has %d bytes too many", len(r.rest)))
	}
	return r.err
}

func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// position is a position in a log: its last entry, or the one before its first.
type position struct{ index, term uint64 }

// hardState is a replica's raft.HardState.
type hardState struct{ term, vote, commit uint64 }

func hardStateOf(hs *pb.HardState) hardState {
	return hardState{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
}

func (h hardState) proto() *pb.HardState {
	return &pb.HardState{Term: new(h.term), Vote: new(h.vote), Commit: new(h.commit)}
}
