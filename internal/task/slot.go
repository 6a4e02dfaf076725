package task

import (
	"hash/fnv"
	"math/bits"
)

// A queue's tasks are divided into slots, the units that move when a queue is spread over shards. Tasks that must meet are in the same
// slot: those of one key, of one unique key, repeats of one idempotency key, and repeats of one request.

// SlotCount is how many slots a queue has. It never changes: slots are stored.
const SlotCount = 64

// SlotSet is a set of slots.
type SlotSet uint64

// AllSlots is the set of all slots.
const AllSlots = ^SlotSet(0)

// Has reports whether a slot is in the set.
func (s SlotSet) Has(slot int) bool { return s>>slot&1 == 1 }

// Len returns the number of slots in the set.
func (s SlotSet) Len() int { return bits.OnesCount64(uint64(s)) }

// First returns a set of up to n of the slots.
func (s SlotSet) First(n int) (some SlotSet) {
	for ; n > 0 && s != 0; n-- {
		lowest := s & -s
		some, s = some|lowest, s&^lowest
	}
	return some
}

// Slot returns the slot of a task: the hash of its key, else of its unique key, else of its idempotency key, else of its request. ok
// is false if it has none of them, and may be in any slot.
func (s *Spec) Slot() (slot int, ok bool) {
	switch {
	case s.Key != "":
		return slotOf('k', []byte(s.Key)), true
	case s.Unique != nil:
		return slotOf('u', []byte(s.Unique.Key)), true
	case s.IdempotencyKey != "":
		return slotOf('i', []byte(s.IdempotencyKey)), true
	case s.RequestID != (ID{}):
		return slotOf('r', s.RequestID[:]), true
	}
	return 0, false
}

// OnceSlot returns the slot of a once key.
func OnceSlot(key string) int { return slotOf('o', []byte(key)) }

func slotOf(kind byte, name []byte) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte{kind})
	_, _ = h.Write(name)
	sum := h.Sum64()
	return int((sum ^ sum>>29 ^ sum>>47) % SlotCount) // below SlotCount; FNV's low bits alone are its worst
}
