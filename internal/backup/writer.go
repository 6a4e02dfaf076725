package backup

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
)

// Writer writes a backup. After the first error of the underlying stream, every call returns it.
type Writer struct {
	w     io.Writer
	head  Head
	part  Part // the current part
	ended int  // complete parts
	data  []byte
	sum   hash.Hash // of the part
	all   hash.Hash
	bytes int64
	err   error
}

// NewWriter begins a backup. The parts must be written in the order of h.Shards.
func NewWriter(w io.Writer, h Head) (*Writer, error) {
	if len(h.Shards) > maxParts {
		return nil, fmt.Errorf("backup of %d shards, at most %d are allowed", len(h.Shards), maxParts)
	}
	b := &Writer{w: w, head: h, data: make([]byte, 0, dataBlock), sum: sha256.New(), all: sha256.New()}
	b.write(append([]byte(magic), Version))
	b.block(blockHead, encode(h))
	return b, b.err
}

// Write appends to the state of the current shard.
func (b *Writer) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 && b.err == nil {
		k := min(len(p), cap(b.data)-len(b.data))
		b.data = append(b.data, p[:k]...)
		if p = p[k:]; len(b.data) == cap(b.data) {
			b.flush()
		}
	}
	return n - len(p), b.err
}

func (b *Writer) flush() {
	if len(b.data) == 0 {
		return
	}
	_, _ = b.sum.Write(b.data)
	b.part.Bytes += int64(len(b.data))
	b.block(blockData, b.data)
	b.data = b.data[:0]
}

// EndPart ends the state of the current shard. index and term identify the last log entry in it.
func (b *Writer) EndPart(index, term uint64) error {
	if b.ended == len(b.head.Shards) {
		panic(fmt.Sprintf("backup: part %d of %d", b.ended+1, len(b.head.Shards)))
	}
	b.flush()
	b.part.Shard, b.part.Index, b.part.Term, b.part.SHA256 = b.head.Shards[b.ended], index, term, b.sum.Sum(nil)
	b.block(blockPartEnd, encode(b.part))
	b.part = Part{}
	b.sum.Reset()
	b.ended++
	return b.err
}

// Close ends the backup. It does not close the stream.
func (b *Writer) Close() error {
	if b.ended != len(b.head.Shards) {
		panic(fmt.Sprintf("backup: it ends after %d of %d parts", b.ended, len(b.head.Shards)))
	}
	b.block(blockEnd, encode(end{b.ended, b.bytes, b.all.Sum(nil)}))
	return b.err
}

func (b *Writer) block(kind byte, body []byte) {
	p := make([]byte, 0, frameBytes+len(body)+sumBytes)
	p = binary.BigEndian.AppendUint32(append(p, kind), uint32(len(body)))
	p = append(p, body...)
	b.write(binary.BigEndian.AppendUint32(p, crc32.Checksum(p, castagnoli)))
}

func (b *Writer) write(p []byte) {
	if b.err != nil {
		return
	}
	_, _ = b.all.Write(p)
	b.bytes += int64(len(p))
	_, b.err = b.w.Write(p)
}
