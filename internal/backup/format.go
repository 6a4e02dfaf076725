package backup

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"time"
)

// A backup is one stream, so that it can go through a pipe, and has one checksum:
//
//	"pawlb" version | blocks
//	block: kind 1 | length 4 | body | CRC-32C of all of it 4
//
// The first block is the head. Then come the parts, one for each shard that the head names, in its order: blocks of data, and
// an end with what was in them. The last block is the end of the backup, with the checksum of all bytes before it. Heads and
// ends are JSON. So a flipped bit is found in its block, blocks that were lost or changed places are found by the checksums of
// the ends, and a stream that was cut lacks its end.
const (
	magic = "pawlb"
	// Version is that of the form.
	Version = 1

	blockHead    = 'h'
	blockData    = 'd'
	blockPartEnd = 'p'
	blockEnd     = 'e'

	// dataBlock is how much data a block has at most.
	dataBlock = 256 << 10
	// maxText bounds heads and ends.
	maxText = 64 << 10
	// maxParts bounds the shards of a backup. A cluster has 65 at most.
	maxParts = 1000
	// frameBytes is what stands before the body of a block, sumBytes what stands behind it.
	frameBytes = 1 + 4
	sumBytes   = crc32.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrDamaged: a backup is not what was written: it was cut, or bits were flipped.
	ErrDamaged = errors.New("backup is damaged")
	// ErrNone: a file is no backup.
	ErrNone = errors.New("it is no backup: it does not begin as one")
	// ErrVersion: a backup has a form that this release doesn't know.
	ErrVersion = errors.New("backup is of another version")
)

// Head says of which cluster a backup is.
type Head struct {
	Cluster string    `json:"cluster"` // its id, 32 hexadecimal digits
	Node    string    `json:"node"`    // that wrote it
	Program string    `json:"program"` // the version of the node's program
	Level   int       `json:"level"`   // the cluster's feature level
	Time    time.Time `json:"time"`    // when it was begun
	Shards  []uint32  `json:"shards"`  // in the order of the parts
}

// Part is the state of one shard.
type Part struct {
	Shard uint32 `json:"shard"`
	// Index and Term are those of the log entry after which the state is.
	Index  uint64 `json:"index"`
	Term   uint64 `json:"term"`
	Bytes  int64  `json:"bytes"`
	SHA256 []byte `json:"sha256"`
}

// end is the last block.
type end struct {
	Parts  int    `json:"parts"`
	Bytes  int64  `json:"bytes"` // before this block
	SHA256 []byte `json:"sha256"`
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers, strings and bytes always have a form
	}
	return b
}
