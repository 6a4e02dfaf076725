package tokens

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// Tokens and namespaces are rows of the system shard. Every node has all of them in its copy: there are not many, and a change of one sends
// all, as with the map.

const (
	maxTokens = 5000
	// maxTokensOf bounds the tokens of a namespace that was created, maxTokensOfDefault those of the default one, which may be the only
	// one.
	maxTokensOf        = maxTokens / 10
	maxTokensOfDefault = maxTokens / 2
	// keptTokens is reserved for tokens of all namespaces, so that the operators of the cluster can always add one.
	keptTokens = maxTokens / 10
	// ForgetAfter is how long an expired token is still listed.
	ForgetAfter = 30 * 24 * time.Hour
)

// Tokens reads and changes the tokens that authenticate callers.
type Tokens struct {
	shard *system.Shard

	mu   sync.Mutex
	uses map[auth.TokenName]store.Time // not written yet
}

// New returns the tokens in a system shard.
func New(shard *system.Shard) *Tokens {
	return &Tokens{shard: shard, uses: map[auth.TokenName]store.Time{}}
}

// Call asks for a change of a token.
type Call struct {
	By auth.Rights // the caller's rights: tokens that exceed them are invisible to it
	// Token has the name and the namespace; for a new token also the rights and the hash, for a rotation the hash.
	Token   auth.Token
	Life    time.Duration // from now; 0: unlimited
	Overlap time.Duration // how long the previous hash stays valid
	Author  task.Author
	// Request is the same when a call is repeated because its answer was lost; zero: the call is never repeated. Asked is when the call
	// arrived.
	Request task.ID
	Asked   time.Time
}

// Done is a token after a change, and the version of the tables that has it.
type Done struct {
	Token   auth.Token
	Version uint64
}

func tokenKey(of auth.TokenName) []byte { return system.Key(system.TokenTable, of.Namespace, of.Name) }
func usedKey(of auth.TokenName) []byte  { return system.Key(system.UsedTable, of.Namespace, of.Name) }

// Add adds a token. Repeating it with the same hash returns the same answer; repeating it under the same request id replaces the first
// secret with the new one.
//
// Errors: conflict if another token has that name or that certificate, or the request id belongs to another request; not_found if the
// namespace does not exist.
func (s *Tokens) Add(ctx context.Context, a Call) (Done, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Done, error) {
		t := a.Token
		old, exists, err := system.GetRow[auth.Token](tx, tokenKey(t.ID()))
		switch {
		case err != nil:
			return Done{}, err
		case exists && old.Hash == t.Hash:
			return Done{old, system.Newest(tx)}, nil
		case exists:
			again, err := a.isRepeat(tx.Now(), task.TokenAdded, &old)
			if err == nil && !again {
				err = system.Conflict("token %q already exists: rotate it, or revoke it first", t.Name)
			}
			if err != nil {
				return Done{}, err
			}
			return s.renew(tx, &a, task.TokenAdded, old)
		case !t.InAll():
			if _, err := namespaces.Get(tx, t.Namespace); err != nil {
				return Done{}, err
			}
		}
		gone, err := makeRoom(tx, &t)
		if err != nil {
			return Done{}, err
		}
		t.CreatedAt, t.CreatedBy, t.ExpiresAt, t.UsedAt = tx.Now(), a.Author.Name, expiry(tx, a.Life), 0
		t.Request = a.request(task.TokenAdded, tx.Now())
		if err := s.putToken(tx, a.Author, task.TokenAdded, nil, t); err != nil {
			return Done{}, err
		}
		for _, old := range gone {
			dropToken(tx, old)
		}
		return Done{t, tx.Index()}, nil
	})
}

// makeRoom returns the tokens that expired so long ago that they can be dropped. It fails if there is no room for another token even then,
// or if its certificate belongs to another one.
func makeRoom(tx *store.Tx, made *auth.Token) (gone []auth.TokenName, err error) {
	all, err := system.ScanRows[auth.Token](tx, system.TokenTable)
	if err != nil {
		return nil, err
	}
	has := map[string]int{}
	for i := range all {
		t := &all[i]
		if t.Hash == made.Hash {
			return nil, system.Conflict("certificate %q already belongs to token %q of namespace %q: revoke that token first",
				made.Certificate, t.Name, t.Namespace)
		}
		if t.ExpiresAt != 0 && t.ExpiresAt.Add(ForgetAfter) < tx.Now() {
			gone = append(gone, t.ID())
		} else {
			has[t.Namespace]++
		}
	}
	return gone, mayHaveToken(made, has, len(all)-len(gone))
}

// mayHaveToken returns an error for one token too many, given how many each namespace has and how many there are in total.
func mayHaveToken(made *auth.Token, has map[string]int, all int) error {
	ns, most := made.Namespace, maxTokensOf
	if ns == auth.DefaultNamespace {
		most = maxTokensOfDefault
	}
	switch {
	case all >= maxTokens:
		return task.Invalid("name", "the limit of %d tokens is reached: revoke unused ones", maxTokens)
	case made.InAll():
		return nil
	case has[ns] >= most:
		return task.Invalid("name", "the limit of %d tokens in namespace %q is reached: revoke unused ones", most, ns)
	case all-has[auth.AllNamespaces] >= maxTokens-keptTokens:
		return task.Invalid("name", "the limit of %d tokens for single namespaces is reached: revoke unused ones", maxTokens-keptTokens)
	}
	return nil
}

func expiry(tx *store.Tx, life time.Duration) store.Time {
	if life == 0 {
		return 0
	}
	return tx.Now().Add(life)
}

func dropToken(tx *store.Tx, of auth.TokenName) {
	tx.Delete(tokenKey(of))
	tx.Delete(usedKey(of))
}

// putToken writes a token's row and an audit entry.
func (s *Tokens) putToken(tx *store.Tx, by task.Author, action task.Action, before *tokenFacts, t auth.Token) error {
	if err := onToken(tx, by, action, t.ID(), before, factsOfToken(&t)); err != nil {
		return err
	}
	tx.Set(tokenKey(t.ID()), system.EncodeRow(t))
	s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
	return nil
}

// visibleToken returns a token if the caller may see it.
func visibleToken(r store.Reader, by auth.Rights, of auth.TokenName) (auth.Token, error) {
	t, ok, err := system.GetRow[auth.Token](r, tokenKey(of))
	if err == nil && (!ok || !by.Covers(t.Rights)) {
		err = task.NotFound("token", of.Name)
	}
	return t, err
}

// Rotate gives a token a new secret. The previous one stays valid until the overlap is over. A repeat under the same request id
// replaces the secret that was lost, not the one before the rotation.
//
// Errors: not_found; wrong_state for a token bound to a certificate; conflict if the request id belongs to another request.
func (s *Tokens) Rotate(ctx context.Context, a Call) (Done, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Done, error) {
		t, err := visibleToken(tx, a.By, a.Token.ID())
		if err != nil || t.Hash == a.Token.Hash {
			return Done{t, system.Newest(tx)}, err
		}
		if t.Certificate != "" {
			return Done{}, system.WrongState("token %q has no secret: it is for the holder of certificate %q", t.Name, t.Certificate)
		}
		if again, err := a.isRepeat(tx.Now(), task.TokenRotated, &t); err != nil {
			return Done{}, err
		} else if again {
			return s.renew(tx, &a, task.TokenRotated, t)
		}
		had := t
		t.OldHash, t.OldUntil = auth.Hash{}, 0
		if a.Overlap > 0 {
			t.OldHash, t.OldUntil = t.Hash, tx.Now().Add(a.Overlap)
			if t.ExpiresAt != 0 { // the overlap must not extend its life
				t.OldUntil = min(t.OldUntil, t.ExpiresAt)
			}
		}
		t.Hash, t.RotatedAt, t.ExpiresAt, t.Request = a.Token.Hash, tx.Now(), expiry(tx, a.Life), a.request(task.TokenRotated, tx.Now())
		return s.rotated(tx, a.Author, &had, t)
	})
}

// Revoke removes a token, along with the secret that it replaced.
func (s *Tokens) Revoke(ctx context.Context, a Call) (Done, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Done, error) {
		t, err := visibleToken(tx, a.By, a.Token.ID())
		if err == nil {
			err = onToken(tx, a.Author, task.TokenRevoked, t.ID(), factsOfToken(&t), nil)
		}
		if err != nil {
			return Done{}, err
		}
		dropToken(tx, t.ID())
		forgetSessions(tx, &t, &auth.Token{})
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		return Done{t, tx.Index()}, nil
	})
}

// List lists the tokens that the caller may see, by namespace and name, each with its last use.
func (s *Tokens) List(ctx context.Context, by auth.Rights) ([]auth.Token, error) {
	return system.View(ctx, s.shard, func(r store.Reader) ([]auth.Token, error) {
		all, err := system.ScanRows[auth.Token](r, system.TokenTable)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(t auth.Token) bool { return !by.Covers(t.Rights) })
		for i := range all {
			t := &all[i]
			t.UsedAt = max(store.Time(system.GetNumber(r, usedKey(t.ID()))), s.usedAt(t.ID())) // #nosec G115 -- as it was written
		}
		return all, nil
	})
}

// Require sets whether all nodes require tokens.
func (s *Tokens) Require(ctx context.Context, by task.Author, on bool) error {
	type facts struct {
		Required bool `json:"tokens_required"`
	}
	want := uint64(0)
	if on {
		want = 1
	}
	is, err := system.View(ctx, s.shard, func(r store.Reader) (uint64, error) { return system.GetNumber(r, system.RequiredKey), nil })
	if err != nil || is == want {
		return err
	}
	_, err = system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		if system.GetNumber(tx, system.RequiredKey) == want {
			return struct{}{}, nil
		}
		if err := auditlog.OnCluster(tx, by, task.TokensRequired, &facts{!on}, &facts{on}); err != nil {
			return struct{}{}, err
		}
		tx.Set(system.RequiredKey, system.EncodeNumber(want))
		s.shard.Note(tx, system.Change{Kind: system.AccessChanged})
		return struct{}{}, nil
	})
	return err
}

// Refusals counts the callers that a node turned away, by reason, since its last report.
type Refusals struct {
	NoToken   uint64 `json:"no_token,omitempty"`
	Malformed uint64 `json:"malformed,omitempty"`
	Signature uint64 `json:"signature,omitempty"`
	Unknown   uint64 `json:"unknown,omitempty"`
	Expired   uint64 `json:"expired,omitempty"`
	Denied    uint64 `json:"denied,omitempty"`
	NoMember  uint64 `json:"no_member,omitempty"` // nodes
}

// NoteRefusals adds an entry to the audit log. by has the name of the node, and the address of the last of the callers.
func (s *Tokens) NoteRefusals(ctx context.Context, by task.Author, r Refusals) error {
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		return struct{}{}, auditlog.OnCluster(tx, by, task.CallersRefused, nil, &r)
	})
	return err
}

// tokenFacts is what the audit log records of a token.
type tokenFacts struct {
	Roles       []string   `json:"roles"`
	Queues      []string   `json:"queues"`
	Certificate string     `json:"certificate,omitempty"`
	SQS         bool       `json:"sqs,omitempty"`
	ExpiresAt   *time.Time `json:"expires_at"`
	RotatedAt   *time.Time `json:"rotated_at"`
}

func factsOfToken(t *auth.Token) *tokenFacts {
	return &tokenFacts{Roles: t.Roles.Names(), Queues: t.Queues, Certificate: t.Certificate, SQS: t.SQS,
		ExpiresAt: auditlog.Moment(t.ExpiresAt), RotatedAt: auditlog.Moment(t.RotatedAt)}
}

// onToken records what was done to a token, in its namespace; a token of all namespaces belongs to the cluster.
func onToken(tx *store.Tx, by task.Author, action task.Action, of auth.TokenName, before, after *tokenFacts) error {
	e := task.Target{Kind: task.OnToken, Name: of.Name}
	ns := of.Namespace
	if ns == auth.AllNamespaces {
		ns = ""
	}
	return auditlog.RecordOn(tx, by, action, ns, e, before, after)
}

// NoteUses records the uses of tokens that a node reported.
func (s *Tokens) NoteUses(uses []auth.Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range uses {
		at, known := s.uses[u.Token]
		if u.At > at && (known || len(s.uses) < maxTokens) {
			s.uses[u.Token] = u.At
		}
	}
}

// usedAt returns when a token was last used, if that is not written yet.
func (s *Tokens) usedAt(of auth.TokenName) store.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.uses[of]
}

// WriteUses writes when tokens were last used, all in one round. A leader that fails loses at most a minute of that.
func (s *Tokens) WriteUses(ctx context.Context) error {
	s.mu.Lock()
	uses := s.uses
	s.uses = map[auth.TokenName]store.Time{}
	s.mu.Unlock()
	if len(uses) == 0 {
		return nil
	}
	_, err := system.Update(ctx, s.shard, func(tx *store.Tx) (struct{}, error) {
		for of, at := range uses {
			if _, exists := tx.Get(tokenKey(of)); exists && uint64(at) > system.GetNumber(tx, usedKey(of)) { // #nosec G115 -- after 1970
				tx.Set(usedKey(of), system.EncodeNumber(uint64(at))) // #nosec G115
			}
		}
		return struct{}{}, nil
	})
	return err
}
