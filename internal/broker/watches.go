package broker

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A holder of claims is notified by the round in which one of them is lost. That leaves two gaps: between the commit of a claim
// and the start of its watch, and while another node leads the shard. Both are closed in the same way: a claim that is still
// watched at the next check is read once, and once more in each new term. Most claims have been settled by then.

// ClaimWatch notifies a holder of claims when one of them ends without its doing, as long as this node leads their shards.
type ClaimWatch struct {
	b     *Broker
	lost  func(Lost)
	moved func([]Hold)

	mu   sync.Mutex
	held map[task.ID]task.Token
}

// WatchClaims starts a watch without claims. It calls lost for a claim that is lost, or was lost before it was watched, and stops
// watching it; if it turns out that a verb of its holder ended it, the reason is task.StaleCompleted. It calls moved for claims of a shard
// that this node no longer leads, and stops watching them too.
//
// lost is called on a shard's loop, with locks held: it must not block, nor call the watch. moved must not block.
func (b *Broker) WatchClaims(lost func(Lost), moved func([]Hold)) *ClaimWatch {
	return &ClaimWatch{b: b, lost: lost, moved: moved, held: map[task.ID]task.Token{}}
}

// Add watches a claim. It returns false if this node does not lead its shard.
func (w *ClaimWatch) Add(h Hold) bool {
	r, err := w.b.replica(h.ID.Shard())
	if err != nil {
		return false
	}
	if !r.shard.Leads() {
		return false
	}
	w.mu.Lock()
	w.held[h.ID] = h.Token
	w.mu.Unlock()
	if r.watches.add(w, h) {
		return true
	}
	w.forget(h.ID, h.Token)
	return false
}

// Remove stops watching a claim. It returns false if it was not watched.
func (w *ClaimWatch) Remove(id task.ID, t task.Token) bool {
	if !w.forget(id, t) {
		return false
	}
	if r, err := w.b.replica(id.Shard()); err == nil {
		r.watches.remove(id, w)
	}
	return true
}

// Close stops watching all claims.
func (w *ClaimWatch) Close() {
	w.mu.Lock()
	held := w.held
	w.held = map[task.ID]task.Token{}
	w.mu.Unlock()
	for id := range held {
		if r, err := w.b.replica(id.Shard()); err == nil {
			r.watches.remove(id, w)
		}
	}
}

func (w *ClaimWatch) forget(id task.ID, t task.Token) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	held, ok := w.held[id]
	if !ok || held != t {
		return false
	}
	delete(w.held, id)
	return true
}

// watches maps the claims of a shard to the watches that they belong to.
type watches struct {
	wake chan struct{} // one place: there are claims to check

	mu     sync.Mutex
	closed bool
	byTask map[task.ID]watched
	fresh  []task.ID // added since the last check
	term   uint64    // in which the others were read; 0: they must be read
}

type watched struct {
	w     *ClaimWatch
	ns    string
	token task.Token
}

func (h *watches) add(w *ClaimWatch, c Hold) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	if h.byTask == nil {
		h.byTask = map[task.ID]watched{}
	}
	if len(h.byTask) == 0 {
		poke(h.wake)
	}
	h.byTask[c.ID] = watched{w, c.Namespace, c.Token}
	h.fresh = append(h.fresh, c.ID)
	return true
}

func (h *watches) remove(id task.ID, w *ClaimWatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.byTask[id].w == w {
		delete(h.byTask, id)
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
		// Ignore earlier or later claims of the same task.
		if c, ok := h.byTask[l.ID]; ok && c.token == l.Token {
			delete(h.byTask, l.ID)
			if c.w.forget(l.ID, l.Token) {
				c.w.lost(l)
			}
		}
	}
}

// moveAll stops watching all claims, because another node leads the shard; forGood if the replica was removed.
func (h *watches) moveAll(forGood bool) {
	h.mu.Lock()
	all := h.byTask
	h.byTask, h.fresh, h.term = nil, nil, 0
	h.closed = h.closed || forGood
	h.mu.Unlock()
	moved := map[*ClaimWatch][]Hold{}
	for id, c := range all {
		if c.w.forget(id, c.token) {
			moved[c.w] = append(moved[c.w], Hold{Namespace: c.ns, ID: id, Token: c.token})
		}
	}
	for w, claimed := range moved {
		w.moved(claimed)
	}
}

// unread returns the claims that have not been read in this term yet, and marks them as read.
func (h *watches) unread(term uint64) (claimed []Hold) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := h.fresh
	if h.term != term {
		h.term, ids = term, nil
		for id := range h.byTask {
			ids = append(ids, id)
		}
	}
	h.fresh = nil
	for _, id := range ids {
		if c, ok := h.byTask[id]; ok {
			claimed = append(claimed, Hold{Namespace: c.ns, ID: id, Token: c.token})
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
	return len(h.byTask) > 0
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
			ended = append(ended, Lost{ID: c.ID, Token: c.Token, Reason: endOf(from, c, x)})
		}
	}
	return ended
}

// endOf returns the reason why a claim has ended.
func endOf(from store.Reader, c Hold, x *schema.Exec) string {
	attempts := schema.ReadAttempts(from, c.Namespace, c.ID)
	if x.State == task.Succeeded {
		attempts = append(attempts, x.Success())
	}
	for _, a := range attempts {
		if a.Fence == c.Token.Fence {
			return staleReason(a.Outcome)
		}
	}
	return task.StaleExpired
}

// staleReason maps the outcome of an attempt to the reason that its holder gets.
func staleReason(o task.Outcome) string {
	switch o {
	case task.OutcomeCancelled:
		return task.StaleCancelled
	case task.OutcomeLeaseLost, task.OutcomeTimedOut, task.OutcomeLeaderless:
		return task.StaleExpired
	}
	return task.StaleCompleted
}
