package backup

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"time"
)

// A backup is a single stream, so that it can go through a pipe, with a single checksum:
//
//	"pawlb" version | blocks
//	block: kind 1 | length 4 | body | CRC-32C of all of it 4
//
// The first block is the head. Then come the parts, one for each shard that the head names, in the same order: blocks of data, and
// an end that describes them. The last block is the end of the backup, with the checksum of all bytes before it. Heads and ends
// are JSON. So a flipped bit is detected in its block, lost or reordered blocks by the checksums in the ends, and a truncated
// stream by its missing end.
const (
	magic = "pawlb"
	// Version is the version of the format.
	Version = 1

	blockHead    = 'h'
	blockData    = 'd'
	blockPartEnd = 'p'
	blockEnd     = 'e'

	// dataBlock is the maximum size of the data in a block.
	dataBlock = 256 << 10
	// maxText bounds the size of heads and ends.
	maxText = 64 << 10
	// maxParts bounds the number of shards in a backup. A cluster has at most 65.
	maxParts = 1000
	// frameBytes is the size of what precedes the body of a block, sumBytes of what follows it.
	frameBytes = 1 + 4
	sumBytes   = crc32.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	// ErrDamaged: a backup is truncated or corrupt.
	ErrDamaged = errors.New("backup is damaged")
	// ErrNotBackup: a file is not a backup.
	ErrNotBackup = errors.New("not a backup: it does not start like one")
	// ErrVersion: a backup has a format that this release doesn't know.
	ErrVersion = errors.New("backup is of another version")
)

// Head describes a backup and the cluster it was taken of.
type Head struct {
	Cluster string    `json:"cluster"` // its id, 32 hexadecimal digits
	Node    string    `json:"node"`    // the node that wrote it
	Program string    `json:"program"` // the version of the node's program
	Level   int       `json:"level"`   // the cluster's feature level
	Time    time.Time `json:"time"`    // when the backup began
	Shards  []uint32  `json:"shards"`  // in the order of the parts
}

// Part is the state of one shard.
type Part struct {
	Shard uint32 `json:"shard"`
	// Index and Term identify the last log entry in the state.
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
		panic(err) // numbers, strings and bytes can always be encoded
	}
	return b
}
