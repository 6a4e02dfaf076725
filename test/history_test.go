package test

import (
	"strings"
	"testing"
	"time"
)

// TestCheckerFinds gives the checker a history that is right, and each way of spoiling it: a checker that finds nothing
// proves nothing.
func TestCheckerFinds(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1_000_000+s), 0) }
	good := func() ([]Op, map[string]Final) {
		return []Op{
				{Kind: Enqueue, Task: "t", Value: "v", Begin: at(0), End: at(1)},
				{Kind: Enqueue, Value: "w", Begin: at(0), End: at(1), Unknown: true},
				{Kind: Claim, Task: "t", Value: "v", Fence: 1, ClaimKey: "a", Begin: at(2), End: at(3), Lease: at(10)},
				{Kind: Claim, Task: "t", Value: "v", Fence: 2, ClaimKey: "b", Begin: at(11), End: at(12), Lease: at(20)},
				{Kind: Ack, Task: "t", Fence: 2, Begin: at(13), End: at(14)},
				{Kind: Enqueue, Task: "c", Value: "x", Begin: at(0), End: at(1)},
				{Kind: Cancel, Task: "c", Begin: at(2), End: at(3)},
			}, map[string]Final{
				"c": {Value: "x", State: "cancelled", Ended: true},
				"t": {Value: "v", State: "succeeded", Ended: true, Fence: 2},
				"u": {Value: "w", State: "dead", Ended: true},
			}
	}
	for _, c := range []struct {
		name, want string
		spoil      func(ops []Op, final map[string]Final)
	}{
		{"nothing", "", func([]Op, map[string]Final) {}},
		{"lost task", "lost", func(_ []Op, f map[string]Final) { delete(f, "t") }},
		{"lost claim", "claimed at fence 2, and has fence 1", func(_ []Op, f map[string]Final) { f["t"] = Final{"v", "succeeded", true, 1} }},
		{"second valid claim", "and again at fence 2", func(o []Op, _ map[string]Final) { o[3].Begin, o[3].End = at(5), at(6) }},
		{"same fence twice", "claimed twice", func(o []Op, _ map[string]Final) { o[3].Fence = 1 }},
		{"stale ack", "acked at fence 1", func(o []Op, _ map[string]Final) { o[4].Fence = 1 }},
		{"lost ack", "is ready at the end", func(_ []Op, f map[string]Final) { f["t"] = Final{"v", "ready", false, 2} }},
		{"stuck task", "still claimed", func(_ []Op, f map[string]Final) { f["t"] = Final{"v", "claimed", false, 2} }},
		{"lost cancel", "cancelled, and is dead", func(_ []Op, f map[string]Final) { f["c"] = Final{"x", "dead", true, 0} }},
		{"unknown task", "never enqueued", func(_ []Op, f map[string]Final) { f["x"] = Final{"z", "dead", true, 0} }},
		{"doubled value", "doubled", func(o []Op, f map[string]Final) {
			o[1] = Op{Kind: Enqueue, Task: "u", Value: "v"}
			f["u"] = Final{Value: "v", State: "dead", Ended: true}
		}},
		{"another payload", "was claimed with value", func(o []Op, _ map[string]Final) { o[2].Value = "w" }},
		{"end without claim", "without a claim", func(o []Op, _ map[string]Final) { o[4].Fence = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops, final := good()
			c.spoil(ops, final)
			h := &History{ops: ops}
			found := strings.Join(h.Check(final), "\n")
			if (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}
