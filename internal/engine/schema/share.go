package schema

import "github.com/pawlq/pawl/internal/task"

// EncodeShare returns the row of a namespace's share of its quotas in the shard.
func EncodeShare(s task.Share) []byte { return Encode(32, &s, shareFields) }

// DecodeShare decodes a row of EncodeShare.
func DecodeShare(row []byte) (s task.Share, err error) {
	err = Decode(row, &s, shareFields)
	return s, err
}

func shareFields(s *task.Share, f *Fields) {
	Num(f, 1, &s.Version)
	for i, p := range s.Each() {
		Num(f, uint64(i+2), p)
	}
}
