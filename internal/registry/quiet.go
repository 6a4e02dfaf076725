package registry

import (
	"context"
	"time"
)

// QuietChange makes a worker quiet, or with nil lets it take tasks again.
type QuietChange struct {
	Namespace, ID string
	Quiet         *Quiet
}

// SetQuiet sets which workers are quiet: all of them, or those whose state has changed. version is how new the caller's
// knowledge is. It does not block.
func (r *Registry) SetQuiet(version uint64, all bool, words []QuietChange) {
	now := time.Now()
	r.mu.Lock()
	r.version = version
	if all {
		clear(r.quiet)
	}
	for _, word := range words {
		k := key{word.Namespace, word.ID}
		if word.Quiet == nil {
			delete(r.quiet, k)
		} else {
			r.quiet[k] = *word.Quiet
		}
	}
	tell := r.quietChanges(words, all, now)
	r.mu.Unlock()
	r.wakeRun()
	tell()
}

// sweep forgets workers that have gone, and quiet that has expired.
func (r *Registry) sweep() {
	now := time.Now()
	r.mu.Lock()
	r.sweepLocked(now)
	tell := r.quietChanges(nil, true, now)
	r.mu.Unlock()
	tell()
}

// Run sweeps, and finds out which workers are lost, until ctx is done. It sleeps while there is nothing that expires.
func (r *Registry) Run(ctx context.Context, to Links) {
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		if !r.hasTimed() {
			select {
			case <-ctx.Done():
				return
			case <-r.wake:
			}
			continue
		}
		timer.Reset(sweepEvery)
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			r.sweep()
			r.review(ctx, to)
		}
	}
}

// hasTimed reports whether anything is known that expires.
func (r *Registry) hasTimed() bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	r.heldMu.Lock()
	unclear := len(r.unclear) + len(r.toWatch) + len(r.expired)
	r.heldMu.Unlock()
	if unclear > 0 || r.claimers.size > 0 || len(r.quiet) > 0 || len(r.lost.byKey) > 0 || len(r.left) > 0 {
		return true
	}
	for _, w := range r.streams {
		w.mu.Lock()
		quiet := w.quiet != nil
		w.mu.Unlock()
		if quiet {
			return true
		}
	}
	return false
}

// wakeRun has Run check whether there is something to sweep.
func (r *Registry) wakeRun() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// sweepLocked forgets claimers that were not seen for long, and quiet that has expired.
func (r *Registry) sweepLocked(now time.Time) {
	if now.Sub(r.swept) < time.Second { // a caller that claims under a thousand names must not make each claim as expensive as this
		return
	}
	r.swept = now
	for by, w := range r.claimers.all() {
		w.mu.Lock()
		w.overdue(now)
		gone := w.calls == 0 && now.Sub(w.seen) > KeptFor && len(w.running) == 0
		w.mu.Unlock()
		if gone {
			r.claimers.remove(by)
		}
	}
	for k, q := range r.quiet {
		if !now.Before(q.Until) {
			delete(r.quiet, k)
		}
	}
}

// quietOf returns the order to be quiet that applies to a worker now; nil: none.
func (r *Registry) quietOf(k key, now time.Time) *Quiet {
	if q, ok := r.quiet[k]; ok && now.Before(q.Until) {
		return &q
	}
	return nil
}

// quietChanges finds the workers whose order has changed. The function that it returns sends them the new one, and must
// be called without the lock. A worker that connected with a Quiet unknown here keeps it until this node's knowledge is
// as new.
func (r *Registry) quietChanges(words []QuietChange, all bool, now time.Time) func() {
	var hear []func()
	consider := func(w *Worker, named bool) {
		w.mu.Lock()
		old := w.quiet
		w.mu.Unlock()
		word := r.quietOf(w.key, now)
		if word == nil && old == nil || word == nil && !named && old.Version > r.version && now.Before(old.Until) {
			return
		}
		if word == nil || old == nil || *word != *old {
			hear = append(hear, func() { w.setQuiet(word) })
		}
	}
	if all {
		for _, w := range r.streams {
			consider(w, false)
		}
	}
	for i := range words {
		if w := r.streams[key{words[i].Namespace, words[i].ID}]; w != nil {
			consider(w, true)
		}
	}
	if all || len(words) > 0 {
		for _, w := range r.claimers.all() {
			consider(w, false)
		}
	}
	return func() {
		for _, h := range hear {
			h()
		}
	}
}
