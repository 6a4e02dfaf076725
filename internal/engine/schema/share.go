package schema

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pawlq/pawl/internal/task"
)

// EncodeShare returns the row of a namespace's share of its quotas in the shard.
func EncodeShare(s task.Share) []byte {
	r := NewRow(32)
	r.Num(1, s.Version)
	for i, v := range s.Each() {
		r.Num(protowire.Number(i+2), uint64(*v)) // #nosec G115 -- not negative
	}
	return r
}

// DecodeShare decodes a row of EncodeShare.
func DecodeShare(row []byte) (s task.Share, err error) {
	fields := s.Each()
	err = Decode(row, func(tag protowire.Number, v uint64) {
		if tag == 1 {
			s.Version = v
		} else if int(tag) < 2+len(fields) {
			*fields[tag-2] = int64(v) // #nosec G115 -- as it was written
		}
	}, NoBytes)
	return s, err
}
