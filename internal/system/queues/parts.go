package queues

import (
	"cmp"
	"math/rand/v2"
	"slices"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// Part is the part that one shard has of a queue spread over several.
//
// A slot moves in two steps, each of which is in all shards' copies before the next: first its current shard stops taking the slot's tasks,
// then the other one starts. Existing tasks stay where they are. So do idempotency keys and request ids, which is why the old shard is
// asked before the new one: see Route.
type Part struct {
	Shard uint32       `json:"shard"`
	Slots task.SlotSet `json:"slots,omitempty"` // those whose new tasks it takes
	Next  task.SlotSet `json:"next,omitempty"`  // those whose new tasks it will take: another set while slots move
	// Left has the slots that went to other shards, the last of them at LeftAt; 0: before a restore, so the windows begin
	// when the leader sees it.
	Left   task.SlotSet `json:"left,omitempty"`
	LeftAt store.Time   `json:"left_at,omitempty"`
	// Recent is set while a request from before the move may be repeated, so that this shard is asked about all tasks of Left, not only
	// about messages and those with an idempotency or unique key.
	Recent bool `json:"recent,omitempty"`
	// LeftUntil is when the last idempotency key of Left expires, and the last once key as far as known. Unique keys have no such time: the
	// shard is asked whether it still has any of Left.
	LeftUntil store.Time `json:"left_until,omitempty"`
	// Retiring is since when the shard is about to drop its copy, as nothing is left there; 0: it is not. Using any part again clears it.
	Retiring store.Time `json:"retiring,omitempty"`
}

// Spread reports whether the queue is spread over shards by its slots. One that never was is in Shard.
func (q Queue) Spread() bool { return q.Parts != nil }

// Shards returns the shards that may have tasks of the queue. Those that all slots have left come first: their tasks are older.
func (q Queue) Shards() (shards []uint32) {
	if !q.Spread() {
		return []uint32{q.Shard}
	}
	for _, left := range []bool{true, false} {
		for _, p := range q.Parts {
			if (p.Next == 0) == left {
				shards = append(shards, p.Shard)
			}
		}
	}
	return shards
}

// ClaimOrder returns Shards in the order in which a claim asks them: first those that drain, then the others, starting at a random one.
func (q Queue) ClaimOrder() []uint32 {
	shards := q.Shards()
	drain := 0
	for drain < len(shards) && q.part(shards[drain]).Next == 0 {
		drain++
	}
	if n := len(shards) - drain; n > 1 {
		at := drain + rand.IntN(n)
		shards = slices.Concat(shards[:drain], shards[at:], shards[drain:at])
	}
	return shards
}

// Route returns the shards to ask, in this order, for a task of a slot: those that may know its idempotency or unique
// key, or its request id from before the slot moved, and the one that takes it. A message of another shard counts as
// keyed: it may be repeated for as long as a key.
func (q Queue) Route(slot int, keyed bool) (shards []uint32) {
	owner := q.Shard
	for _, p := range q.Parts {
		switch {
		case p.Next.Has(slot):
			owner = p.Shard
		case p.Left.Has(slot) && (keyed || p.Recent):
			shards = append(shards, p.Shard)
		}
	}
	return append(shards, owner)
}

// Keeps reports whether the queue can keep what the keys of a task in these slots promise. It can't if they are in different slots, and one
// shard knows, or will know, only some of them.
func (q Queue) Keeps(slots task.SlotSet) bool {
	if slots.Len() < 2 {
		return true
	}
	takers := 0
	for _, p := range q.Parts {
		if p.Next != 0 {
			takers++
		}
		if left := p.Left & slots; p.Next == 0 && left != 0 && left != slots {
			return false
		}
	}
	return takers < 2
}

// Knows returns the shards that know, or may know, a key of these slots.
func (q Queue) Knows(slots task.SlotSet) (shards []uint32) {
	for _, p := range q.Parts {
		if (p.Next|p.Left)&slots != 0 {
			shards = append(shards, p.Shard)
		}
	}
	return shards
}

// Home returns the shard that takes a task, by its slot. A task without a slot goes to any.
func (q Queue) Home(s *task.Spec) uint32 {
	if !q.Spread() {
		return q.Shard
	}
	slot, ok := s.Slot()
	if !ok {
		slot = rand.IntN(task.SlotCount)
	}
	return q.HomeOf(slot)
}

// HomeOf returns the shard that takes the tasks of a slot.
func (q Queue) HomeOf(slot int) uint32 {
	for i := range q.Parts {
		if q.Parts[i].Next.Has(slot) {
			return q.Parts[i].Shard
		}
	}
	return q.Shard
}

// In reports whether a shard has a part of the queue.
func (q Queue) In(shard uint32) bool {
	if !q.Spread() {
		return q.Shard == shard
	}
	return q.part(shard) != nil
}

// SlotsIn returns how many slots of the queue a shard takes, and how many it will take: another number while slots move.
func (q Queue) SlotsIn(shard uint32) (now, next int) {
	if p := q.part(shard); p != nil {
		return p.Slots.Len(), p.Next.Len()
	}
	if !q.Spread() && q.Shard == shard {
		return task.SlotCount, task.SlotCount
	}
	return 0, 0
}

func (q Queue) part(shard uint32) *Part {
	for i := range q.Parts {
		if q.Parts[i].Shard == shard {
			return &q.Parts[i]
		}
	}
	return nil
}

// copyFor returns the configuration for one shard's copy: with the slots that it does not take, those of which others
// may know keys, and its part of the rate.
func (q Queue) copyFor(shard uint32) task.QueueConfig {
	config := q.Config
	config.Moved, config.Divided = q.Moved, q.divided()
	if p := q.part(shard); p != nil {
		config.Closed = ^p.Slots
		for _, other := range q.Parts {
			if other.Shard != shard {
				config.Elsewhere |= other.Left
			}
		}
		config.Settings.Rate = config.Settings.Rate.BySlots(p.Slots.Len())
	}
	return config
}

// divided reports whether the shards have shares of the queue's limits, of which the first was spread from Shard.
func (q Queue) divided() bool { return q.Moved != 0 }

// Limits returns the limits that are divided among the queue's shards; the zero Quotas: none are.
func (q Queue) Limits() (limits task.Quotas) {
	if q.divided() {
		limits = q.Config.Settings.Limits()
	}
	return limits
}

// Drains reports whether a shard takes no new tasks of a queue that has others.
func (q Queue) Drains(shard uint32) bool {
	p := q.part(shard)
	return p != nil && p.Slots|p.Next == 0
}

// moving reports whether slots are moving.
func (q Queue) moving() bool {
	return slices.ContainsFunc(q.Parts, func(p Part) bool { return p.Slots != p.Next })
}

// unfinished reports whether the queue's parts need further work, now or later.
func (q Queue) unfinished() bool {
	return slices.ContainsFunc(q.Parts, func(p Part) bool { return p.Slots != p.Next || p.Next == 0 || p.Left != 0 })
}

// spreadOver starts moving the queue's slots to these shards, the same number to each, and as few as possible. It reports whether any
// moves.
func (q *Queue) spreadOver(shards []uint32, now store.Time) bool {
	if !q.Spread() {
		q.Parts = []Part{{Shard: q.Shard, Slots: task.AllSlots, Next: task.AllSlots}}
	}
	q.useAgain(false)
	for _, shard := range shards {
		if q.part(shard) == nil {
			q.Parts = append(q.Parts, Part{Shard: shard})
		}
	}
	shareOut(q.Parts, shards)
	moves := false
	for i := range q.Parts {
		p := &q.Parts[i]
		moves = moves || p.Next != p.Slots
		if lost := p.Slots &^ p.Next; lost != 0 {
			p.Left, p.LeftAt, p.Recent = p.Left|lost, now, true
		}
		p.Left &^= p.Next
		p.Slots &= p.Next
	}
	return moves
}

// useAgain has no part retire any more. If shards may have dropped their copies, no copy of this version takes a share from before.
func (q *Queue) useAgain(dropped bool) {
	q.Parts = slices.Clone(q.Parts)
	for i := range q.Parts {
		dropped = dropped || q.Parts[i].Retiring != 0
		q.Parts[i].Retiring = 0
	}
	if dropped && q.divided() {
		q.Moved = q.Config.Version
	}
}

// shareOut sets Next of all parts.
func shareOut(parts []Part, shards []uint32) {
	var takers []*Part
	for i := range parts {
		if slices.Contains(shards, parts[i].Shard) {
			takers = append(takers, &parts[i])
		}
	}
	// Those that have the most keep one more if the slots don't divide evenly.
	slices.SortStableFunc(takers, func(a, b *Part) int { return cmp.Compare(b.Slots.Len(), a.Slots.Len()) })
	free := task.AllSlots
	for i, p := range takers {
		p.Next = p.Slots.First(quota(i, len(takers)))
		free &^= p.Next
	}
	for i, p := range takers {
		more := free.First(quota(i, len(takers)) - p.Next.Len())
		p.Next |= more
		free &^= more
	}
	for i := range parts {
		if !slices.Contains(shards, parts[i].Shard) {
			parts[i].Next = 0
		}
	}
}

// quota returns how many slots the i-th of n parts gets.
func quota(i, n int) int {
	q := task.SlotCount / n
	if i < task.SlotCount%n {
		q++
	}
	return q
}
