package lanes

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
)

// Claims are shared out by weights, by smooth weighted round robin: among the priorities of a queue, and among the queues of a claim.
//
// The rule: a claim is shared out among the candidates that have a task for it. Each of them gains its weight, and the
// one with the most credit is chosen and pays the sum. A candidate that has nothing for the claim, or must not run,
// neither gains nor loses: it keeps its place in the turns. Claims for different types have separate credits. So
// whatever other workers take, among the claims for the same types each candidate gets its share of those for which it
// had a task, give or take two turns.
//
// One credit for all types would let workers starve each other's types: of a worker for type x and one for all, which
// claim in turns from two candidates of equal weight, the first would always get the one and the second the other.

// Credit is what each candidate is owed, in weights. The sum is 0.
type Credit []int

// Next returns the candidate whose turn it is; -1: none. The weight of a candidate that has nothing is 0.
func (c Credit) Next(weight func(i int) int) int {
	best, sum := -1, 0
	for i := range c {
		w := weight(i)
		if w == 0 {
			continue
		}
		c[i] += w
		sum += w
		if best < 0 || c[i] > c[best] {
			best = i
		}
	}
	if best >= 0 {
		c[best] -= sum
	}
	return best
}

// maxTypes is how many sets of types have credits of their own. A further one takes over the credit that was used the
// longest time ago: so all candidates make progress even if each claim is for other types.
const maxTypes = 16

// CreditsByTypes holds the credits of some candidates, by the types that the claims are for. The zero value is empty.
type CreditsByTypes struct {
	recent []typed // the last used first
}

type typed struct {
	types  uint64
	credit Credit
}

// Of returns the credit of claims for the types, of n candidates.
func (b *CreditsByTypes) Of(types []string, n int) Credit { return b.of(hashTypes(types), n) }

func (b *CreditsByTypes) of(types uint64, n int) Credit {
	at := slices.IndexFunc(b.recent, func(t typed) bool { return t.types == types })
	switch {
	case at >= 0:
	case len(b.recent) < maxTypes:
		b.recent = append(b.recent, typed{types, make(Credit, n)})
		at = len(b.recent) - 1
	default:
		at = maxTypes - 1
		b.recent[at].types = types
	}
	if at > 0 {
		t := b.recent[at]
		copy(b.recent[1:at+1], b.recent[:at])
		b.recent[0] = t
	}
	return b.recent[0].credit
}

// TurnBook holds the credits of many sets of weighted queues. The zero value is empty.
type TurnBook struct {
	sets map[setKey]*CreditsByTypes
	size int // how many numbers they hold
}

// maxSize bounds the memory of a Book: 8 MB. Beyond it all credits are forgotten, which costs each candidate less than two turns.
const maxSize = 1_000_000

type setKey struct {
	names uint64 // hashed: the names may be long
	n     int
}

// Of returns the credit of claims for the types from weighted queues of a namespace. All claims with the same weights and types share it.
func (b *TurnBook) Of(namespace string, n int, queue func(i int) (name string, weight int), types []string) Credit {
	key := setKey{hashQueues(namespace, n, queue), n}
	set := b.sets[key]
	if set == nil {
		if b.sets == nil || b.size >= maxSize {
			b.sets, b.size = map[setKey]*CreditsByTypes{}, 0
		}
		set = &CreditsByTypes{}
		b.sets[key] = set
	}
	known := len(set.recent)
	c := set.Of(types, n)
	b.size += (len(set.recent) - known) * n
	return c
}

var seed = maphash.MakeSeed()

func hashQueues(namespace string, n int, queue func(i int) (name string, weight int)) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(namespace)
	for i := range n {
		name, weight := queue(i)
		_ = h.WriteByte(0)
		_, _ = h.WriteString(name)
		_, _ = h.Write(binary.AppendUvarint([]byte{0}, uint64(max(weight, 0))))
	}
	return h.Sum64()
}

// hashTypes returns the same number for the same types in any order.
func hashTypes(types []string) (sum uint64) {
	for _, t := range types {
		sum += maphash.String(seed, t)
	}
	return sum
}
