package lanes

// ranking is a heap whose elements know their places in it, so that each can be moved or removed. Their sort keys are
// stored next to them: with a hundred thousand keys, looking them up in the elements would be most of the cost of a
// claim.
type ranking[T any] struct {
	items []ranked[T]
	order func(T) order
	place func(T) *int32 // of an element; -1: it is not in the heap
}

type ranked[T any] struct {
	order
	of T
}

// order is a sort key: a rank, and among equals a sequence number.
type order struct {
	rank  float64
	first uint64
}

func (o order) before(p order) bool { return o.rank < p.rank || o.rank == p.rank && o.first < p.first }

func (h *ranking[T]) Len() int { return len(h.items) }

// top returns the first element. There must be one.
func (h *ranking[T]) top() T { return h.items[0].of }

func (h *ranking[T]) add(t T) {
	h.items = append(h.items, ranked[T]{h.order(t), t})
	h.up(len(h.items) - 1)
}

func (h *ranking[T]) drop(t T) {
	at, last := int(*h.place(t)), len(h.items)-1
	moved := h.items[last]
	h.items[last] = ranked[T]{}
	h.items = h.items[:last]
	if at < last {
		h.items[at] = moved
		h.settle(at)
	}
	*h.place(t) = -1
}

// moved restores the order after an element changed.
func (h *ranking[T]) moved(t T) { h.movedAt(int(*h.place(t))) }

func (h *ranking[T]) movedAt(at int) {
	h.items[at].order = h.order(h.items[at].of)
	h.settle(at)
}

// settle moves an element to its place.
func (h *ranking[T]) settle(at int) {
	if !h.down(at) {
		h.up(at)
	}
}

func (h *ranking[T]) up(at int) {
	it := h.items[at]
	for at > 0 {
		above := (at - 1) / 2
		if !it.before(h.items[above].order) {
			break
		}
		h.put(at, h.items[above])
		at = above
	}
	h.put(at, it)
}

// down reports whether the element moved down.
func (h *ranking[T]) down(at int) bool {
	it, from := h.items[at], at
	for {
		child := 2*at + 1
		if child >= len(h.items) {
			break
		}
		if right := child + 1; right < len(h.items) && h.items[right].before(h.items[child].order) {
			child = right
		}
		if !h.items[child].before(it.order) {
			break
		}
		h.put(at, h.items[child])
		at = child
	}
	if at == from {
		return false
	}
	h.put(at, it)
	return true
}

func (h *ranking[T]) put(at int, it ranked[T]) {
	h.items[at] = it
	*h.place(it.of) = int32(at) // #nosec G115 -- memory has no room for more
}

// walk calls fn for the elements whose order satisfies ok, and skips the subtree of every element whose order does not.
func (h *ranking[T]) walk(ok func(order) bool, fn func(T)) {
	var look func(at int)
	look = func(at int) {
		if at < len(h.items) && ok(h.items[at].order) {
			fn(h.items[at].of)
			look(2*at + 1)
			look(2*at + 2)
		}
	}
	look(0)
}

// firsts calls fn for the first n elements, in order.
func (h *ranking[T]) firsts(n int, fn func(T)) {
	if len(h.items) == 0 {
		return
	}
	var nowhere int32
	next := ranking[int]{order: func(at int) order { return h.items[at].order }, place: func(int) *int32 { return &nowhere }}
	next.add(0)
	for ; n > 0 && next.Len() > 0; n-- {
		at := next.top()
		fn(h.items[at].of)
		next.dropTop()
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.items); child++ {
			next.add(child)
		}
	}
}

func (h *ranking[T]) dropTop() {
	last := len(h.items) - 1
	h.items[0] = h.items[last]
	h.items = h.items[:last]
	if last > 0 {
		h.down(0)
	}
}
