package auth

import (
	"context"
	"crypto/subtle"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/auth/bearer"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// staleAfter is the maximum age of a copy of the tokens: until it is refreshed, a token that has since been revoked is still
	// good here. It outlasts an election of the system shard, which takes a second or two.
	staleAfter = 10 * time.Second
	// checkInterval is how often long calls are checked.
	checkInterval = time.Second
)

// Mode is whether calls need a token.
type Mode int

// The modes.
const (
	AsCluster Mode = iota // if the cluster's settings say so
	Always
	Never
)

// Config holds the settings of an Authenticator.
type Config struct {
	Mode Mode
	// Admin returns the hash of the node's own admin token, which may do everything and needs no copy of the tokens, if there is
	// one; nil: there is none.
	Admin func() (Hash, bool)
	// Current reports whether the copy is as new as it can be right now, however long ago it was last confirmed; nil: never.
	Current func() bool
}

// Authenticator decides who is admitted. Its methods may be called from any goroutine.
type Authenticator struct {
	cfg       Config
	tokens    atomic.Pointer[snapshot]
	refreshed atomic.Pointer[time.Time] // when the copy was last known to match the system shard's

	failed [failures]atomic.Uint64
	source atomic.Pointer[string] // of the last of them

	mu        sync.Mutex // also serializes writers of tokens
	longCalls map[*longCall]bool
	wake      chan struct{} // capacity 1: there may be long calls to check
}

// snapshot is a copy of the tokens. Its maps are never modified. Each decision loads it once: whether tokens are required and
// which tokens exist must come from the same copy.
type snapshot struct {
	unloaded   bool // nothing was received yet
	required   bool
	namespaces []string
	began      map[string]store.Time
	since      map[string]uint64
	quotas     map[string]task.Quotas
	tokens     map[Hash]*Principal
	signers    map[string]signer // by access key ID
	sessions   map[SessionID]*Principal
	ended      map[SessionID]*EndedSessions
}

// Principal is the identity of a caller. All calls with the same token share one, until the token changes.
type Principal struct {
	Name string // of the token; "": no token
	Rights
	hash      Hash
	expiresAt time.Time // zero: never
	token     *Token
	admin     bool // the node's own admin token

	used, reported atomic.Int64 // minutes
	gone           atomic.Bool  // the token was revoked or changed
}

// Actor returns how the audit log names the caller; "": unknown. For a token of all namespaces the name begins with a character
// that no name may contain, so that nobody who creates tokens in a single namespace can give one of them the same name.
func (v *Principal) Actor() string {
	if v.Name == "" || v.Name == AdminName || !v.InAll() {
		return v.Name
	}
	return AllNamespaces + "/" + v.Name
}

// Anonymous is the caller when no token is required.
var Anonymous = &Principal{Rights: Everything}

// NewAuthenticator returns an Authenticator that has received no tokens yet.
func NewAuthenticator(cfg Config) *Authenticator {
	d := &Authenticator{cfg: cfg, longCalls: map[*longCall]bool{}, wake: make(chan struct{}, 1)}
	d.tokens.Store(&snapshot{unloaded: true, namespaces: []string{DefaultNamespace}})
	return d
}

// TokensRequired reports whether calls need a token, or may need one: in mode AsCluster nobody is admitted before the
// first copy has arrived.
func (d *Authenticator) TokensRequired() bool { return d.required(d.tokens.Load()) }

func (d *Authenticator) required(p *snapshot) bool {
	return d.cfg.Mode == Always || d.cfg.Mode == AsCluster && (p.required || p.unloaded)
}

// CheckNamespace returns a not-found error for a namespace that does not exist, and an unavailable error while the node's copy is
// too old to tell.
func (d *Authenticator) CheckNamespace(name string) error {
	switch {
	case slices.Contains(d.tokens.Load().namespaces, name):
		return nil
	case d.stale(time.Now()):
		return errNamespaceUnknown
	}
	return task.NotFound("namespace", name)
}

// Namespaces returns all namespaces, in order. The slice must not be modified.
func (d *Authenticator) Namespaces() []string { return d.tokens.Load().namespaces }

// Began returns when a namespace was added, and an unavailable error while the node's copy is too old to tell. The default one has always
// existed.
func (d *Authenticator) Began(ns string) (time.Time, error) {
	p := d.tokens.Load()
	if ns != DefaultNamespace && (p.unloaded || d.stale(time.Now())) {
		return time.Time{}, errNamespaceUnknown
	}
	return p.began[ns].Time(), nil
}

// BeganByCopy returns when a namespace was added according to this node's copy, however old. Zero: always, or not known.
func (d *Authenticator) BeganByCopy(ns string) time.Time { return d.tokens.Load().began[ns].Time() }

// Since returns the version since which a namespace exists, according to this node's copy. A call that was admitted is of that namespace,
// or a later one.
func (d *Authenticator) Since(ns string) uint64 { return d.tokens.Load().since[ns] }

// Quotas returns a namespace's quotas according to this node's copy.
func (d *Authenticator) Quotas(ns string) task.Quotas { return d.tokens.Load().quotas[ns] }

// Refreshed records that the copy was up to date at a time. What was received then must already have been passed to Replace.
func (d *Authenticator) Refreshed(at time.Time) { d.refreshed.Store(&at) }

// stale reports whether the copy is too old to be trusted. It checks the wall clock too, because the monotonic clock stops while a
// machine sleeps.
func (d *Authenticator) stale(now time.Time) bool {
	refreshed := d.refreshed.Load()
	if refreshed != nil && d.cfg.Current != nil && d.cfg.Current() {
		return false
	}
	return refreshed == nil || max(now.Sub(*refreshed), now.Round(0).Sub(refreshed.Round(0))) > staleAfter
}

// Replace installs a newer copy. When it returns, nobody is admitted by a token that only the old copy had, and long calls with
// such a token have been cancelled.
func (d *Authenticator) Replace(a Access) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.tokens.Load()
	p := &snapshot{required: a.Required, namespaces: slices.Clone(a.Namespaces), began: maps.Clone(a.Began),
		since: maps.Clone(a.Since), quotas: maps.Clone(a.Quotas),
		tokens: make(map[Hash]*Principal, len(a.Tokens)), signers: map[string]signer{},
		sessions: map[SessionID]*Principal{}, ended: map[SessionID]*EndedSessions{}}
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
	for i := range a.Ended {
		p.ended[a.Ended[i].Key] = &a.Ended[i]
	}
	d.tokens.Store(p)
	for hash, v := range old.tokens {
		if p.tokens[hash] != v {
			v.gone.Store(true)
		}
	}
	d.checkAll(time.Now())
	d.wakeWatch()
}

// add keeps the Principal of a token that has not changed: long calls refer to it.
func (p *snapshot) add(old *snapshot, t *Token, hash Hash, until store.Time) {
	v := old.tokens[hash]
	if v == nil || !v.token.same(t) {
		v = &Principal{Name: t.Name, Rights: t.Rights, hash: hash, token: t}
		if until != 0 {
			v.expiresAt = until.Time()
		}
	}
	p.tokens[hash] = v
	if t.Certificate == "" { // the hash of a certificate's name can be guessed
		p.sessions[SessionKeyOf(hash).ID] = v
	}
	if t.SQS {
		key := AccessKeyOf(hash)
		p.signers[key.ID] = signer{v, key.Secret}
	}
}

// Admit identifies the caller. Secret is the token that the request carries, "" if none.
//
// Errors: unauthenticated; unavailable while the node's copy of the tokens is too old.
func (d *Authenticator) Admit(secret string) (*Principal, error) {
	p := d.tokens.Load()
	if !d.required(p) {
		return Anonymous, nil
	}
	now := time.Now()
	hash := HashOf(secret)
	if d.isAdmin(hash) {
		return &Principal{Name: AdminName, Rights: Everything, hash: hash, admin: true}, nil
	}
	if d.cfg.Mode == AsCluster && p.unloaded {
		return nil, errNotLoaded
	}
	if secret == "" {
		return nil, d.refuse(FailedNone, "a token is required: send one as \"Authorization: Bearer %s…\"", bearer.Prefix)
	}
	if err := bearer.Check(secret); err != nil {
		return nil, d.refuse(FailedForm, "malformed token: %v", err)
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

// Use records that the principal's token was used. Admit calls it; a long call calls it again with every request of the caller.
func (v *Principal) Use(now time.Time) {
	if minute := now.Unix() / 60; v.used.Load() != minute {
		v.used.Store(minute)
	}
}

// isAdmin reports whether a token is the node's own admin token.
func (d *Authenticator) isAdmin(hash Hash) bool {
	if d.cfg.Admin == nil {
		return false
	}
	operator, ok := d.cfg.Admin()
	return ok && subtle.ConstantTimeCompare(hash[:], operator[:]) == 1
}

func (v *Principal) expired(now time.Time) bool {
	return !v.expiresAt.IsZero() && !now.Before(v.expiresAt)
}

// Certificate returns the name of the certificate that identified the principal; "": it sent a token, or none was required.
func (v *Principal) Certificate() string {
	if v.token == nil {
		return ""
	}
	return v.token.Certificate
}

// ExpiresAt returns when the principal's token expires; zero: never.
func (v *Principal) ExpiresAt() time.Time { return v.expiresAt }

var errStale = task.NotReady("this node's list of tokens is over %s old: it has no connection to the leader of the system shard",
	staleAfter)

var errNamespaceUnknown = task.NotReady("this node's list of namespaces is over %s old: it has no connection to the leader of the "+
	"system shard", staleAfter)

var errNotLoaded = task.NotReady("this node has not heard from its cluster since it started, so it does not know yet whether calls need " +
	"a token: a majority of the nodes must be running")

// Failure is the reason why a caller was not admitted.
type Failure int

// The reasons.
const (
	FailedNone    Failure = iota // no token was sent
	FailedForm                   // not a token
	FailedUnknown                // no such token
	FailedExpired
	FailedRights    // a valid token that does not allow the call
	FailedSignature // wrong, made with the token's access key
	FailedNode      // the caller claims to be a node of the cluster, and is none
	failures
)

// FailureNames are the words for them.
var FailureNames = [failures]string{"none", "malformed", "unknown", "expired", "denied", "signature", "node"}

func (d *Authenticator) refuse(f Failure, format string, args ...any) error {
	d.failed[f].Add(1)
	return &task.Error{Code: task.CodeUnauthenticated, Message: fmt.Sprintf(format, args...)}
}

// Denied counts a known caller that lacks the rights for a call.
func (d *Authenticator) Denied() { d.failed[FailedRights].Add(1) }

// RefusedNode records the refusal of a node that is not a member, and returns its host.
func (d *Authenticator) RefusedNode(address string) (host string) {
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	d.NoteAddress(address)
	d.failed[FailedNode].Add(1)
	return address
}

// NoteAddress records the address of the caller refused last.
func (d *Authenticator) NoteAddress(address string) { d.source.Store(&address) }

// Refused returns how many callers were refused since the start, by reason, and the address of the last one.
func (d *Authenticator) Refused() (counts [failures]uint64, source string) {
	for f := range counts {
		counts[f] = d.failed[f].Load()
	}
	if at := d.source.Load(); at != nil {
		source = *at
	}
	return counts, source
}

// Failed returns how many callers were refused for a reason since the start.
func (d *Authenticator) Failed(f Failure) uint64 { return d.failed[f].Load() }

// Uses returns the tokens that were used since they were last reported, to the minute. Call reported once they have been.
func (d *Authenticator) Uses() (uses []Use, reported func()) {
	type noted struct {
		v      *Principal
		minute int64
	}
	var all []noted
	for _, v := range d.tokens.Load().tokens {
		if minute := v.used.Load(); minute > v.reported.Load() {
			all = append(all, noted{v, minute})
			uses = append(uses, Use{Token: v.token.ID(), At: store.TimeOf(time.Unix(minute*60, 0))})
		}
	}
	return uses, func() {
		for _, n := range all {
			n.v.reported.Store(n.minute)
		}
	}
}

// longCall is a long call, such as a stream.
type longCall struct {
	v    *Principal
	cert *Certificate // that identified the caller; nil: a token did
	end  context.CancelCauseFunc
}

// ErrRevoked is the cause when a call is cancelled because its token is no longer good.
var ErrRevoked = &task.Error{Code: task.CodeUnauthenticated,
	Message: "during the call the token was revoked or replaced, or it or the certificate expired"}

// Track returns a context for a long call. It is cancelled, with a refusal as its cause, when the principal's token is revoked or
// expires, when the certificate it came in by expires (nil: by a token), and when this node can no longer tell. The caller must
// call leave at the end.
func (d *Authenticator) Track(ctx context.Context, v *Principal, c *Certificate) (_ context.Context, leave func()) {
	ctx, end := context.WithCancelCause(ctx)
	g := &longCall{v, c, end}
	d.mu.Lock()
	d.longCalls[g] = true
	d.check(g, time.Now())
	d.mu.Unlock()
	d.wakeWatch()
	return ctx, func() {
		d.mu.Lock()
		delete(d.longCalls, g)
		d.mu.Unlock()
		end(nil)
	}
}

// Watch checks long calls until ctx ends. It sleeps while there are none whose token could end.
func (d *Authenticator) Watch(ctx context.Context) {
	timer := time.NewTimer(checkInterval)
	defer timer.Stop()
	for {
		if !d.hasLongCalls() {
			select {
			case <-ctx.Done():
				return
			case <-d.wake:
			}
			continue
		}
		timer.Reset(checkInterval)
		select {
		case <-ctx.Done():
			return
		case now := <-timer.C:
			d.mu.Lock()
			d.checkAll(now)
			d.mu.Unlock()
		}
	}
}

// hasLongCalls reports whether there are long calls to check.
func (d *Authenticator) hasLongCalls() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.TokensRequired() && len(d.longCalls) > 0
}

// wakeWatch wakes Watch to find out whether there are calls to check.
func (d *Authenticator) wakeWatch() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// checkAll ends the calls that must not continue. The caller holds mu.
func (d *Authenticator) checkAll(now time.Time) {
	for g := range d.longCalls {
		d.check(g, now)
	}
}

func (d *Authenticator) check(g *longCall, now time.Time) {
	switch {
	case !d.TokensRequired():
	case g.v == Anonymous: // tokens were not required when it began
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
