package task

import (
	"fmt"
	"hash/fnv"
	"math/bits"
	"strings"
)

// A queue's tasks are divided into slots, the units that move when a queue is spread over shards. Tasks that must meet
// are in the same slot: those of one key, of one unique key, with one idempotency key, and repeats of one request. So
// while a queue is in several shards, all keys of a task must be in one slot.

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
func (s SlotSet) First(n int) (first SlotSet) {
	for ; n > 0 && s != 0; n-- {
		lowest := s & -s
		first, s = first|lowest, s&^lowest
	}
	return first
}

// KeySlot returns the slot of a key, unique key or idempotency key: the hash of the text between its first braces, as
// in Redis Cluster, or of the whole key if it has none.
func KeySlot(key string) int { return slotOf('k', []byte(slotTag(key))) }

// slotTag returns the part of a key that determines its slot.
func slotTag(key string) string {
	if _, after, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(after, "}"); ok && tag != "" {
			return tag
		}
	}
	return key
}

// Beside returns a key that is in the same slot as another. It has the same text in braces, or, if that has a brace
// itself or would be too long, a number of the slot.
func Beside(key, name string) string {
	beside := "{" + slotTag(key) + "}" + name
	fits := len(beside) <= DefaultLimits().Name
	for n := 0; !fits || KeySlot(beside) != KeySlot(key); n++ {
		beside, fits = fmt.Sprintf("{%d}%s", n, name), true
	}
	return beside
}

// Slot returns the slot of a task: that of its key, else of its unique key, else of its idempotency key, else the hash
// of its request. ok is false if it has none of them, and may be in any slot.
//
// A task that was moved from another queue has been accepted, and must not be refused because its keys are in different
// slots: it goes to the slot of its unique key.
func (s *Spec) Slot() (slot int, ok bool) {
	switch {
	case s.followsUnique():
		return KeySlot(s.Unique.Key), true
	case s.Key != "":
		return KeySlot(s.Key), true
	case s.Unique != nil:
		return KeySlot(s.Unique.Key), true
	case s.IdempotencyKey != "":
		return KeySlot(s.IdempotencyKey), true
	case s.RequestID != (ID{}):
		return slotOf('r', s.RequestID[:]), true
	}
	return 0, false
}

// Slots returns the slots of a task's keys, or that of its request if it has no key. In a queue that is in several shards, only tasks with
// one slot keep what each of their keys promises: see CheckSlots.
func (s *Spec) Slots() (slots SlotSet) {
	if s.Key != "" && !s.followsUnique() {
		slots.add(KeySlot(s.Key))
	}
	if s.Unique != nil {
		slots.add(KeySlot(s.Unique.Key))
	}
	if s.IdempotencyKey != "" {
		slots.add(KeySlot(s.IdempotencyKey))
	}
	if slots == 0 && s.RequestID != (ID{}) {
		slots.add(slotOf('r', s.RequestID[:]))
	}
	return slots
}

func (s *Spec) followsUnique() bool { return s.Moved != nil && s.Unique != nil }

func (s *SlotSet) add(slot int) { *s |= 1 << slot }

// CheckSlots refuses a task whose keys are in different slots.
func (s *Spec) CheckSlots() error {
	type key struct{ field, value string }
	var keys []key
	if s.Key != "" {
		keys = append(keys, key{"key", s.Key})
	}
	if s.Unique != nil {
		keys = append(keys, key{"unique.key", s.Unique.Key})
	}
	if s.IdempotencyKey != "" {
		keys = append(keys, key{"idempotency_key", s.IdempotencyKey})
	}
	for _, k := range keys {
		if first := keys[0]; KeySlot(k.value) != KeySlot(first.value) {
			return Invalid(k.field, "%q is not in the slot of %s %q, as a queue in several shards requires: "+
				"make them equal, or give both the same text in braces, such as %q",
				clip(k.value), first.field, clip(first.value), clip(Beside(first.value, k.value)))
		}
	}
	return nil
}

// Closes reports whether a shard with this copy takes no new task like this, because its slot is closed. A task that
// fits any slot is refused only if all are closed, one whose keys are in several slots if any is closed.
func (c *QueueConfig) Closes(s *Spec) bool {
	if c.Closed == 0 || c.Closed == AllSlots {
		return c.Closed != 0
	}
	slots := s.Slots()
	return slots&c.Closed != 0 || slots.Len() > 1
}

// MayBeElsewhere reports whether, by a shard's copy, other shards may know the unique key, the idempotency key or the request of a task.
func (c *QueueConfig) MayBeElsewhere(s *Spec) bool {
	others := c.Closed | c.Elsewhere
	return others != 0 && (s.Unique != nil || s.IdempotencyKey != "" || s.RequestID != ID{}) && s.Slots()&others != 0
}

// KeyMayBeElsewhere reports whether, by a shard's copy, other shards may know a key.
func (c *QueueConfig) KeyMayBeElsewhere(key string) bool {
	return (c.Closed | c.Elsewhere).Has(KeySlot(key))
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
