package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/auth"
	"github.com/pawlq/pawl/internal/store"
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
	keptTokens    = maxTokens / 10
	maxNamespaces = 1000
	// forgetAfter is how long an expired token is still listed.
	forgetAfter = 30 * 24 * time.Hour
)

// Namespace is a namespace that was created.
type Namespace struct {
	Name      string     `json:"name"`
	CreatedAt store.Time `json:"created_at"`
	CreatedBy string     `json:"created_by,omitempty"`
	task.Quotas
	// RemovedBy is who is removing the namespace, while the shards erase what they have of it; nil: nobody. The namespace no longer exists
	// for callers.
	RemovedBy *task.Author `json:"removed_by,omitempty"`
}

// NamespaceCall asks for a new namespace.
type NamespaceCall struct {
	By     task.Author
	Name   string
	Quotas task.QuotaChange // unset ones take their defaults
}

// TokenCall asks for a change of a token.
type TokenCall struct {
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

// TokenDone is a token after a change, and the version of the tables that has it.
type TokenDone struct {
	Token   auth.Token
	Version uint64
}

func accessKey(table byte, ns, name string) []byte {
	return append(append(append([]byte{table}, ns...), 0), name...)
}

func tokenKey(of auth.TokenName) []byte { return accessKey(tokenTable, of.Namespace, of.Name) }
func usedKey(of auth.TokenName) []byte  { return accessKey(usedTable, of.Namespace, of.Name) }
func namespaceKey(name string) []byte   { return append([]byte{namespaceTable}, name...) }

// readAccess reads everything that is needed to authenticate and authorize callers.
func readAccess(r store.Reader) (*auth.Access, error) {
	a := &auth.Access{Required: getNumber(r, requiredKey) != 0, Namespaces: []string{auth.DefaultNamespace}, Quotas: map[string]task.Quotas{}}
	made, err := scanRows[Namespace](r, namespaceTable)
	if err != nil {
		return nil, err
	}
	for _, n := range made {
		if n.RemovedBy != nil {
			continue
		}
		if n.Name != auth.DefaultNamespace {
			a.Namespaces = append(a.Namespaces, n.Name)
		}
		if n.Quotas != (task.Quotas{}) {
			a.Quotas[n.Name] = n.Quotas
		}
	}
	a.Tokens, err = scanRows[auth.Token](r, tokenTable)
	return a, err
}

// mayHaveTokens returns an error while the cluster's feature level is too low for tokens and namespaces.
func mayHaveTokens(r store.Reader) error {
	settings, _, err := getRow[Settings](r, settingsKey)
	if err == nil && settings.Level < PoliciesLevel {
		err = wrongState("tokens and namespaces need feature level %d, and the cluster is at %d: see `pawl cluster raise-level`",
			PoliciesLevel, settings.Level)
	}
	return err
}

// AddToken adds a token. Repeating it with the same hash returns the same answer; repeating it under the same request id replaces the first
// secret with the new one.
//
// Errors: conflict if another token has that name or that certificate, or the request id belongs to another request; not_found if the
// namespace does not exist.
//
// Errors: conflict if there is another of that name, or for that certificate, or the request id was something else's; not_found without
// its namespace.
func (c *Control) AddToken(ctx context.Context, a TokenCall) (TokenDone, error) {
	return update(ctx, c, func(tx *store.Tx) (TokenDone, error) {
		if err := mayHaveTokens(tx); err != nil {
			return TokenDone{}, err
		}
		t := a.Token
		old, exists, err := getRow[auth.Token](tx, tokenKey(t.ID()))
		switch {
		case err != nil:
			return TokenDone{}, err
		case exists && old.Hash == t.Hash:
			return TokenDone{old, tx.Index()}, nil
		case exists:
			again, err := a.isRepeat(tx.Now(), task.TokenAdded, &old)
			if err == nil && !again {
				err = conflict("token %q already exists: rotate it, or revoke it first", t.Name)
			}
			if err != nil {
				return TokenDone{}, err
			}
			return c.renew(tx, &a, task.TokenAdded, old)
		case !t.InAll():
			if _, err := namespaceOf(tx, t.Namespace); err != nil {
				return TokenDone{}, err
			}
		}
		gone, err := makeRoom(tx, &t)
		if err != nil {
			return TokenDone{}, err
		}
		t.CreatedAt, t.CreatedBy, t.ExpiresAt, t.UsedAt = tx.Now(), a.Author.Name, expiry(tx, a.Life), 0
		t.Request = a.request(task.TokenAdded, tx.Now())
		if err := c.putToken(tx, a.Author, task.TokenAdded, nil, t); err != nil {
			return TokenDone{}, err
		}
		for _, old := range gone {
			dropToken(tx, old)
		}
		return TokenDone{t, tx.Index()}, nil
	})
}

// makeRoom returns the tokens that expired so long ago that they can be dropped. It fails if there is no room for another token even then,
// or if its certificate belongs to another one.
func makeRoom(tx *store.Tx, made *auth.Token) (gone []auth.TokenName, err error) {
	all, err := scanRows[auth.Token](tx, tokenTable)
	if err != nil {
		return nil, err
	}
	has := map[string]int{}
	for i := range all {
		t := &all[i]
		if t.Hash == made.Hash {
			return nil, conflict("certificate %q already belongs to token %q of namespace %q: revoke that token first", made.Certificate, t.Name, t.Namespace)
		}
		if t.ExpiresAt != 0 && t.ExpiresAt.Add(forgetAfter) < tx.Now() {
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
func (c *Control) putToken(tx *store.Tx, by task.Author, action task.Action, before *tokenFacts, t auth.Token) error {
	if err := onToken(tx, by, action, t.ID(), before, factsOfToken(&t)); err != nil {
		return err
	}
	tx.Set(tokenKey(t.ID()), encodeRow(t))
	c.note(tx, change{access: true})
	return nil
}

// visibleToken returns a token if the caller may see it.
func visibleToken(r store.Reader, by auth.Rights, of auth.TokenName) (auth.Token, error) {
	t, ok, err := getRow[auth.Token](r, tokenKey(of))
	if err == nil && (!ok || !by.Covers(t.Rights)) {
		err = task.NotFound("token", of.Name)
	}
	return t, err
}

// RotateToken gives a token a new secret. The previous one stays valid until the overlap is over. A repeat under the same request id
// replaces the secret that was lost, not the one before the rotation.
//
// Errors: not_found; wrong_state for a token bound to a certificate; conflict if the request id belongs to another request.
//
// Errors: not_found; wrong_state for one that is for the holder of a certificate; conflict if the request id was something else's.
func (c *Control) RotateToken(ctx context.Context, a TokenCall) (TokenDone, error) {
	return update(ctx, c, func(tx *store.Tx) (TokenDone, error) {
		t, err := visibleToken(tx, a.By, a.Token.ID())
		if err != nil || t.Hash == a.Token.Hash {
			return TokenDone{t, tx.Index()}, err
		}
		if t.Certificate != "" {
			return TokenDone{}, wrongState("token %q has no secret: it is for the holder of certificate %q", t.Name, t.Certificate)
		}
		if again, err := a.isRepeat(tx.Now(), task.TokenRotated, &t); err != nil {
			return TokenDone{}, err
		} else if again {
			return c.renew(tx, &a, task.TokenRotated, t)
		}
		before := factsOfToken(&t)
		t.OldHash, t.OldUntil = auth.Hash{}, 0
		if a.Overlap > 0 {
			t.OldHash, t.OldUntil = t.Hash, tx.Now().Add(a.Overlap)
			if t.ExpiresAt != 0 { // the overlap must not extend its life
				t.OldUntil = min(t.OldUntil, t.ExpiresAt)
			}
		}
		t.Hash, t.RotatedAt, t.ExpiresAt, t.Request = a.Token.Hash, tx.Now(), expiry(tx, a.Life), a.request(task.TokenRotated, tx.Now())
		return TokenDone{t, tx.Index()}, c.putToken(tx, a.Author, task.TokenRotated, before, t)
	})
}

// RevokeToken removes a token, along with the secret that it replaced.
func (c *Control) RevokeToken(ctx context.Context, a TokenCall) (TokenDone, error) {
	return update(ctx, c, func(tx *store.Tx) (TokenDone, error) {
		t, err := visibleToken(tx, a.By, a.Token.ID())
		if err == nil {
			err = onToken(tx, a.Author, task.TokenRevoked, t.ID(), factsOfToken(&t), nil)
		}
		if err != nil {
			return TokenDone{}, err
		}
		dropToken(tx, t.ID())
		c.note(tx, change{access: true})
		return TokenDone{t, tx.Index()}, nil
	})
}

// Tokens lists the tokens that the caller may see, by namespace and name, each with its last use.
func (c *Control) Tokens(ctx context.Context, by auth.Rights) ([]auth.Token, error) {
	return view(ctx, c, func(r store.Reader) ([]auth.Token, error) {
		all, err := scanRows[auth.Token](r, tokenTable)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(t auth.Token) bool { return !by.Covers(t.Rights) })
		for i := range all {
			t := &all[i]
			t.UsedAt = max(store.Time(getNumber(r, usedKey(t.ID()))), c.usedAt(t.ID())) // #nosec G115 -- as it was written
		}
		return all, nil
	})
}

// AddNamespace adds a namespace. An existing one is left unchanged.
//
// Errors: conflict if it exists with other quotas than the requested ones; wrong_state while a namespace of that name is being removed.
func (c *Control) AddNamespace(ctx context.Context, a NamespaceCall) (uint64, error) {
	version, err := update(ctx, c, func(tx *store.Tx) (uint64, error) {
		if err := mayHaveTokens(tx); err != nil {
			return 0, err
		}
		old, there, err := getRow[Namespace](tx, namespaceKey(a.Name))
		switch {
		case err != nil:
			return 0, err
		case there && old.RemovedBy != nil:
			return 0, wrongState("namespace %q is still being removed: `pawl ns rm %s` completes the removal", a.Name, a.Name)
		case there || a.Name == auth.DefaultNamespace:
			old.Name = a.Name
			return tx.Index(), sameQuotas(old, a.Quotas)
		}
		all, err := scanRows[Namespace](tx, namespaceTable)
		if err != nil {
			return 0, err
		}
		if len(all) >= maxNamespaces {
			return 0, task.Invalid("namespace", "%q would exceed the limit of %d namespaces", a.Name, maxNamespaces)
		}
		n := Namespace{Name: a.Name, CreatedAt: tx.Now(), CreatedBy: a.By.Name, Quotas: task.DefaultQuotas().Change(a.Quotas)}
		if err := n.Quotas.Check(); err != nil {
			return 0, err
		}
		if err := onNamespace(tx, a.By, task.NamespaceAdded, a.Name, nil, &namespaceFacts{a.Name, n.Quotas}); err != nil {
			return 0, err
		}
		tx.Set(namespaceKey(a.Name), encodeRow(n))
		c.note(tx, change{access: true})
		return tx.Index(), nil
	})
	return version, err // its shards get their shares when they get its queues
}

// RemoveNamespace removes a namespace in which nothing waits, runs or is dead, together with what is kept of it: ended tasks, keys, groups
// and operations. Otherwise a later namespace of that name would inherit them. From the first moment on it no longer exists for callers. If
// the error is unavailable, repeat the call: not all shards have erased their part yet.
//
// Errors: not_found; wrong_state while it has queues, schedules or tokens, or tasks in transit between shards.
//
// Errors: not_found; wrong_state while it has queues, schedules or tokens, or tasks that are on their way between shards.
func (c *Control) RemoveNamespace(ctx context.Context, by task.Author, name string) (uint64, error) {
	type mark struct {
		at     uint64
		shards []uint32
	}
	marked, err := update(ctx, c, func(tx *store.Tx) (mark, error) {
		shards, err := c.markRemoved(tx, by, name)
		return mark{tx.Index(), shards}, err
	})
	if err == nil {
		_, err = c.Confirm(ctx, marked.at) // from then on nothing of it reaches the shards
	}
	if err != nil {
		return 0, err
	}
	if err := c.erase(ctx, name, marked.shards); err != nil {
		if errors.Is(err, task.ErrWrongState) {
			return 0, errors.Join(err, c.unmark(ctx, name))
		}
		return 0, err
	}
	return update(ctx, c, func(tx *store.Tx) (uint64, error) {
		n, there, err := getRow[Namespace](tx, namespaceKey(name))
		if err != nil || !there || n.RemovedBy == nil {
			return tx.Index(), err
		}
		if err := onNamespace(tx, *n.RemovedBy, task.NamespaceRemoved, name, &namespaceFacts{name, n.Quotas}, nil); err != nil {
			return 0, err
		}
		tx.Delete(namespaceKey(name))
		tx.Delete(divisionKey(name))
		tx.Delete(schedulesOfKey(name))
		tx.Delete(watchVersionKey(name))
		forgetMarkers(tx, name)
		c.note(tx, change{access: true})
		return tx.Index(), nil
	})
}

// markRemoved hides a namespace from callers, and returns the shards that may have something of it.
func (c *Control) markRemoved(tx *store.Tx, by task.Author, name string) ([]uint32, error) {
	if name == auth.DefaultNamespace {
		return nil, wrongState("namespace %q can't be removed: it serves the calls that name none", name)
	}
	n, there, err := getRow[Namespace](tx, namespaceKey(name))
	if err == nil && !there {
		err = task.NotFound("namespace", name)
	}
	if err != nil {
		return nil, err
	}
	for _, of := range []struct {
		table byte
		what  string
	}{{queueTable, "queues"}, {cronTable, "schedules"}, {tokenTable, "tokens"}, {hookTable, "webhooks"}} {
		if first := firstIn(tx, of.table, name); first != "" {
			return nil, wrongState("namespace %q is not empty: it has %s, %q is the first: remove them first", name, of.what, first)
		}
	}
	settings, _, err := getRow[Settings](tx, settingsKey)
	if err == nil && n.RemovedBy == nil {
		n.RemovedBy = &by
		tx.Set(namespaceKey(name), encodeRow(n))
		c.note(tx, change{access: true})
	}
	return dataShards(settings.DataShards), err
}

// unmark undoes markRemoved after a shard has refused to erase the namespace.
func (c *Control) unmark(ctx context.Context, name string) error {
	_, err := update(ctx, c, func(tx *store.Tx) (struct{}, error) {
		n, there, err := getRow[Namespace](tx, namespaceKey(name))
		if err == nil && there && n.RemovedBy != nil {
			n.RemovedBy = nil
			tx.Set(namespaceKey(name), encodeRow(n))
			tx.Delete(divisionKey(name)) // some shards have forgotten their shares
			c.note(tx, change{access: true})
		}
		return struct{}{}, err
	})
	return err
}

// erase has the shards erase what they have of a namespace.
func (c *Control) erase(ctx context.Context, name string, shards []uint32) error {
	errs := make([]error, len(shards))
	each(len(shards), func(i int) { errs[i] = c.cfg.Shards.EraseNamespace(ctx, shards[i], name) })
	for _, err := range errs {
		if errors.Is(err, task.ErrWrongState) {
			return err
		}
	}
	if err := errors.Join(errs...); err != nil {
		return task.Unavailable(time.Second, "namespace %q is removed, but not all shards have deleted its data yet; the call may be repeated: %v", name, err)
	}
	return nil
}

// firstIn returns the first name in a namespace's part of a table; "": there is none.
func firstIn(r store.Reader, table byte, ns string) (name string) {
	lo := accessKey(table, ns, "")
	hi := slices.Clone(lo)
	hi[len(hi)-1]++
	r.Scan(lo, hi, func(k, _ []byte) bool {
		name = string(k[len(lo):])
		return false
	})
	return name
}

// RequireTokens sets whether all nodes require tokens.
func (c *Control) RequireTokens(ctx context.Context, by task.Author, on bool) error {
	type facts struct {
		Required bool `json:"tokens_required"`
	}
	want := uint64(0)
	if on {
		want = 1
	}
	is, err := view(ctx, c, func(r store.Reader) (uint64, error) { return getNumber(r, requiredKey), nil })
	if err != nil || is == want {
		return err
	}
	_, err = update(ctx, c, func(tx *store.Tx) (struct{}, error) {
		if err := mayHaveTokens(tx); err != nil || getNumber(tx, requiredKey) == want {
			return struct{}{}, err
		}
		if err := onCluster(tx, by, task.TokensRequired, &facts{!on}, &facts{on}); err != nil {
			return struct{}{}, err
		}
		tx.Set(requiredKey, encodeNumber(want))
		c.note(tx, change{access: true})
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
}

// NoteRefusals adds an entry to the audit log. by has the name of the node, and the address of the last of the callers.
func (c *Control) NoteRefusals(ctx context.Context, by task.Author, r Refusals) error {
	_, err := update(ctx, c, func(tx *store.Tx) (struct{}, error) {
		return struct{}{}, onCluster(tx, by, task.CallersRefused, nil, &r)
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
	return &tokenFacts{Roles: t.Roles.Names(), Queues: t.Queues, Certificate: t.Certificate, SQS: t.SQS, ExpiresAt: momentOf(t.ExpiresAt), RotatedAt: momentOf(t.RotatedAt)}
}

func momentOf(t store.Time) *time.Time {
	if t == 0 {
		return nil
	}
	at := t.Time()
	return &at
}

// onToken records what was done to a token, in its namespace; a token of all namespaces belongs to the cluster.
func onToken(tx *store.Tx, by task.Author, action task.Action, of auth.TokenName, before, after *tokenFacts) error {
	e := task.Target{Kind: task.OnToken, Name: of.Name}
	ns := of.Namespace
	if ns == auth.AllNamespaces {
		ns = ""
	}
	return recordOn(tx, by, action, ns, e, before, after)
}
