package gateway

import (
	"context"
	"sync"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/gateway/callinfo"
	"github.com/pawlq/pawl/internal/registry"
	"github.com/pawlq/pawl/internal/task"
)

// quietState is whether a stream's worker is quiet by an operator's order.
type quietState struct {
	me *registry.Worker

	mu     sync.Mutex
	quiet  bool
	notice *pawlv1.QuietNotice // to be sent
	end    context.CancelFunc  // of the running claim; nil: there is none
}

// refresh takes over the operator's current order, and reports whether to send it to the worker, which knows the order
// of the given version.
func (h *quietState) refresh(knows uint64) (send bool) {
	q, _ := h.me.Quiet()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.quiet = q != nil; h.quiet && h.end != nil {
		h.end()
	}
	switch {
	case q == nil && knows == 0 || q != nil && q.Version == knows:
		return false
	case q == nil:
		h.notice = &pawlv1.QuietNotice{}
	default:
		h.notice = &pawlv1.QuietNotice{Quiet: true, Reason: q.Reason, Version: int64(q.Version)} // #nosec G115 -- an index of a log
	}
	return true
}

func (h *quietState) isQuiet() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quiet
}

// claiming returns a context for a claim that ends when the worker is quieted. Call done after the claim.
func (h *quietState) claiming(ctx context.Context) (_ context.Context, done func()) {
	ctx, cancel := context.WithCancel(ctx)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.end = cancel; h.quiet {
		cancel()
	}
	return ctx, func() {
		h.mu.Lock()
		h.end = nil
		h.mu.Unlock()
		cancel()
	}
}

// takeNotice returns what to send; nil: nothing.
func (h *quietState) takeNotice() *pawlv1.QuietNotice {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.notice
	h.notice = nil
	return n
}

// register adds the worker to the registry.
func (w *work) register(hello *pawlv1.WorkHello) {
	c := &w.claim
	w.quiet.me = w.g.registry.Join(registry.Hello{Namespace: w.ns, Name: c.Worker, Host: hello.GetHost(), PID: int(hello.GetPid()),
		Version: hello.GetVersion(), Address: callinfo.Address(w.stream.Context()), Queues: registryShares(c.Queues), Types: c.Types,
		Capacity: int(hello.GetSlots())}, hello.GetInstance(), versionOf(hello), w.onQuietChanged)
	if w.quiet.refresh(versionOf(hello)) {
		w.notifier.poke()
	}
}

// versionOf returns the version of the newest quiet order that a worker has received.
func versionOf(h *pawlv1.WorkHello) uint64 { return uint64(max(h.GetQuietVersion(), 0)) } // #nosec G115 -- not negative

// onQuietChanged is called when an operator's order to the worker has changed.
func (w *work) onQuietChanged() {
	if w.quiet.refresh(anyVersion) {
		w.notifier.poke()
	}
	select {
	case w.more <- struct{}{}: // there may be unused slots
	default:
	}
}

// anyVersion is the version of no order.
const anyVersion = 1 << 63

// maxInstance bounds the id that distinguishes workers of the same name.
const maxInstance = 64

func checkInstance(field, s string) error {
	if len(s) > maxInstance {
		return task.Invalid(field, "%d bytes, at most %d are allowed", len(s), maxInstance)
	}
	for _, c := range s {
		if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return task.Invalid(field, "%q has other characters than letters, digits, - and _", s)
		}
	}
	return nil
}
