package gateway

import (
	"context"
	"sync"

	"github.com/pawlq/pawl/internal/registry"

	pawlv1 "github.com/pawlq/pawl/api/pawl/v1"
	"github.com/pawlq/pawl/internal/task"
)

// hush is whether a stream's worker is to be quiet, by an operator's word.
type hush struct {
	me *registry.Worker

	mu     sync.Mutex
	quiet  bool
	notice *pawlv1.QuietNotice // to be sent
	end    context.CancelFunc  // of the claim that runs; nil: none does
}

// listen takes over the operator's word as it is now, and says whether there is something to tell the worker, who knows of a word of
// this version.
func (h *hush) listen(knows uint64) (tell bool) {
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

func (h *hush) is() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.quiet
}

// claiming is ctx for a claim that ends when the worker is to be quiet. Call done behind the claim.
func (h *hush) claiming(ctx context.Context) (_ context.Context, done func()) {
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

// untold is what is to be sent; nil: nothing.
func (h *hush) untold() *pawlv1.QuietNotice {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.notice
	h.notice = nil
	return n
}

// join enters the worker into the registry.
func (w *work) join(hello *pawlv1.WorkHello) {
	c := &w.claim
	w.hush.me = w.g.registry.Join(registry.Hello{Namespace: w.ns, Name: c.Worker, Host: hello.GetHost(), PID: int(hello.GetPid()), Version: hello.GetVersion(),
		Address: addressOf(w.stream.Context()), Queues: registryShares(c.Queues), Types: c.Types, Capacity: int(hello.GetSlots())}, hello.GetInstance(), versionOf(hello), w.heard)
	if w.hush.listen(versionOf(hello)) {
		w.notifier.poke()
	}
}

// versionOf is the newest word Quiet that a worker has heard.
func versionOf(h *pawlv1.WorkHello) uint64 { return uint64(max(h.GetQuietVersion(), 0)) } // #nosec G115 -- not negative

// heard is called when an operator's word to the worker has changed.
func (w *work) heard() {
	if w.hush.listen(anyVersion) {
		w.notifier.poke()
	}
	select {
	case w.more <- struct{}{}: // there may be slots that were not used
	default:
	}
}

// anyVersion is that of no word.
const anyVersion = 1 << 63

// maxInstance bounds what tells a worker from others of its name.
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
