package lanes

import (
	"math"
	"testing"
	"unsafe"

	"github.com/pawlq/pawl/internal/engine/schema"
)

// The memory of a key with waiting tasks only is documented: see docs/performance.md.
func TestColdLanesAreSmall(t *testing.T) {
	if size := unsafe.Sizeof(coldLane{}); size > 80 {
		t.Errorf("a cold lane takes %d bytes, so with its key, its places and the map a key takes more than the documented 200", size)
	}
}

// A lane with more tasks than a cold one can count stays warm.
func TestColdLaneCountsAll(t *testing.T) {
	for count, want := range map[int64]bool{1: true, math.MaxInt32: true, math.MaxInt32 + 1: false} {
		l := Lane{count: count, scan: 7}
		if c, ok := l.toCold(); ok != want || ok && int64(c.count) != count {
			t.Errorf("a lane of %d tasks: cold = %t as %+v, want %t", count, ok, c, want)
		}
	}
}

// A cold lane can represent the task stored in the lane's row only if it is the first.
func TestColdLaneWithoutARow(t *testing.T) {
	first, second := schema.ReadyTask{Seq: 7}, schema.ReadyTask{Seq: 8}
	for _, c := range []struct {
		inRow schema.ReadyTask
		want  bool
	}{{schema.ReadyTask{}, true}, {first, true}, {second, false}} {
		l := Lane{count: 2, head: []schema.ReadyTask{first, second}, scan: 9, inRow: c.inRow}
		cold, ok := l.toCold()
		if cold.of = new(coldType); ok != c.want || ok && cold.lane().inRow != c.inRow {
			t.Errorf("a lane of tasks 7 and 8, of which %d has no row: cold = %t as %+v, want %t", c.inRow.Seq, ok, cold, c.want)
		}
	}
}

// A lane row whose key names no lane is damage.
func TestDamagedLaneKey(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a lane row of priority 9 was read")
		}
	}()
	s := New("ns", "q", nil)
	name := schema.LaneName{Priority: 9, Key: "k", Type: "x"}
	s.decodeStored(schema.LaneKey("ns", schema.TableLane, "q", name), (&Lane{LaneName: name, count: 1}).encode())
}

// A cold lane knows what its key has used in the present period, however many periods there were.
func TestColdLaneOfALatePeriod(t *testing.T) {
	s := New("ns", "q", nil)
	s.period = math.MaxInt32 - 1
	for range 3 {
		s.open(1)
		c := &coldLane{used: 5, period: int32(s.period), of: &coldType{start: 1}} // #nosec G115 -- as in cool
		if price := s.coldPrice(c); price != 5 {
			t.Errorf("in period %d a key that has used 5 counts as if it had used %v", s.period, price)
		}
	}
}
