package auth

import (
	"context"
	"crypto/subtle"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// staleAfter is how old a copy of the tokens may be: a token that was revoked meanwhile would still be good here. It outlasts
	// an election of the system shard, which takes a second or two.
	staleAfter = 10 * time.Second
	// lookEvery is how often calls that last are looked at.
	lookEvery = time.Second
)

// Mode says whether a door wants tokens.
type Mode int

// The modes.
const (
	AsCluster Mode = iota // as the cluster says
	Always
	Never
)

// Config is what a Door is made of.
type Config struct {
	Mode Mode
	// Admin is the hash of the token that may do everything by the node's own word, if there is one; nil: there is none. It needs no
	// copy of anything.
	Admin func() (Hash, bool)
	// Current says that the copy is as new as it can be at this moment, however long ago that was last heard; nil: nobody can say so.
	Current func() bool
}

// Door decides who may come in. Its methods may be called from any goroutine.
type Door struct {
	cfg   Config
	page  atomic.Pointer[page]
	heard atomic.Pointer[time.Time] // when the page was known to be what the system shard has

	failed [failures]atomic.Uint64
	source atomic.Pointer[string] // of the last of them

	mu     sync.Mutex // of the writers of page, too
	guests map[*guest]bool
	wake   chan struct{} // one place: there may be guests to look at
}

// page is a copy of the tokens. Its maps are never changed. Each decision reads the page once: what one page says of whether tokens
// are needed does not hold for the tokens of another.
type page struct {
	blank      bool // nothing was heard yet
	required   bool
	namespaces []string
	quotas     map[string]task.Quotas
	tokens     map[Hash]*Visitor
	signers    map[string]signer // by the ids of access keys
}

// Visitor is who makes a call. It is the same for all calls with a token, until that changes.
type Visitor struct {
	Name string // of the token; "": there is none
	Rights
	hash      Hash
	expiresAt time.Time // zero: never
	token     *Token
	admin     bool // by the node's own word

	used, told atomic.Int64 // minutes
	gone       atomic.Bool  // the token was revoked or changed
}

// Actor is what the record calls who acts; "": nobody knows. That of a token of all namespaces begins with a sign that no name has:
// whoever makes tokens in one namespace can't give one of them such a name, before or after.
func (v *Visitor) Actor() string {
	if v.Name == "" || v.Name == AdminName || !v.InAll() {
		return v.Name
	}
	return AllNamespaces + "/" + v.Name
}

// Anybody is who calls a door that wants no tokens.
var Anybody = &Visitor{Rights: Everything}

// NewDoor makes a door that has heard of no token yet.
func NewDoor(cfg Config) *Door {
	d := &Door{cfg: cfg, guests: map[*guest]bool{}, wake: make(chan struct{}, 1)}
	d.page.Store(&page{blank: true, namespaces: []string{DefaultNamespace}})
	return d
}

// On says whether calls need a token, or may: a door that goes by the cluster's word and has not heard it yet lets nobody in.
func (d *Door) On() bool { return d.on(d.page.Load()) }

func (d *Door) on(p *page) bool {
	return d.cfg.Mode == Always || d.cfg.Mode == AsCluster && (p.required || p.blank)
}

// CheckNamespace refuses a namespace that does not exist: not found. While the node's copy is too old to tell, it is unavailable.
func (d *Door) CheckNamespace(name string) error {
	switch {
	case slices.Contains(d.page.Load().namespaces, name):
		return nil
	case d.stale(time.Now()):
		return errNamespaceUnknown
	}
	return task.NotFound("namespace", name)
}

// Namespaces are all, in their order. The slice must not be changed.
func (d *Door) Namespaces() []string { return d.page.Load().namespaces }

// Quotas are those of a namespace, by this node's copy.
func (d *Door) Quotas(ns string) task.Quotas { return d.page.Load().quotas[ns] }

// Heard says that the copy was up to date at a time. What was heard then must have been handed to Replace before.
func (d *Door) Heard(at time.Time) { d.heard.Store(&at) }

// stale says whether the copy is too old to be trusted. The wall clock counts too: the other one stands still while a machine sleeps.
func (d *Door) stale(now time.Time) bool {
	heard := d.heard.Load()
	if heard != nil && d.cfg.Current != nil && d.cfg.Current() {
		return false
	}
	return heard == nil || max(now.Sub(*heard), now.Round(0).Sub(heard.Round(0))) > staleAfter
}

// Replace takes over a newer copy. When it returns, no call comes in by what the old one had and the new one has not, and calls that
// last have been told.
func (d *Door) Replace(a Access) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.page.Load()
	p := &page{required: a.Required, namespaces: slices.Clone(a.Namespaces), quotas: maps.Clone(a.Quotas), tokens: make(map[Hash]*Visitor, len(a.Tokens)), signers: map[string]signer{}}
	if !slices.Contains(p.namespaces, DefaultNamespace) {
		p.namespaces = append(p.namespaces, DefaultNamespace)
	}
	slices.Sort(p.namespaces)
	for i := range a.Tokens {
		t := &a.Tokens[i]
		p.add(old, t, t.Hash, t.ExpiresAt)
		if t.OldUntil != 0 {
			until := t.OldUntil
			if t.ExpiresAt != 0 {
				until = min(until, t.ExpiresAt)
			}
			p.add(old, t, t.OldHash, until)
		}
	}
	d.page.Store(p)
	for hash, v := range old.tokens {
		if p.tokens[hash] != v {
			v.gone.Store(true)
		}
	}
	d.look(time.Now())
	d.rouse()
}

// add keeps the visitor of a token that has not changed: calls that last know it.
func (p *page) add(old *page, t *Token, hash Hash, until store.Time) {
	v := old.tokens[hash]
	if v == nil || !v.token.same(t) {
		v = &Visitor{Name: t.Name, Rights: t.Rights, hash: hash, token: t}
		if until != 0 {
			v.expiresAt = until.Time()
		}
	}
	p.tokens[hash] = v
	if t.SQS {
		key := AccessKeyOf(hash)
		p.signers[key.ID] = signer{v, key.Secret}
	}
}

// Admit finds out who calls. Secret is what the call shows, "" for nothing.
//
// Errors: unauthenticated; unavailable while the node's copy of the tokens is too old.
func (d *Door) Admit(secret string) (*Visitor, error) {
	p := d.page.Load()
	if !d.on(p) {
		return Anybody, nil
	}
	now := time.Now()
	hash := HashOf(secret)
	if d.isAdmin(hash) {
		return &Visitor{Name: AdminName, Rights: Everything, hash: hash, admin: true}, nil
	}
	if d.cfg.Mode == AsCluster && p.blank {
		return nil, errUnheard
	}
	if secret == "" {
		return nil, d.refuse(FailedNone, "a token is needed: send one as \"Authorization: Bearer %s…\"", Prefix)
	}
	if err := CheckSecret(secret); err != nil {
		return nil, d.refuse(FailedForm, "what was sent is no token: %v", err)
	}
	if d.stale(now) {
		return nil, errStale
	}
	v := p.tokens[hash]
	if v == nil || subtle.ConstantTimeCompare(hash[:], v.hash[:]) != 1 {
		return nil, d.refuse(FailedUnknown, "the token is not known: it was revoked or replaced, or is another cluster's")
	}
	if v.expired(now) {
		return nil, d.refuse(FailedExpired, "token %q: it expired at %s", v.Name, v.expiresAt.UTC().Format(time.RFC3339))
	}
	v.Use(now)
	return v, nil
}

// Use notes that the visitor's token was used. Admit does so; a call that lasts does it again whenever the caller asks for something.
func (v *Visitor) Use(now time.Time) {
	if minute := now.Unix() / 60; v.used.Load() != minute {
		v.used.Store(minute)
	}
}

// isAdmin says whether a token is the one that the node itself was given.
func (d *Door) isAdmin(hash Hash) bool {
	if d.cfg.Admin == nil {
		return false
	}
	operator, ok := d.cfg.Admin()
	return ok && subtle.ConstantTimeCompare(hash[:], operator[:]) == 1
}

func (v *Visitor) expired(now time.Time) bool {
	return !v.expiresAt.IsZero() && !now.Before(v.expiresAt)
}

// Certificate is the name of the certificate by which the visitor was known; "": it showed a token, or none was wanted.
func (v *Visitor) Certificate() string {
	if v.token == nil {
		return ""
	}
	return v.token.Certificate
}

// ExpiresAt is when the visitor's token expires; zero: never.
func (v *Visitor) ExpiresAt() time.Time { return v.expiresAt }

var errStale = task.NotReady("this node has not heard for %s which tokens are good: it has no connection to the leader of the system shard", staleAfter)

var errNamespaceUnknown = task.NotReady("this node has not heard for %s which namespaces there are: it has no connection to the leader of the system shard", staleAfter)

var errUnheard = task.NotReady("this node has not heard from its cluster since it started, so it does not know yet whether calls need a token: most of the nodes must run")

// Failure is why a caller was not let in.
type Failure int

// The failures.
const (
	FailedNone    Failure = iota // no token was sent
	FailedForm                   // it is none
	FailedUnknown                // nobody has it
	FailedExpired
	FailedRights    // it is good, but not for that
	FailedSignature // made with its access key, and wrong
	failures
)

// FailureNames are the words for them.
var FailureNames = [failures]string{"none", "malformed", "unknown", "expired", "denied", "signature"}

func (d *Door) refuse(f Failure, format string, args ...any) error {
	d.failed[f].Add(1)
	return &task.Error{Code: task.CodeUnauthenticated, Message: fmt.Sprintf(format, args...)}
}

// Denied counts a caller who is known and may not do what it wants.
func (d *Door) Denied() { d.failed[FailedRights].Add(1) }

// From notes from where the caller came that was refused last.
func (d *Door) From(address string) { d.source.Store(&address) }

// Refused is how many callers were refused since the start, for each reason, and from where the last one came.
func (d *Door) Refused() (counts [failures]uint64, source string) {
	for f := range counts {
		counts[f] = d.failed[f].Load()
	}
	if at := d.source.Load(); at != nil {
		source = *at
	}
	return counts, source
}

// Failed is how many callers were refused for a reason, since the start.
func (d *Door) Failed(f Failure) uint64 { return d.failed[f].Load() }

// Uses are the tokens that were used since they were last told of, to the minute.
func (d *Door) Uses() (uses []Use, told func()) {
	type noted struct {
		v      *Visitor
		minute int64
	}
	var all []noted
	for _, v := range d.page.Load().tokens {
		if minute := v.used.Load(); minute > v.told.Load() {
			all = append(all, noted{v, minute})
			uses = append(uses, Use{Token: v.token.ID(), At: store.TimeOf(time.Unix(minute*60, 0))})
		}
	}
	return uses, func() {
		for _, n := range all {
			n.v.told.Store(n.minute)
		}
	}
}

// guest is a call that lasts.
type guest struct {
	v    *Visitor
	cert *Certificate // by which it came in; nil: by a token
	end  context.CancelCauseFunc
}

// ErrRevoked is the cause of the end of a call whose token is not good any more.
var ErrRevoked = &task.Error{Code: task.CodeUnauthenticated, Message: "the token was revoked or replaced, or it or the certificate has expired, while the call went on"}

// Stay gives the context of a call that lasts. It ends, with a refusal as its cause, when the visitor's token is revoked or has
// expired, or the certificate by which it came in (nil: by a token), and when this node can't tell any more. Leave must be called at the end.
func (d *Door) Stay(ctx context.Context, v *Visitor, c *Certificate) (_ context.Context, leave func()) {
	ctx, end := context.WithCancelCause(ctx)
	g := &guest{v, c, end}
	d.mu.Lock()
	d.guests[g] = true
	d.check(g, time.Now())
	d.mu.Unlock()
	d.rouse()
	return ctx, func() {
		d.mu.Lock()
		delete(d.guests, g)
		d.mu.Unlock()
		end(nil)
	}
}

// Watch looks at calls that last until ctx ends. It sleeps while there are none whose token could end.
func (d *Door) Watch(ctx context.Context) {
	timer := time.NewTimer(lookEvery)
	defer timer.Stop()
	for {
		if !d.hasGuests() {
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
			}
			continue
		}
		timer.Reset(lookEvery)
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			d.mu.Lock()
			d.look(now)
			d.mu.Unlock()
		}
	}
}

// hasGuests says whether calls last that are to be looked at.
func (d *Door) hasGuests() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.On() && len(d.guests) > 0
}

// rouse has Watch find out whether there are calls to look at.
func (d *Door) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// look ends the calls that may not go on. The caller holds mu.
func (d *Door) look(now time.Time) {
	for g := range d.guests {
		d.check(g, now)
	}
}

func (d *Door) check(g *guest, now time.Time) {
	switch {
	case !d.On():
	case g.v == Anybody: // tokens were not wanted when it came
		g.end(ErrRevoked)
	case g.v.admin:
		if !d.isAdmin(g.v.hash) {
			g.end(ErrRevoked)
		}
	case g.v.gone.Load() || g.v.expired(now) || g.cert != nil && g.cert.Good(now) != nil:
		g.end(ErrRevoked)
	case d.stale(now):
		g.end(errStale)
	}
}
