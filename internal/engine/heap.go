package engine

import "container/heap"

// ranking is a heap whose elements know their places in it, so that each can be moved or taken out.
type ranking[T any] struct {
	items []T
	less  func(a, b T) bool
	place func(T) *int // of an element; -1: it is not there
}

func (h *ranking[T]) Len() int           { return len(h.items) }
func (h *ranking[T]) Less(i, j int) bool { return h.less(h.items[i], h.items[j]) }
func (h *ranking[T]) Swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	*h.place(h.items[i]), *h.place(h.items[j]) = i, j
}

func (h *ranking[T]) Push(x any) {
	t := x.(T)
	*h.place(t) = len(h.items)
	h.items = append(h.items, t)
}

func (h *ranking[T]) Pop() any {
	last := len(h.items) - 1
	t := h.items[last]
	var none T
	h.items[last] = none
	h.items = h.items[:last]
	*h.place(t) = -1
	return t
}

func (h *ranking[T]) add(t T)  { heap.Push(h, t) }
func (h *ranking[T]) drop(t T) { heap.Remove(h, *h.place(t)) }

// firsts calls fn for the n first elements, in order.
func (h *ranking[T]) firsts(n int, fn func(T)) {
	if len(h.items) == 0 {
		return
	}
	next := ranking[int]{items: []int{0}, less: func(a, b int) bool { return h.Less(a, b) }, place: func(int) *int { return new(int) }}
	for ; n > 0 && len(next.items) > 0; n-- {
		at := next.items[0]
		fn(h.items[at])
		heap.Pop(&next)
		for child := 2*at + 1; child <= 2*at+2 && child < len(h.items); child++ {
			heap.Push(&next, child)
		}
	}
}

// moved restores the order after an element changed.
func (h *ranking[T]) moved(t T) {
	if len(h.items) > 1 {
		heap.Fix(h, *h.place(t))
	}
}
