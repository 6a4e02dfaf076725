package query

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/broker"
)

// A message has as many tasks as fit, at least one, and the list continues after them.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		sizes []int
		want  string
	}{
		{nil, "0 end"}, {[]int{MaxArchiveBytes}, "1 end"}, {[]int{MaxArchiveBytes + 1}, "1 end"}, {[]int{MaxArchiveBytes / 2, MaxArchiveBytes / 2}, "2 end"},
		{[]int{MaxArchiveBytes / 2, MaxArchiveBytes/2 + 1}, "1 p0"}, {[]int{MaxArchiveBytes + 1, 1}, "1 p0"}, {[]int{1, MaxArchiveBytes - 1, 0, 1}, "3 p2"},
	} {
		a := archiveAnswer{Next: "end"}
		for i, size := range c.sizes {
			a.Tasks, a.Places = append(a.Tasks, broker.ArchivedTask{Payload: make([]byte, size)}), append(a.Places, fmt.Sprint("p", i))
		}
		a.cut()
		if got := fmt.Sprint(len(a.Tasks), " ", a.Next); got != c.want || len(a.Places) != len(a.Tasks) {
			t.Errorf("sizes %v: %s with %d places, want %s", c.sizes, got, len(a.Places), c.want)
		}
	}
}
