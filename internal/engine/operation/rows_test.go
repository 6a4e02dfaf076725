package operation

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// FuzzRows decodes any bytes as each kind of row: the result is an error or a row, never a panic, and a row survives encoding and decoding.
func FuzzRows(f *testing.F) {
	f.Add((&Operation{Spec: Spec{Action: task.Move, Rate: 2.5}, State: Paused, Why: "w", StoppedBy: task.Author{Name: "lena"},
		Tally: Tally{Matched: 3, Done: 1, Failed: 1, Skipped: []Skipped{{task.SkipChanged, 1}}, Errors: []TaskError{{task.ID{1}, "m"}}},
		Progress: Progress{Visit: Visit{Step: 7, Shard: 2, Cursor: make([]byte, 16)},
			Postponed: []Visit{{Shard: 1, Step: 3, Open: true}}}}).encode())
	f.Add((&stepRow{step: 5, answer: StepAnswer{Swept: true, Away: 3}, at: 6, until: 7, away: 3, arrived: Tally{Done: 2}}).encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, row []byte) {
		whole := func(b []byte) ([]byte, error) { o, err := decodeOperation(task.ID{1}, b); return o.encode(), err }
		step := func(b []byte) ([]byte, error) { s, err := decodeStep(b); return s.encode(), err }
		for _, again := range []func([]byte) ([]byte, error){whole, step} {
			first, err := again(row)
			if err != nil {
				continue
			}
			if second, err := again(first); err != nil || !bytes.Equal(first, second) {
				t.Errorf("%x was decoded as %x: %v", first, second, err)
			}
		}
	})
}

// Rows survive encoding and decoding.
func TestRowsKeepAll(t *testing.T) {
	tally := Tally{Matched: 9, Done: 3, Failed: 2, Skipped: []Skipped{{task.SkipChanged, 3}, {task.SkipSame, 1}},
		Errors: []TaskError{{task.ID{1}, "m"}, {task.ID{2}, ""}}}
	o := &Operation{ID: task.ID{3}, Spec: Spec{Action: task.Move, Filter: query.Filter{Queue: "q"}, ToQueue: "r", Max: 4,
		Canary: 5, Rate: 2.5, By: task.Author{Name: "ada"}, Until: []ShardTime{{1, 2}}},
		State: Paused, CreatedAt: 6, EndedAt: 7, PausedAt: 8, Why: "w", StoppedBy: task.Author{Name: "lena"},
		ResumedBy: task.Author{Name: "eva"}, Stopping: Aborted, Tally: tally, Progress: Progress{Last: 6, Probed: true,
			Visit: Visit{Step: 7, Shard: 2, Cursor: []byte("c"),
				Swept: true, Open: true},
			Postponed: []Visit{{Shard: 3, Step: 4, Cursor: []byte("d"), Open: true, Since: 9}, {Shard: 5, Step: 1, Swept: true}}}}
	if again, err := decodeOperation(o.ID, o.encode()); err != nil || !reflect.DeepEqual(again, o) {
		t.Errorf("%+v was decoded as %+v: %v", o, again, err)
	}
	for _, swept := range []bool{true, false} {
		s := &stepRow{step: 5, answer: StepAnswer{Tally: tally, Next: []byte("n"), Swept: swept, Away: 3}, at: 6, until: 7, away: 4,
			arrived: Tally{Done: 2}}
		if again, err := decodeStep(s.encode()); err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%+v was decoded as %+v: %v", s, again, err)
		}
	}
}

// Damage in any field is reported, even before or after a valid one.
func TestDamagedRows(t *testing.T) {
	field := func(tag uint64, value string) []byte {
		f := schema.Encoding(nil)
		f.Put(tag, []byte(value))
		return f.Row()
	}
	broken := string([]byte{schema.RowVersion, 0xff})
	decode := map[string]func(row []byte) error{
		"operation": func(row []byte) error { _, err := decodeOperation(task.ID{}, row); return err },
		"step":      func(row []byte) error { _, err := decodeStep(row); return err },
		"tally":     func(row []byte) error { return new(Tally).decode(row) },
	}
	for _, c := range []struct {
		row   string
		tag   uint64
		value string
	}{
		{"operation", 1, "{"}, {"operation", 7, "{"}, {"operation", 9, broken}, {"operation", 11, "{"}, {"operation", 13, broken},
		{"step", 2, broken}, {"step", 9, broken}, {"tally", 4, "\x05ab"}, {"tally", 4, "\x02ab"}, {"tally", 4, "\x02ab\xff"},
	} {
		row := field(c.tag, c.value)
		for what, row := range map[string][]byte{"alone": row, "in front": append(row, field(6, "x")[1:]...),
			"cut": append(field(6, "x"), 0xff)} {
			if err := decode[c.row](row); err == nil {
				t.Errorf("%s, %s: damaged field %d with value %q was accepted", c.row, what, c.tag, c.value)
			}
		}
	}
}
