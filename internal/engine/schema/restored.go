package schema

import "github.com/pawlq/pawl/internal/store"

// Restored is the row of a shard that was restored from a backup.
type Restored struct {
	Backup store.Time // the shard's time in the backup
	Began  store.Time // when its first leader began; 0: it had none yet
}

// RestoredKey returns the key of the row.
func RestoredKey() []byte { return Table("", TableRestored) }

// ReadRestored reads the row.
func ReadRestored(from store.Reader) (Restored, bool) {
	return Read(from, RestoredKey(), decodeRestored)
}

// Encode returns the row.
func (s Restored) Encode() []byte { return Encode(32, &s, (*Restored).fields) }

func decodeRestored(row []byte) (s Restored, err error) {
	err = Decode(row, &s, (*Restored).fields)
	return s, err
}

func (s *Restored) fields(f *Fields) {
	Num(f, 1, &s.Backup)
	Num(f, 2, &s.Began)
}
