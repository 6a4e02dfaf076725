package task

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Restore turns the spec into that of a dead letter restored from the archive. The request id is derived from the dead letter and its end,
// not from its place in the archive: a dead letter archived twice is restored once. It is remembered for as long as an archive can be kept.
func (s *Spec) Restore(ns string, id ID, ended time.Time) {
	s.Archived, s.RequestTTL = id, MaxHold
	name := binary.BigEndian.AppendUint64(append([]byte(ns), id[:]...), uint64(ended.UnixMicro())) // #nosec G115 -- hashed
	sum := sha256.Sum256(name)
	s.RequestID = ID(sum[:16])
	s.RequestID[6], s.RequestID[8] = 0x80|s.RequestID[6]&0x0f, 0x80|s.RequestID[8]&0x3f // a UUID of version 8
}
