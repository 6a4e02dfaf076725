// Package trail records events that change nothing: who logged in, who was refused, and who read payloads. Each is one
// line of the process's log, and one record for a function that sends it elsewhere.
//
// It is apart from the audit log, which is replicated and kept: strangers can cause millions of refusals, and must not
// fill that, nor displace evidence in it. Here everything is bounded: the rate of each caller's events, and the queue
// of those that wait to be sent. What is left out is counted. It knows neither requests nor tokens.
package trail

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/pawlq/pawl/internal/task"
)

// Kind is a kind of event.
type Kind uint8

// The kinds.
const (
	Login   Kind = iota // somebody logged in to the web UI
	Refusal             // a caller was refused: its credential is wrong, or does not allow the call
	Read                // payloads, results or checkpoints of tasks were read
	kinds
)

// Names are the words for the kinds, as settings and metrics have them.
var Names = [kinds]string{"logins", "refusals", "reads"}

var texts = [kinds]string{"a visitor logged in", "a caller was refused", "payloads were read"}

// Usual returns the kinds that are recorded unless the settings say otherwise.
func Usual() []Kind { return []Kind{Login, Refusal} }

// ParseKinds parses the names of kinds.
func ParseKinds(names []string) ([]Kind, error) {
	all := make([]Kind, len(names))
	for i, name := range names {
		k := slices.Index(Names[:], strings.TrimSpace(name))
		if k < 0 {
			return nil, fmt.Errorf("%q is not one of %s", name, strings.Join(Names[:], ", "))
		}
		all[i] = Kind(k) // #nosec G115 -- one of a few
	}
	return all, nil
}

// Event is something that happened. Fields that are empty are left out. None may hold a secret or a payload.
type Event struct {
	Kind  Kind
	Actor string // as the audit log names the caller; "": it is not known
	// Token identifies the caller, whose events have a rate: the token's namespace, a slash, its name; a node has no namespace. "": nothing
	// does, and Actor is what the caller calls itself.
	Token     string
	Namespace string
	Interface task.Interface
	Address   string // of the client
	Method    string
	Object    string // the ids or names of what the call is about
	Queue     string
	Tasks     int // whose contents were read
	Outcome   string
	Reason    string
	Trace     string // the W3C trace context that the caller sent
}

// The rate of one caller's events of a kind; callers that are not known share one.
const (
	perSecond, atOnce           = 10, 100
	readsPerSecond, readsAtOnce = 100, 1000
	// maxCallers bounds the callers whose rates are tracked; the others share one with those of their namespace.
	maxCallers = 1000
	// forgetEvery is the pause between two searches for callers to forget, which take long.
	forgetEvery = time.Second
	// summaryAfter is when, at the latest, a line tells how many events were left out.
	summaryAfter = 10 * time.Second
)

// maxText bounds a text of an event, in bytes, and maxObject the ids of a read.
const (
	maxText   = 512
	maxObject = 4096
)

// Config configures a trail.
type Config struct {
	Kinds []Kind // that are recorded
	Log   *slog.Logger
	// Export sends records to where they are kept. It returns once they are there, except those that are rejected for good. After an error,
	// all are sent again. Nil: records are only logged.
	Export func(context.Context, []slog.Record) (rejected int, err error)
}

// Trail records events. Its methods may be called from any goroutine. A nil one records nothing.
type Trail struct {
	cfg               Config
	recorded, leftOut [kinds]atomic.Uint64
	queue             queue

	mu      sync.Mutex
	callers map[caller]*bucket
	forgot  time.Time // when callers were forgotten last
}

// caller is whose events of a kind have a rate.
type caller struct {
	kind  Kind
	token string
}

// bucket limits the events of a caller.
type bucket struct {
	*rate.Limiter
	actor   string // the caller, as its events name it; "": it is not known, or shares the rate with others
	leftOut int    // since the last record
	pending bool   // whether summarize will be called
}

// New returns a trail without events.
func New(cfg Config) *Trail {
	t := &Trail{cfg: cfg, callers: map[caller]*bucket{}}
	t.queue.init(cfg)
	return t
}

// Records reports whether events of a kind are recorded.
func (t *Trail) Records(k Kind) bool { return t != nil && slices.Contains(t.cfg.Kinds, k) }

// Record records an event, unless its kind is not recorded or its caller has had too many.
func (t *Trail) Record(e Event) {
	if !t.Records(e.Kind) {
		return
	}
	leftOut, ok := t.admit(&e)
	if !ok {
		t.leftOut[e.Kind].Add(1)
		return
	}
	t.recorded[e.Kind].Add(1)
	t.write(e.record(texts[e.Kind], leftOut), e.Token == "")
}

// admit reports whether an event may be recorded, and how many of its caller's were left out before it.
func (t *Trail) admit(e *Event) (leftOut int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	by := caller{e.Kind, e.Token}
	b := t.callers[by]
	if b == nil {
		if now := time.Now(); len(t.callers) >= maxCallers && now.Sub(t.forgot) >= forgetEvery {
			t.forgot = now
			t.forget()
		}
		if len(t.callers) >= maxCallers {
			if ns, _, known := strings.Cut(e.Token, "/"); known {
				by.token = ns + "/"
			}
			b = t.callers[by]
		}
	}
	if b == nil {
		b = &bucket{Limiter: rate.NewLimiter(perSecond, atOnce)}
		if e.Kind == Read {
			b.Limiter = rate.NewLimiter(readsPerSecond, readsAtOnce)
		}
		if e.Token != "" && by.token == e.Token {
			b.actor = e.Actor
		}
		t.callers[by] = b
	}
	if b.Allow() {
		leftOut, b.leftOut = b.leftOut, 0
		return leftOut, true
	}
	if b.leftOut++; !b.pending {
		b.pending = true
		time.AfterFunc(summaryAfter, func() { t.summarize(by, b) })
	}
	return 0, false
}

// forget makes room: it drops the callers whose next event has nothing to wait for.
func (t *Trail) forget() {
	for by, b := range t.callers {
		if b.Tokens() >= float64(b.Burst()) {
			delete(t.callers, by)
		}
	}
}

// summarize records how many events of a caller were left out, if none of its events has told since.
func (t *Trail) summarize(by caller, b *bucket) {
	t.mu.Lock()
	n := b.leftOut
	b.leftOut, b.pending = 0, false
	t.mu.Unlock()
	if n > 0 {
		e := Event{Kind: by.kind, Actor: b.actor, Token: by.token}
		if ns, _, _ := strings.Cut(by.token, "/"); ns != "*" { // of a token for all of them
			e.Namespace = ns
		}
		t.write(e.record("audit events were left out", n), by.token == "")
	}
}

// record returns the form of an event that is logged and sent.
func (e *Event) record(text string, leftOut int) slog.Record {
	level := slog.LevelInfo
	if e.Kind == Refusal {
		level = slog.LevelWarn
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(slog.String("event", Names[e.Kind]))
	add := func(name, value string) {
		if value != "" {
			r.AddAttrs(slog.String(name, task.Cut(value, maxText)))
		}
	}
	add("code", e.Outcome)
	add("reason", e.Reason)
	add("actor", e.Actor)
	if e.Token == "" && e.Actor != "" {
		r.AddAttrs(slog.Bool("unverified", true))
	}
	add("namespace", e.Namespace)
	add("interface", string(e.Interface))
	add("address", e.Address)
	add("method", e.Method)
	if e.Object != "" {
		r.AddAttrs(slog.String("object", task.Cut(e.Object, maxObject)))
	}
	add("queue", e.Queue)
	if e.Tasks > 0 {
		r.AddAttrs(slog.Int("tasks", e.Tasks))
	}
	add("traceparent", e.Trace)
	if leftOut > 0 {
		r.AddAttrs(slog.Int("left_out", leftOut))
	}
	return r
}

// write logs a record and queues it. Stranger: nobody known caused it.
func (t *Trail) write(r slog.Record, stranger bool) {
	if h := t.cfg.Log.Handler(); h.Enabled(context.Background(), r.Level) {
		_ = h.Handle(context.Background(), r) // a log that can't be written has nowhere to say so
	}
	t.queue.add(r, stranger)
}

// Counts are what happened to the events of a kind since the start.
type Counts struct{ Recorded, LeftOut uint64 }

// Counts returns the counts of the kinds that are recorded, by name.
func (t *Trail) Counts() map[string]Counts {
	all := map[string]Counts{}
	for k := range kinds {
		if t.Records(k) {
			all[Names[k]] = Counts{t.recorded[k].Load(), t.leftOut[k].Load()}
		}
	}
	return all
}

// Lost returns how many records were not exported, because too many were waiting or the collector rejected them.
func (t *Trail) Lost() uint64 { return t.queue.lost.Load() }

// Exports reports whether records are sent anywhere.
func (t *Trail) Exports() bool { return t != nil && t.cfg.Export != nil }

// Export sends other records, in their order, and returns once they are where they are kept. Those that are rejected for good, while others
// are accepted, count as lost; if none is, that is an error.
func (t *Trail) Export(ctx context.Context, records []slog.Record) error {
	var s sorting
	if err := s.send(ctx, &t.queue, records); err != nil {
		return err
	}
	t.queue.lost.Add(uint64(len(records) - s.accepted)) // #nosec G115 -- not negative
	return nil
}

// sorting finds out which records are rejected, by sending fewer and fewer of them.
type sorting struct{ sent, accepted int }

// maxRejected is how often records are sent if all are rejected: then it is not because of one of them.
const maxRejected = 20

var errRejected = errors.New("the collector rejects all records")

func (s *sorting) send(ctx context.Context, q *queue, records []slog.Record) error {
	rejected, err := q.sendOnce(ctx, records)
	s.sent, s.accepted = s.sent+1, s.accepted+len(records)-rejected
	switch half := len(records) / 2; {
	case err != nil:
		return err
	case s.accepted == 0 && (half == 0 || s.sent == maxRejected):
		return errRejected
	case rejected < len(records) || half == 0:
		return nil
	default:
		if err := s.send(ctx, q, records[:half]); err != nil && !(errors.Is(err, errRejected) && s.sent < maxRejected) {
			return err
		}
		return s.send(ctx, q, records[half:])
	}
}

// Run sends what is queued until ctx ends, and then what is left, for a short time.
func (t *Trail) Run(ctx context.Context) { t.queue.run(ctx) }
