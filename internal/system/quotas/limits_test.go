package quotas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/queues"
	"github.com/pawlq/pawl/internal/task"
)

// putQueue writes the row of a queue.
func (w *world) putQueue(name string, moved uint64, limits task.Quotas, parts ...queues.Part) {
	w.T.Helper()
	s := task.DefaultSettings()
	s.MaxLength, s.MaxRunning = limits.Backlog, int(limits.Running)
	w.Put(system.Key(system.QueueTable, "default", name), system.EncodeRow(struct {
		Shard  uint32        `json:"shard"`
		Parts  []queues.Part `json:"parts"`
		Moved  uint64        `json:"moved"`
		Config []byte        `json:"config"`
	}{1, parts, moved, task.QueueConfig{Version: 7, Settings: s}.Encode()}))
}

// change runs a function in a round.
func (w *world) change(fn func(tx *store.Tx) error) {
	w.T.Helper()
	must(w.T, w.replica.Update(bg, fn))
}

// ofQueues describes the queues whose limits are divided: what each of their shards may use at most, and which of them drain.
func (w *world) ofQueues() (out string) {
	w.T.Helper()
	all, err := w.divider.divisions(bg)
	must(w.T, err)
	for _, d := range all {
		out += fmt.Sprintf("%s %d/%d:", d.name.Queue, d.quotas.Backlog, d.quotas.Running)
		for i := range d.parts {
			most := fmt.Sprint(d.parts[i].Most.Running)
			if d.parts[i].Most == task.Unlimited {
				most = "all"
			}
			out += fmt.Sprintf(" %d=%s", d.parts[i].Shard, most)
			if d.parts[i].drains {
				out += " drains"
			}
		}
		out += "; "
	}
	return out
}

// The limits of a queue are divided among its own shards, once it has limits and slots of it have moved. A shard that
// is new begins with nothing, the one that had the whole queue with all, and where nothing is known each may use all.
func TestDivisionsOfQueues(t *testing.T) {
	inBubble(t, 5, func(t *testing.T, w *world) {
		const half = task.SlotSet(1<<32 - 1)
		limits := task.Quotas{Backlog: 50, Running: 3}
		parts := []queues.Part{{Shard: 1, Slots: half, Next: half}, {Shard: 4, Slots: ^half, Next: ^half}, {Shard: 2, Left: half}}
		w.putQueue("a", 7, limits, parts...)
		w.putQueue("whole", 0, limits)
		w.putQueue("free", 7, task.Quotas{}, parts...)
		expect := func(when, want string) {
			t.Helper()
			if got := w.ofQueues(); got != want {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		divided := func(name string, whole uint32) {
			t.Helper()
			w.change(func(tx *store.Tx) error { Divided(tx, "default", name, 0, whole); return nil })
		}
		expect("before they are noted", "")
		divided("free", 0)
		divided("whole", 0)
		divided("gone", 1)
		expect("without limits, or in one shard, or deleted", "")
		divided("a", 0)
		expect("nothing is known", "a 50/3: 2=all drains 1=all 4=all; ")
		w.change(func(tx *store.Tx) error { ForgetQueue(tx, "default", "a"); return nil })
		expect("forgotten", "")
		divided("a", 1)
		divided("a", 0)
		expect("shard 1 had all", "a 50/3: 2=0 drains 1=all 4=0; ")
		w.Put(divisionKey(task.SpaceName{Namespace: "default", Queue: "a"}), system.EncodeRow(divisionRow{Parts: []divisionPart{
			{Shard: 4, Version: 2, Most: task.Amounts{Running: 2}}, {Shard: 5, Version: 2, Most: task.Amounts{Running: 1}}}}))
		expect("a part has gone, and others are new", "a 50/3: 2=0 drains 1=0 4=2; ")
		w.change(Reconcile)
		expect("after a recovery", "a 50/3: 2=all drains 1=all 4=all; ")
		if w.Get(divisionKey(task.SpaceName{Namespace: "default", Queue: "free"})) != nil {
			t.Error("after a recovery there is a row of a queue without limits")
		}
	})
}

// A row that begins anew allows shards as much as before, and any amount of what nobody knows, also a shard that it does not know yet.
// Earlier answers do not count.
func TestRenew(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		const half = task.SlotSet(1<<32 - 1)
		key := divisionKey(task.SpaceName{Namespace: "default", Queue: "a"})
		q := queues.Queue{Namespace: "default", Name: "a", Config: task.QueueConfig{Version: 9},
			Parts: []queues.Part{{Shard: 1, Next: half},
				{Shard: 2, Next: ^half}, {Shard: 3, Left: half}}}
		renew := func(unknown task.Quotas) divisionRow {
			w.change(func(tx *store.Tx) error { Renew(tx, q, unknown); return nil })
			row, _, err := system.GetRow[divisionRow](w.State, key)
			must(t, err)
			return row
		}
		running := task.Quotas{Running: 3}
		if renew(running); w.Get(key) != nil {
			t.Errorf("a queue that is not divided has the row %s", w.Get(key))
		}
		w.change(func(tx *store.Tx) error { Divided(tx, "default", "a", 7, 0); return nil })
		if row := renew(running); row.Parts != nil || row.Copy != 9 || row.Since == 0 {
			t.Errorf("a row that knows nothing became %+v", row)
		}
		known := task.Amounts{Backlog: 4, Bytes: task.NoLimit, Running: 2}
		was := divisionRow{Since: 5, Copy: 7, Parts: []divisionPart{{Shard: 1, Version: 6, Most: known, Sent: known},
			{Shard: 2, Version: 6, Most: known}}}
		w.Put(key, system.EncodeRow(was))
		if row := renew(task.Quotas{}); !slices.Equal(row.Parts, append(was.Parts, divisionPart{Shard: 3})) || row.Copy != 9 ||
			row.Since == was.Since {
			t.Errorf("a row became %+v, want the parts %+v of version 9", row, was.Parts)
		}
		row := renew(running)
		more, none := known, task.Amounts{Running: task.NoLimit}
		more.Running = task.NoLimit
		want := []divisionPart{{Shard: 1, Version: 6, Most: more, Sent: more}, {Shard: 2, Version: 6, Most: more, Sent: none},
			{Shard: 3, Most: none, Sent: none}}
		if !slices.Equal(row.Parts, want) || row.Copy != 9 || row.Since == was.Since {
			t.Errorf("the row became %+v, want the parts %+v of version 9", row, want)
		}
		w.Damage(key)
		damaged := w.Get(key)
		w.change(func(tx *store.Tx) error { Renew(tx, q, running); return nil })
		if !bytes.Equal(w.Get(key), damaged) {
			t.Error("a damaged row was replaced")
		}
	})
}

// Shards whose shares are in doubt keep what they have, or less, until all have confirmed theirs. One that uses more than its share gets no
// more of that than others leave.
func TestSharesInDoubt(t *testing.T) {
	for name, c := range map[string]struct {
		most, sent, share, want [2]int64
		to                      string
	}{
		"both are in doubt": {[2]int64{task.NoLimit, task.NoLimit}, [2]int64{task.NoLimit, task.NoLimit}, [2]int64{5, 1},
			[2]int64{2, 8}, "[2 1]"},
		"one is":                        {[2]int64{3, task.NoLimit}, [2]int64{0, task.NoLimit}, [2]int64{3, 1}, [2]int64{2, 8}, "[2 1]"},
		"the other may use more":        {[2]int64{task.NoLimit, 6}, [2]int64{task.NoLimit, 0}, [2]int64{3, 1}, [2]int64{5, 5}, "[3 1]"},
		"more is used than there is":    {[2]int64{6, 9}, [2]int64{0, 0}, [2]int64{0, 2}, [2]int64{5, 5}, "[1 4]"},
		"exactly as much":               {[2]int64{6, 4}, [2]int64{0, 0}, [2]int64{0, 2}, [2]int64{5, 5}, "[5 4]"},
		"it has been sent what is left": {[2]int64{task.NoLimit, 6}, [2]int64{0, 0}, [2]int64{0, 6}, [2]int64{5, 5}, "[4 5]"},
	} {
		d := &division{quotas: task.Quotas{Running: 10}}
		wants := make([]task.Amounts, 2)
		for i := range wants {
			p := shardPart{divisionPart: divisionPart{Most: task.Amounts{Running: c.most[i]}, Sent: task.Amounts{Running: c.sent[i]}},
				known: true}
			p.space.Share.Running = c.share[i]
			d.parts, wants[i] = append(d.parts, p), task.Amounts{Running: c.want[i]}
		}
		var got []int64
		for _, to := range d.safeShares(wants) {
			got = append(got, to.Running)
		}
		if fmt.Sprint(got) != c.to {
			t.Errorf("%s: safe shares are %v, want %s", name, got, c.to)
		}
	}
}

// A division is written only while the limits, the parts of the queue, and the row are those that it began with: what
// it would allow by others may have been given to another shard, or be more than the limits allow now.
func TestDivisionsFromBeforeAChange(t *testing.T) {
	const half = task.SlotSet(1<<32 - 1)
	name := task.SpaceName{Namespace: "default", Queue: "a"}
	parts := []queues.Part{{Shard: 1, Slots: half, Next: half}, {Shard: 2, Slots: ^half, Next: ^half}}
	for what, change := range map[string]func(w *world){
		"nothing":    func(*world) {},
		"the limits": func(w *world) { w.putQueue("a", 7, task.Quotas{Running: 1}, parts...) },
		"the move":   func(w *world) { w.putQueue("a", 8, task.Quotas{Running: 9}, parts...) },
		"no limits":  func(w *world) { w.putQueue("a", 7, task.Quotas{}, parts...) },
		"deleted": func(w *world) {
			w.change(func(tx *store.Tx) error { tx.Delete(system.Key(system.QueueTable, "default", "a")); return nil })
		},
		"the row": func(w *world) {
			w.Put(divisionKey(name), system.EncodeRow(divisionRow{Parts: []divisionPart{{Shard: 1, Version: 2,
				Most: task.Amounts{Running: 2}}}}))
		},
	} {
		inBubble(t, 3, func(t *testing.T, w *world) {
			w.putQueue("a", 7, task.Quotas{Running: 9}, parts...)
			w.Put(divisionKey(name), system.EncodeRow(divisionRow{}))
			var row []byte
			w.setOnAsk(func(context.Context, uint32) error {
				w.setOnAsk(nil)
				change(w)
				row = w.Get(divisionKey(name))
				return nil
			})
			err := w.divider.DivideQueue(bg, "default", "a")
			_, put := w.traffic()
			want := task.ErrUnavailable
			if what == "no limits" || what == "deleted" {
				want = task.ErrNotFound
			}
			if stale := what != "nothing"; stale && (!errors.Is(err, want) || len(put) > 0 || !bytes.Equal(w.Get(divisionKey(name)), row)) {
				t.Errorf("after a change of %s, a division from before ended with %v, sent shares to %v, and left the row %s", what, err,
					put, w.Get(divisionKey(name)))
			} else if !stale && (err != nil || len(put) == 0) {
				t.Errorf("without a change, a division ended with %v, and sent shares to %v", err, put)
			}
		})
	}
}

// A row that can't be read is reported.
func TestDamagedDivisionsOfQueues(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		key := divisionKey(task.SpaceName{Namespace: "default", Queue: "a"})
		w.putQueue("a", 7, task.Quotas{Running: 1}, queues.Part{Shard: 1, Slots: task.AllSlots, Next: task.AllSlots})
		w.change(func(tx *store.Tx) error { Divided(tx, "default", "a", 0, 0); return nil })
		for _, damaged := range [][]byte{key, system.Key(system.QueueTable, "default", "a")} {
			was := w.Get(damaged)
			w.Damage(damaged)
			if _, err := w.divider.divisions(bg); err == nil {
				t.Errorf("the damaged row %q was read", damaged)
			}
			if err := w.divider.DivideQueue(bg, "default", "a"); err == nil {
				t.Errorf("with the damaged row %q, limits were divided", damaged)
			}
			w.Put(damaged, was)
		}
		w.Damage(system.Key(system.QueueTable, "default", "a"))
		if err := w.replica.Update(bg, Reconcile); err == nil {
			t.Error("a damaged row was reconciled")
		}
	})
}

// While shards use more than a limit that was lowered, no other gets a share beside what they use.
func TestNothingBeginsBeyondALoweredLimit(t *testing.T) {
	for use, want := range map[[3]int64]string{{0, 2, 1}: "[0 1 1]", {0, 4, 1}: "[0 1 0]", {1, 1, 1}: "[1 1 1]", {0, 0, 0}: "[1 1 1]",
		{0, 3, 0}: "[0 1 0]"} {
		d := parting(3, [2]int64{use[0], 9}, [2]int64{use[1], 9}, [2]int64{use[2], 9})
		wants := make([]task.Amounts, 3)
		for i := range wants {
			wants[i] = task.Amounts{Backlog: task.NoLimit, Bytes: task.NoLimit, Running: 1}
			d.parts[i].Most = task.Unlimited
			d.parts[i].Most.Running = max(use[i], 5)
		}
		var got []int64
		for _, to := range d.safeShares(wants) {
			got = append(got, to.Running)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("shards that run %v of 3 are sent the shares %v, want %s", use, got, want)
		}
	}
}

// A queue is deleted, made again under its name, and spread from another shard. What was asked or divided of the first
// one does not count for the second.
func TestDivisionsOfAnEarlierQueue(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, w *world) {
		const half = task.SlotSet(1<<32 - 1)
		name := task.SpaceName{Namespace: "default", Queue: "a"}
		row := func() string { return string(w.Get(divisionKey(name))) }
		parts := []queues.Part{{Shard: 1, Slots: half, Next: half}, {Shard: 2, Slots: ^half, Next: ^half}}
		again := func(whole uint32) {
			w.change(func(tx *store.Tx) error {
				ForgetQueue(tx, "default", "a")
				Divided(tx, "default", "a", 0, whole)
				return nil
			})
		}
		w.putQueue("a", 7, task.Quotas{Running: 3}, parts...)
		for _, whole := range []uint32{0, 1} {
			again(whole)
			all, err := w.divider.divisions(bg)
			must(t, err)
			var asking asking
			w.divider.askAll(bg, &asking, all)
			to, err := w.divider.division(bg, name)
			must(t, err)
			if all[0].answers(bg, to); !to.parts[0].known || !to.parts[1].known {
				t.Errorf("shards of a queue that was in shard %d have answered, and do not count", whole)
			}
			again(whole)
			to, err = w.divider.division(bg, name)
			must(t, err)
			if all[0].answers(bg, to); to.parts[0].known || to.parts[1].known {
				t.Errorf("shards of a queue that was in shard %d have answered about an earlier one, which counts", whole)
			}
			for third, want := range map[uint32]string{0: `"parts":null`, 2: `"parts":[{"shard":2,"version":0`} {
				again(whole)
				w.setOnAsk(func(context.Context, uint32) error {
					w.setOnAsk(nil)
					again(third)
					return nil
				})
				err := w.divider.DivideQueue(bg, "default", "a")
				if got := row(); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(got, want) ||
					strings.Contains(got, `"shard":1`) {
					t.Errorf("a division of an earlier queue ended with %v, and left the row %s", err, got)
				}
			}
		}
	})
}

// A shard whose copy is of a later move takes no share, which is an error, and nobody counts on it.
func TestSharesFromBeforeAMove(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, w *world) {
		const half = task.SlotSet(1<<32 - 1)
		parts := []queues.Part{{Shard: 1, Slots: half, Next: half}, {Shard: 2, Slots: ^half, Next: ^half}}
		w.putQueue("a", 7, task.Quotas{Running: 3}, parts...)
		w.change(func(tx *store.Tx) error { Divided(tx, "default", "a", 0, 0); return nil })
		w.moved = 8
		if err := w.divider.DivideQueue(bg, "default", "a"); !errors.Is(err, task.ErrUnavailable) || !strings.Contains(err.Error(),
			"shard 1 did not take its share") {
			t.Errorf("a division from before a move: %v", err)
		}
		w.putQueue("a", 8, task.Quotas{Running: 3}, parts...)
		must(t, w.divider.DivideQueue(bg, "default", "a"))
	})
}

// A shard whose copy of a queue has no maximum length yet says that its share has none. It is sent no such share, which would be in force
// when it gets its copy.
func TestSharesOfAShardWithAnOlderCopy(t *testing.T) {
	for _, older := range []uint32{0, 2} {
		inBubble(t, 2, func(t *testing.T, w *world) {
			const half = task.SlotSet(1<<32 - 1)
			w.putQueue("a", 7, task.Quotas{Running: 4, Backlog: 10}, queues.Part{Shard: 1, Slots: half, Next: half},
				queues.Part{Shard: 2, Slots: ^half, Next: ^half})
			first, second := task.Amounts{Backlog: 5, Bytes: task.NoLimit, Running: 4}, task.Amounts{Backlog: 5, Bytes: task.NoLimit}
			w.Put(divisionKey(task.SpaceName{Namespace: "default", Queue: "a"}),
				system.EncodeRow(divisionRow{Parts: []divisionPart{{Shard: 1, Version: 1, Most: first},
					{Shard: 2, Version: 1, Most: second}}}))
			w.mu.Lock()
			*w.space(1, "default") = task.Space{Queues: 1, Copy: 7, Share: task.Share{Version: 1, Amounts: first}}
			*w.space(2, "default") = task.Space{Queues: 1, Copy: 7 - uint64(older)/2, Ready: 9,
				Share: task.Share{Version: 1, Amounts: second}}
			w.older = older
			w.mu.Unlock()
			must(t, w.divider.DivideQueue(bg, "default", "a"))
			if got := w.share(2, "default").Amounts; got.Backlog > 10 || older == 0 && got.Running == 0 {
				t.Errorf("a shard, whose copy has no maximum length: %t, was sent %+v", older != 0, got)
			}
		})
	}
}

// A shard's answer counts only if its copy of the queue is as new as the row, and only once it has confirmed a share of
// this row: it may get another copy or share that was sent before.
func TestAnswersFromBeforeTheRow(t *testing.T) {
	const half = task.SlotSet(1<<32 - 1)
	name := task.SpaceName{Namespace: "default", Queue: "a"}
	for what, shard2 := range map[string]task.Space{
		"an older copy":     {Copy: 6, Share: task.Share{Version: 1, Amounts: task.Amounts{Running: 1}}},
		"an unknown answer": {Copy: 7, Share: task.Share{Version: 1, Amounts: task.Amounts{Running: 1}}},
		"a current copy":    {Copy: 7, Share: task.Share{Version: 1, Amounts: task.Amounts{Running: 1}}},
	} {
		inBubble(t, 2, func(t *testing.T, w *world) {
			w.putQueue("a", 7, task.Quotas{Running: 4}, queues.Part{Shard: 1, Slots: half, Next: half},
				queues.Part{Shard: 2, Slots: ^half, Next: ^half})
			w.change(func(tx *store.Tx) error { Divided(tx, "default", "a", 7, 0); return nil })
			w.mu.Lock()
			*w.space(1, "default"), *w.space(2, "default") = task.Space{Copy: 7, Ready: 9}, shard2
			if what == "an unknown answer" {
				w.loses[2] = task.ErrUnavailable
			}
			w.mu.Unlock()
			err := w.divider.DivideQueue(bg, "default", "a")
			row, _, e := system.GetRow[divisionRow](w.State, divisionKey(name))
			must(t, e)
			if counts := what == "a current copy"; (err == nil) != counts || (row.Parts[1].Most.Running < 5) != counts || row.Copy != 7 {
				t.Errorf("with %s, the division ended with %v, and the row is %+v", what, err, row)
			}
			if got := w.share(1, "default").Running; what != "a current copy" && got > 4 {
				t.Errorf("with %s, the other shard may run %d", what, got)
			}
		})
	}
}
