package engine

import (
	"fmt"
	"testing"

	"github.com/pawlq/pawl/internal/task"
)

// Derived ids and hashes that are stored must be the same in all releases: a message may be repeated, or a key reused, after an upgrade.
func TestDerivedIDsAreStable(t *testing.T) {
	id := func(last byte) task.ID { return task.ID{0: 1, 5: last, 8: 0x80, 9: 2, 15: last} }
	n := NewTask{Spec: task.Spec{Queue: "q", Type: "t", ContentType: "c", Payload: []byte("p")}}
	whatever := n
	whatever.AnyContent = true
	var child task.ID
	var hasher Hasher
	NewWorld(t).Round(func(r *Round) { child = ChildID(r, id(3), 4) })
	for _, c := range []struct {
		what string
		got  any
		want string
	}{
		{"the fourth child", child, "019b76da-a800-7000-bb98-b8905aca4cb9"},
		{"the request of a child", task.RequestOf(id(3), 4), "bb98b890-5aca-8cb9-81ad-12228f3ebf6d"},
		{"the name of a part", task.PartID(id(3), id(5)), "33813c88-7658-82d8-ba4c-7d43898546c4"},
		{"the request of a move", task.MoveRequest(id(3), id(5)), "5eec553f-d109-8f65-b6f5-72e6aa8742d0"},
		{"the content", hasher.Hash(&n.Spec), "6708334065371495445"},
		{"any content", hasher.Hash(&whatever.Spec), "1945749279092476493"},
		{"the chance of a step", task.Chance(id(3), 4), "0.7327990868023245"},
	} {
		if got := fmt.Sprint(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}
