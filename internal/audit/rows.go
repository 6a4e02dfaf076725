package audit

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// The rows of an audit log, in every shard: table A, of no namespace.
//
//	A 0 c ns          a chain: the range of the entries of a namespace, and the hashes at both ends. The cluster's has the name ""
//	A 0 e ns 0 seq    an entry
//	A 0 h             what is true of all
const table = 'A'

var (
	sumKey     = []byte{table, 0, 'h'}
	entriesEnd = []byte{table, 0, 'e' + 1}
)

func chainKey(ns string) []byte { return append([]byte{table, 0, 'c'}, ns...) }

func entryKey(ns string, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(append(append([]byte{table, 0, 'e'}, ns...), 0), seq)
}

func seqOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func namespaceOf(key []byte) string { return string(key[3 : len(key)-9]) }

// rowVersion is the first byte of a row. The rest is JSON: fields may be added, but never renamed.
const rowVersion = 1

// sum is what is true of all entries. Its zero value: there has been none.
type sum struct {
	Newest   uint64     `json:"newest"`
	Bytes    uint64     `json:"bytes"`
	Due      store.Time `json:"due"`                // when the oldest entries expire
	Evicted  uint64     `json:"evicted,omitempty"`  // number of entries that were removed early
	Exported uint64     `json:"exported,omitempty"` // all entries up to this number were exported; 0: none ever was
}

func readSum(from store.Reader) (s sum, err error) {
	row, ok := from.Get(sumKey)
	if !ok {
		return s, nil
	}
	return s, decode("head", row, &s)
}

// chain describes the entries of a namespace. Its zero value: there are none, or there have been none since Expire.
type chain struct {
	ns     string
	Oldest uint64     `json:"oldest"` // 0: there are none now
	Since  store.Time `json:"since"`  // the time of the oldest
	Newest uint64     `json:"newest"`
	Before Hash       `json:"before"` // of the entry before the oldest
	Hash   Hash       `json:"hash"`   // of the newest, even if that has been removed early
	Bytes  uint64     `json:"bytes"`
}

func readChain(from store.Reader, ns string) (*chain, error) {
	c := &chain{ns: ns}
	row, ok := from.Get(chainKey(ns))
	if !ok {
		return c, nil
	}
	return c, decode(fmt.Sprintf("chain of namespace %q", ns), row, c)
}

// readChains reads the chains that can be read. The error is of one that can't.
func readChains(from store.Reader) (all []*chain, err error) {
	from.Scan(chainKey(""), []byte{table, 0, 'c' + 1}, func(k, row []byte) bool {
		c := &chain{ns: string(k[3:])}
		if bad := decode(fmt.Sprintf("chain of namespace %q", c.ns), row, c); bad != nil {
			err = bad
			return true
		}
		all = append(all, c)
		return true
	})
	return all, err
}

// entryRow is the stored form of an entry, without what is in its key.
type entryRow struct {
	At        store.Time      `json:"at"`
	Actor     string          `json:"actor,omitempty"`
	Address   string          `json:"address,omitempty"`
	Interface task.Interface  `json:"interface,omitempty"`
	Reason    string          `json:"reason,omitempty"`
	Action    task.Action     `json:"action"`
	Namespace string          `json:"ns,omitempty"`
	Target    task.Target     `json:"target"`
	Queue     string          `json:"queue,omitempty"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
	Tasks     int64           `json:"tasks,omitempty"`
	Call      uint64          `json:"call,omitempty"`
	Prev      Hash            `json:"prev"`
}

func (e *Entry) encode() []byte {
	return encode(&entryRow{At: e.At, Actor: e.By.Name, Address: e.By.Address, Interface: e.By.Interface, Reason: e.By.Reason,
		Action: e.Action, Namespace: e.Namespace, Target: e.Target, Queue: e.Queue, Before: e.Before, After: e.After, Tasks: e.Tasks,
		Call: e.Call, Prev: e.Prev})
}

func decodeEntry(seq uint64, row []byte) (e Entry, err error) {
	var r entryRow
	if err := decode(fmt.Sprintf("entry %d", seq), row, &r); err != nil {
		return e, err
	}
	return Entry{Seq: seq, At: r.At, By: task.Author{Name: r.Actor, Address: r.Address, Interface: r.Interface, Reason: r.Reason},
		Action: r.Action, Namespace: r.Namespace, Target: r.Target, Queue: r.Queue, Before: r.Before, After: r.After, Tasks: r.Tasks,
		Call: r.Call, Prev: r.Prev, Hash: hashOf(seq, row)}, nil
}

// readEntry reads an existing entry, and returns its size in bytes.
func readEntry(from store.Reader, ns string, seq uint64) (Entry, int, error) {
	row, ok := from.Get(entryKey(ns, seq))
	if !ok {
		return Entry{}, 0, fmt.Errorf("audit: entry %d is missing", seq)
	}
	e, err := decodeEntry(seq, row)
	return e, len(row), err
}

// firstEntry returns the first entry of a namespace whose number is in [lo, hi); with number 0 if there is none.
func firstEntry(from store.Reader, ns string, lo, hi uint64) (e Entry, err error) {
	from.Scan(entryKey(ns, lo), entryKey(ns, hi), func(k, v []byte) bool {
		if e, err = decodeEntry(seqOf(k), v); err != nil {
			e.Seq = seqOf(k)
		}
		return false
	})
	return e, err
}

func encode(row any) []byte {
	b, err := json.Marshal(row)
	if err != nil {
		panic(err) // Changed produces JSON, and texts and numbers can always be encoded
	}
	return append([]byte{rowVersion}, b...)
}

func decode(what string, row []byte, into any) error {
	if len(row) == 0 || row[0] != rowVersion {
		return fmt.Errorf("audit: %s: unknown format", what)
	}
	if err := json.Unmarshal(row[1:], into); err != nil {
		return fmt.Errorf("audit: %s: %w", what, err)
	}
	return nil
}

// String returns the hash in hexadecimal, as it is shown and stored.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (h *Hash) UnmarshalText(b []byte) error {
	if len(b) != 2*len(h) {
		return fmt.Errorf("hash of %d digits", len(b))
	}
	_, err := hex.Decode(h[:], b)
	return err
}
