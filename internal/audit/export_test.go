package audit

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// batch reads what waits to be exported.
func (s *shard) batch(limit int) Batch {
	s.t.Helper()
	b, err := Unexported(s.state, limit)
	if err != nil {
		s.t.Fatal(err)
	}
	return b
}

// exported notes that a batch was exported.
func (s *shard) exported(b Batch) {
	s.t.Helper()
	s.log(usual, func(l *Log) store.Time { l.Exported(b); return 0 })
	s.sound("an export")
}

// names lists the numbers and authors of entries.
func names(b Batch) (all string) {
	for _, e := range b.Entries {
		all += fmt.Sprint(e.Seq, e.By.Name, " ")
	}
	return all
}

// The entries of all namespaces come in their order, in batches of any size, each until it was noted.
func TestExportInOrder(t *testing.T) {
	want := ""
	add := func(s *shard, from, to int) {
		for i := from; i <= to; i++ {
			s.append(Entry{Action: task.QueuePut, Namespace: []string{"", "b", "a"}[i*i%3], By: task.Author{Name: fmt.Sprint("x", i)}})
			want += fmt.Sprint(i, "x", i, " ")
		}
	}
	for limit := 1; limit <= 12; limit++ {
		s := newShard(t)
		if want = ""; !s.batch(limit).IsEmpty() {
			t.Fatal("an empty log has something to export")
		}
		add(s, 1, 7)
		got := ""
		for i := 0; i < 20 && !s.batch(limit).IsEmpty(); i++ {
			b := s.batch(limit)
			if len(b.Entries) > limit || names(b) != names(s.batch(limit)) {
				t.Errorf("a batch of up to %d has %d entries, or another one the next time", limit, len(b.Entries))
			}
			if i == 0 {
				add(s, 8, 10) // meanwhile
			}
			s.exported(b)
			got += names(b)
		}
		if n, err := CountsOf(s.state); err != nil || got != want || n.Unexported != 0 {
			t.Errorf("batches of up to %d have %q, want %q; %d wait, %v", limit, got, want, n.Unexported, err)
		}
		add(s, 11, 11)
		if n, _ := CountsOf(s.state); n.Unexported != 1 || names(s.batch(limit)) != "11x11 " {
			t.Errorf("then %q wait, counted as %d", names(s.batch(limit)), n.Unexported)
		}
	}
}

// An entry that is amended during or after its export is exported again.
func TestAmendedEntriesAreExportedAgain(t *testing.T) {
	s := newShard(t)
	many := Entry{Action: task.QueuePurged, By: task.Author{Name: "x"}, Call: 7, Tasks: 2}
	s.some(1)
	s.append(many)
	b := s.batch(10)
	s.append(many) // during
	s.exported(b)
	if b = s.batch(10); names(b) != "2x " || b.Entries[0].Tasks != 4 {
		t.Errorf("after an amendment during the export %q wait", names(b))
	}
	s.exported(b)
	s.append(many) // after
	if b = s.batch(10); names(b) != "2x " || b.Entries[0].Tasks != 6 {
		t.Errorf("after an amendment after the export %q wait", names(b))
	}
	s.some(1)
	if s.exported(b); names(s.batch(10)) != "3a0 " {
		t.Errorf("in the end %q wait", names(s.batch(10)))
	}
}

// An entry that was exported, and is amended while later ones of other namespaces are, is exported again.
func TestAmendedEntriesBeforeABatchAreExportedAgain(t *testing.T) {
	s := newShard(t)
	many := Entry{Action: task.QueuePurged, By: task.Author{Name: "x"}, Call: 7, Tasks: 2}
	s.append(many)
	s.exported(s.batch(10))
	s.append(Entry{Action: task.QueuePut, Namespace: "b", By: task.Author{Name: "y"}})
	b := s.batch(10)
	s.append(many) // during
	s.exported(b)
	if b = s.batch(10); names(b) != "1x 2y " || b.Entries[0].Tasks != 4 {
		t.Errorf("after an amendment %q wait", names(b))
	}
	if s.exported(b); !s.batch(10).IsEmpty() {
		t.Errorf("in the end %q wait", names(s.batch(10)))
	}
}

// Entries that wait are kept a week longer than others, in a log of which some were exported, and are looked at once an hour.
func TestEntriesThatWaitAreHeld(t *testing.T) {
	for what, c := range map[string]struct {
		exported int // before
		held     bool
	}{"nothing was ever exported": {0, false}, "some were exported": {1, true}, "all were exported": {3, false}} {
		s := newShard(t)
		s.some(3)
		if c.exported > 0 {
			s.exported(s.batch(c.exported))
		}
		left := func(after time.Duration) int {
			s.now = store.TimeOf(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Add(after)
			due := s.log(usual, (*Log).Expire)
			if s.sound(what); due != 0 && due <= s.now {
				t.Errorf("%s: Expire wants to be called at once again", what)
			}
			if n := s.count(""); n == 2 && due != s.now.Add(holdCheck) {
				t.Errorf("%s: held entries are looked at %v later", what, time.Duration(due-s.now))
			}
			return s.count("")
		}
		want := 0
		if c.held {
			want = 2
		}
		for _, after := range []time.Duration{DefaultKeep + time.Minute, DefaultKeep + holdFor - time.Minute} {
			if n := left(after); n != want {
				t.Errorf("%s: after %v there are %d entries, want %d", what, after, n, want)
			}
		}
		if n := left(DefaultKeep + holdFor + time.Minute); n != 0 {
			t.Errorf("%s: in the end there are %d entries", what, n)
		}
	}
}

// A batch has a bounded size, so that a collector takes it, and at least one entry.
func TestLargeEntriesAreExportedInSmallBatches(t *testing.T) {
	s := newShard(t)
	for i, size := range []int{2 << 20, 300 << 10, 300 << 10, 300 << 10, 300 << 10, 2 << 20, 0} {
		s.append(Entry{Action: task.QueuePut, Namespace: []string{"", "b"}[i/2%2], By: task.Author{Name: "x"},
			After: []byte(`"` + strings.Repeat("z", size) + `"`)})
	}
	for _, want := range []string{"1x ", "2x 3x 4x ", "5x ", "6x ", "7x ", ""} {
		b := s.batch(10)
		if names(b) != want {
			t.Errorf("a batch has %q, want %q", names(b), want)
		}
		s.exported(b)
	}
}

// A damaged entry is left out, and holds up no others.
func TestDamagedEntriesAreNotExported(t *testing.T) {
	s := newShard(t)
	s.some(3)
	s.round(func(tx *store.Tx) { tx.Set(entryKey("", 2), []byte("?")) })
	b := s.batch(10)
	s.log(usual, func(l *Log) store.Time { l.Exported(b); return 0 })
	if names(b) != "1a0 3a2 " || !s.batch(10).IsEmpty() {
		t.Errorf("exported: %q, then %q", names(b), names(s.batch(10)))
	}
}
