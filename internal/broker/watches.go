package broker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A holder of claims is notified by the round in which one of them is lost. That leaves three gaps: between the commit
// of a claim and the start of its watch, while another node leads the shard, and when a call that doesn't know of the
// watch settles the claim. All are closed in the same way: a claim that is still watched at the next check is read
// once, and again in each new term and after a round has ended it.

// ClaimWatch notifies a holder of claims when one of them ends without its doing, as long as this node leads their shards.
type ClaimWatch struct {
	b     *Broker
	lost  func(Lost)
	moved func([]Hold)

	mu     sync.Mutex
	held   map[claimKey]bool
	closed bool
}

// claimKey identifies a claim by its task, and by what tells it from other claims of that task.
type claimKey struct {
	id           task.ID
	fence, nonce uint64
}

func keyOf(id task.ID, t task.Token) claimKey { return claimKey{id, t.Fence, t.Nonce} }

// WatchClaims starts a watch without claims. It calls lost for a claim that is lost, or was lost before it was watched, and stops
// watching it; if it turns out that a verb of its holder ended it, the reason is task.StaleCompleted. It calls moved for claims of a shard
// that this node no longer leads, and stops watching them too. A claim that Remove was called for is in neither.
//
// Both are called with locks held, lost on a shard's loop: they must not block, nor call the watch.
func (b *Broker) WatchClaims(lost func(Lost), moved func([]Hold)) *ClaimWatch {
	return &ClaimWatch{b: b, lost: lost, moved: moved, held: map[claimKey]bool{}}
}

// Add watches a claim. It returns false if this node does not lead its shard, or the watch is closed.
func (w *ClaimWatch) Add(h Hold) bool {
	r, err := w.b.replica(h.ID.Shard())
	if err != nil || !r.shard.Leads() {
		return false
	}
	k := keyOf(h.ID, h.Token)
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return false
	}
	w.held[k] = true
	w.mu.Unlock()
	if !r.watches.add(w, h) {
		w.forget(k)
		return false
	}
	if !w.holds(k) { // it was removed, or the watch closed, just before the shard knew of it
		r.watches.remove(k, w)
	}
	return true
}

// Remove stops watching a claim. It returns false if it was not watched.
func (w *ClaimWatch) Remove(id task.ID, t task.Token) bool {
	k := keyOf(id, t)
	if !w.forget(k) {
		return false
	}
	if r, err := w.b.replica(id.Shard()); err == nil {
		r.watches.remove(k, w)
	}
	return true
}

// Close stops watching all claims, for good.
func (w *ClaimWatch) Close() {
	w.mu.Lock()
	held := w.held
	w.held, w.closed = map[claimKey]bool{}, true
	w.mu.Unlock()
	for k := range held {
		if r, err := w.b.replica(k.id.Shard()); err == nil {
			r.watches.remove(k, w)
		}
	}
}

func (w *ClaimWatch) holds(k claimKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[k]
}

func (w *ClaimWatch) forget(k claimKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := w.held[k]
	delete(w.held, k)
	return held
}

// handOver calls moved for a claim, unless it was removed. Whoever removes it at the same time finds it either here or
// where moved has put it.
func (w *ClaimWatch) handOver(k claimKey, h Hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.held[k] {
		delete(w.held, k)
		w.moved([]Hold{h})
	}
}

// watches maps the claims of a shard to the watches that they belong to.
type watches struct {
	wake chan struct{} // one place: there are claims to check

	mu      sync.Mutex
	closed  bool
	byClaim map[claimKey]*watched
	fresh   []claimKey // added, or ended by a round, since the last check
	term    uint64     // in which the others were read; 0: they must be read
}

// watched is a watch of a claim, in the list of all of its watches.
type watched struct {
	w    *ClaimWatch
	hold Hold
	next *watched
}

func (h *watches) add(w *ClaimWatch, c Hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if len(h.byClaim) == 0 {
		poke(h.wake)
	}
	k := keyOf(c.ID, c.Token)
	h.unlink(k, w) // it was added before
	h.byClaim[k] = &watched{w, c, h.byClaim[k]}
	h.fresh = append(h.fresh, k)
	return true
}

func (h *watches) remove(k claimKey, w *ClaimWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlink(k, w)
}

// unlink removes a watch from the list of a claim. The caller holds the lock.
func (h *watches) unlink(k claimKey, w *ClaimWatch) {
	first := h.byClaim[k]
	for at := &first; *at != nil; at = &(*at).next {
		if (*at).w == w {
			*at = (*at).next
			break
		}
	}
	if first == nil {
		delete(h.byClaim, k)
	} else {
		h.byClaim[k] = first
	}
}

// lost notifies the holders of claims that ended without their doing, or whose end was noticed late.
func (h *watches) lost(claimed []engine.Lost) {
	if len(claimed) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range claimed {
		k := keyOf(l.ID, l.Token)
		c := h.byClaim[k]
		delete(h.byClaim, k)
		for ; c != nil; c = c.next {
			if c.w.forget(k) {
				c.w.lost(l)
			}
		}
	}
}

// ended has the claims that a round ended read at the next check, if they are still watched then: whoever settled them may not know of all
// of their watches.
func (h *watches) ended(transitions []engine.Transition) {
	if len(transitions) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range transitions {
		if t := &transitions[i]; t.From != nil && t.From.State == task.Claimed {
			if k := (claimKey{t.ID, t.From.Fence, t.From.Claim.Nonce}); h.byClaim[k] != nil {
				h.fresh = append(h.fresh, k)
			}
		}
	}
}

// moveAll stops watching all claims, because another node leads the shard; forGood if the replica was removed.
func (h *watches) moveAll(forGood bool) {
	h.mu.Lock()
	all := h.byClaim
	h.byClaim, h.fresh, h.term = map[claimKey]*watched{}, nil, 0
	h.closed = h.closed || forGood
	h.mu.Unlock()
	for k, c := range all {
		for ; c != nil; c = c.next {
			c.w.handOver(k, c.hold)
		}
	}
}

// unread returns the claims that have to be read, and marks them as read.
func (h *watches) unread(term uint64) (claimed []Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	keys := h.fresh
	if h.term != term {
		h.term, keys = term, slices.Collect(maps.Keys(h.byClaim))
	}
	h.fresh = nil
	for _, k := range keys {
		if c := h.byClaim[k]; c != nil {
			claimed = append(claimed, c.hold)
		}
	}
	return claimed
}

// readAgain marks all claims as unread, after a read has failed.
func (h *watches) readAgain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.term = 0
}

func (h *watches) any() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.byClaim) > 0
}

const (
	// checkInterval is how often newly watched claims are read: a holder should be notified of a loss within a second.
	checkInterval = 250 * time.Millisecond
	// checkChunk bounds the tasks that are read from one snapshot.
	checkChunk = 500
)

// checkClaims checks the watched claims until ctx ends. It sleeps while there are none.
func (r *replica) checkClaims(ctx context.Context) {
	tick := time.NewTimer(checkInterval)
	defer tick.Stop()
	for {
		if !r.watches.any() {
			select {
			case <-r.watches.wake:
			case <-ctx.Done():
				return
			}
		}
		tick.Reset(checkInterval)
		select {
		case <-tick.C:
			r.checkWatched(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// checkWatched reads the claims not read yet, or stops watching all of them if another node leads.
func (r *replica) checkWatched(ctx context.Context) {
	if !r.shard.Leads() {
		r.watches.moveAll(false)
		return
	}
	_, term := r.shard.Leader()
	for claimed := range slices.Chunk(r.watches.unread(term), checkChunk) {
		ended, _, err := read(ctx, r, func(from store.Reader) ([]Lost, error) { return endedClaims(from, claimed), nil })
		if err != nil {
			r.watches.readAgain()
			return
		}
		r.watches.lost(ended)
	}
}

// endedClaims returns the claims that have ended, and why. It sorts claimed. Few have ended, so it reads all states first, and
// attempts only for those.
func endedClaims(from store.Reader, claimed []Hold) (ended []Lost) {
	slices.SortFunc(claimed, func(a, b Hold) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), a.ID.Compare(b.ID))
	})
	keys := make([][]byte, len(claimed))
	for i, c := range claimed {
		keys[i] = schema.IDKey(c.Namespace, schema.TableExec, c.ID)
	}
	execs := make([]*schema.Exec, len(claimed))
	from.GetEach(keys, func(i int, row []byte) {
		x := schema.Must(schema.DecodeExec(row))
		execs[i] = x
	})
	for i, c := range claimed {
		if x := execs[i]; x == nil {
			ended = append(ended, Lost{ID: c.ID, Token: c.Token, Reason: task.StaleExpired}) // the task has been deleted
		} else if !x.ClaimedWith(c.Token.Fence, c.Token.Nonce) {
			ended = append(ended, Lost{ID: c.ID, Token: c.Token, Reason: query.EndOfClaim(from, c.Namespace, c.ID, c.Token.Fence, x)})
		}
	}
	return ended
}
