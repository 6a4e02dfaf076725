package quotas

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// divisionRow says how much of a namespace's quotas, or of a queue's limits, the shards may use.
type divisionRow struct {
	// Since tells the row of a queue from an earlier one, of another queue of that name or from before a recovery.
	Since uint64 `json:"since,omitempty"`
	// Copy is the version of the queue in which the row began. What a shard with an older copy may use says nothing of
	// what it may use later.
	Copy  uint64         `json:"copy,omitempty"`
	Parts []divisionPart `json:"parts"`
}

type divisionPart struct {
	Shard   uint32 `json:"shard"`
	Version uint64 `json:"version"` // of the last share sent to it
	// Most is what the shard may use or does use, whether or not it has received its share. It is unlimited until a share is confirmed.
	Most task.Amounts `json:"most"`
	// Sent is the maximum of the shares sent to it and not confirmed. It is unlimited too if the shard may have earlier shares, and nobody
	// knows which.
	Sent task.Amounts `json:"sent,omitzero"`
}

// shardPart is the state of one shard during a division.
type shardPart struct {
	divisionPart
	space   task.Space
	known   bool    // the shard has answered
	joining bool    // it is about to get its first queue of the namespace
	drains  bool    // it takes no new tasks of the queue
	refused [3]bool // it has refused tasks since the last check of Run
}

// settled reports whether the shard uses the last share sent to it.
func (p *shardPart) settled() bool {
	return p.known && p.Version != 0 && p.space.Share.Version == p.Version
}

// holds reports whether tasks of the namespace can reach the shard.
func (p *shardPart) holds() bool { return p.known && (p.space.Queues > 0 || p.joining) }

// division is the quotas of a namespace, or the limits of a queue, and the state of the shards.
type division struct {
	name   task.SpaceName
	moved  uint64 // of the queue
	quotas task.Quotas
	parts  []shardPart
	row    divisionRow // as last written
	asking *asking     // of Run, which waits for no shard for long; nil: the caller does
}

// Shards gives access to what namespaces and queues use in the data shards.
type Shards interface {
	// Spaces returns what namespaces or queues use in a shard, in the order of names.
	Spaces(ctx context.Context, shard uint32, names []task.SpaceName) ([]task.Space, error)
	// PutShare replaces a share in a shard, unless the existing one is as new, and returns what the namespace or the queue uses.
	PutShare(ctx context.Context, shard uint32, name task.SpaceName, to task.Share) (task.Space, error)
}

// Divider divides the quotas of namespaces, and the limits of queues that are spread, among the data shards.
type Divider struct {
	shard  *system.Shard
	shards Shards
	log    *slog.Logger

	mu       sync.Mutex
	dividing map[task.SpaceName]chan struct{} // what is being divided; closed at the end
}

// New returns a Divider that does not watch yet how namespaces use their shares: see Run.
func New(shard *system.Shard, shards Shards, log *slog.Logger) *Divider {
	return &Divider{shard: shard, shards: shards, log: log, dividing: map[task.SpaceName]chan struct{}{}}
}

const (
	// dividePause is the pause between two checks of how namespaces use their shares.
	dividePause = time.Second
	// askTimeout bounds the wait for a shard's answer about its share.
	askTimeout = 2 * time.Second
	// askPatience bounds how long Run waits for a shard while others wait. A later answer counts in the next check.
	askPatience = dividePause / 4
)

// Divide divides a namespace's changed quotas again.
//
// Errors: unavailable if a shard has not confirmed its share: until it does, it may use the previous one.
func (s *Divider) Divide(ctx context.Context, ns string) error {
	return s.divide(ctx, task.SpaceName{Namespace: ns}, 0, s.askShards)
}

// lock makes the caller the only one to divide quotas or limits, until it calls unlock.
func (s *Divider) lock(ctx context.Context, name task.SpaceName) (unlock func(), err error) {
	for {
		s.mu.Lock()
		busy := s.dividing[name]
		if busy == nil {
			done := make(chan struct{})
			s.dividing[name] = done
			s.mu.Unlock()
			return func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				delete(s.dividing, name)
				close(done)
			}, nil
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// divide divides quotas or limits again, by what ask finds out about the shards. joining is a shard that is about to get its first
// queue of the namespace; 0: none.
//
// Errors: unavailable if a shard has not confirmed its share: until it does, it may use the previous one.
func (s *Divider) divide(ctx context.Context, name task.SpaceName, joining uint32, ask func(context.Context, *division) []error) error {
	unlock, err := s.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	d, err := s.division(ctx, name)
	if err != nil || d == nil {
		return err
	}
	errs := ask(ctx, d)
	for i := range d.parts {
		p := &d.parts[i]
		p.joining = p.Shard == joining
		p.known = p.known && p.space.Copy >= d.row.Copy
		p.updateMost()
	}
	want := d.shareOut()
	first := d.safeShares(want)
	lower, err := s.sendShares(ctx, d, func(p *shardPart, i int) (task.Amounts, bool) {
		return first[i], !p.settled() || least(first[i], p.space.Share.Amounts) != p.space.Share.Amounts
	})
	if err != nil {
		return err
	}
	room, whole := d.room(), d.quotas.Whole()
	raise, err := s.sendShares(ctx, d, func(p *shardPart, i int) (task.Amounts, bool) {
		to := raisedShare(p, want[i], &room)
		// A shard whose copy of the queue has no limit yet answers that its share has none: sent back, that would be in force when it gets
		// its copy.
		return to, p.settled() && to != p.space.Share.Amounts && least(to, whole) == to
	})
	if err != nil {
		return err
	}
	for i := range d.parts {
		if p := &d.parts[i]; p.joining && !p.lacks(d.quotas.Whole()) && confirmed(i, errs, lower, raise) {
			return nil // it has its share, whatever became of the others
		}
	}
	if err := errors.Join(slices.Concat(errs, lower, raise)...); err != nil {
		return task.Unavailable(time.Second, "%s are set, and not all shards have confirmed them yet: %v", described(name), err)
	}
	return nil
}

// confirmed reports whether a part has no error in any of some lists.
func confirmed(part int, lists ...[]error) bool {
	return !slices.ContainsFunc(lists, func(errs []error) bool { return part < len(errs) && errs[part] != nil })
}

// described names what is divided.
func described(name task.SpaceName) string {
	if name.Queue != "" {
		return fmt.Sprintf("queue %q: its limits", name.Queue)
	}
	return fmt.Sprintf("namespace %q: its quotas", name.Namespace)
}

// division reads how quotas or limits are divided; nil: there is no such namespace, or no such queue with limits that are divided.
func (s *Divider) division(ctx context.Context, name task.SpaceName) (*division, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (*division, error) { return readDivision(r, name) })
}

func readDivision(r store.Reader, name task.SpaceName) (*division, error) {
	if name.Queue != "" {
		return divisionOfQueue(r, name)
	}
	n, err := namespaces.Get(r, name.Namespace)
	if errors.Is(err, task.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	settings, _, err := system.GetRow[system.Settings](r, system.SettingsKey)
	if err != nil {
		return nil, err
	}
	row, _, err := system.GetRow[divisionRow](r, divisionKey(name))
	if err != nil || !n.Quotas.Tasks() && row.Parts == nil {
		return nil, err
	}
	return newDivision(name, n.Quotas, system.DataShards(settings.DataShards), row), nil
}

// checkCurrent returns an error if what is divided, or how it was divided last, is no longer what was read.
func (d *division) checkCurrent(r store.Reader) error {
	now, err := readDivision(r, d.name)
	switch {
	case err != nil:
		return err
	case now == nil:
		return &task.Error{Code: task.CodeNotFound, Message: described(d.name) + " are no longer divided"}
	case now.quotas != d.quotas || now.moved != d.moved || now.row.Since != d.row.Since || !slices.Equal(now.row.Parts, d.row.Parts):
		return task.Unavailable(time.Second, "%s were changed or divided meanwhile", described(d.name))
	}
	return nil
}

func newDivision(name task.SpaceName, q task.Quotas, shards []uint32, row divisionRow) *division {
	d := &division{name: name, quotas: q, row: row, parts: make([]shardPart, len(shards))}
	for i, shard := range shards {
		d.parts[i].divisionPart = divisionPart{Shard: shard, Most: task.Unlimited}
		for _, p := range row.Parts {
			if p.Shard == shard {
				d.parts[i].divisionPart = p
			}
		}
	}
	return d
}

// askShards asks the shards for their state.
func (s *Divider) askShards(ctx context.Context, d *division) []error {
	errs := make([]error, len(d.parts))
	parallel.Run(len(d.parts), func(i int) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		p := &d.parts[i]
		spaces, err := s.shards.Spaces(ctx, p.Shard, []task.SpaceName{d.name})
		if err != nil {
			errs[i] = fmt.Errorf("shard %d: %w", p.Shard, err)
			return
		}
		if p.space, p.known = spaces[0], true; p.space.Copy < d.row.Copy {
			errs[i] = fmt.Errorf("shard %d has an older copy of the queue", p.Shard)
		}
	})
	return errs
}

// updateMost updates Most from the shard's answer. As long as the shard may not have received its last share, it may
// still come to use it; and as long as it has not confirmed any of this row's, one that was sent before the row began.
func (p *shardPart) updateMost() {
	if !p.known {
		return
	}
	if p.settled() {
		p.Most, p.Sent = p.space.Share.Amounts, task.Amounts{}
	}
	p.Most = most(p.Most, p.space.Use)
}

// sendShares sends a new share to those shards for which of returns one. What each may use from then on is written first.
func (s *Divider) sendShares(ctx context.Context, d *division, of func(p *shardPart, i int) (task.Amounts, bool)) ([]error, error) {
	shares := make([]*task.Share, len(d.parts))
	some := false
	for i := range d.parts {
		p := &d.parts[i]
		if !p.known {
			continue
		}
		if to, is := of(p, i); is {
			shares[i], some = &task.Share{Moved: d.moved, Amounts: to}, true
			p.Most, p.Sent = most(p.Most, to), most(p.Sent, to)
		}
	}
	if !some && slices.Equal(d.row.Parts, d.storedParts()) {
		return nil, nil
	}
	var version uint64
	row, err := system.Update(ctx, s.shard, func(tx *store.Tx) (row divisionRow, err error) {
		if err := d.checkCurrent(tx); err != nil {
			return row, err
		}
		row.Since, row.Copy = d.row.Since, d.row.Copy
		row.Parts, version = d.storedParts(), tx.NextSeq()
		for i := range d.parts { // after a recovery, a shard may have got its share in a later round than this one
			version = max(version, d.parts[i].Version+1, d.parts[i].space.Share.Version+1)
		}
		for i := range d.parts {
			if shares[i] != nil {
				row.Parts[i].Version = version
			}
		}
		tx.Set(divisionKey(d.name), system.EncodeRow(row))
		return row, nil
	})
	if err != nil {
		return nil, err
	}
	d.row = row
	errs := make([]error, len(d.parts))
	parallel.Run(len(d.parts), func(i int) {
		if shares[i] == nil {
			return
		}
		p := &d.parts[i]
		p.Version, shares[i].Version = version, version
		space, err := s.putShare(ctx, d, p.Shard, *shares[i])
		if errs[i] = err; err != nil {
			return
		}
		p.space = space
		p.updateMost()
		if space.Share.Version < version {
			errs[i] = fmt.Errorf("shard %d did not take its share, since its copy of the queue is from another move", p.Shard)
		}
	})
	return errs, nil
}

// putShare sends a share to a shard. While Run divides, an answer that is late is left to the next check.
func (s *Divider) putShare(ctx context.Context, d *division, shard uint32, to task.Share) (space task.Space, err error) {
	put := func() (task.Space, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		return s.shards.PutShare(ctx, shard, d.name, to)
	}
	if d.asking == nil {
		return put()
	}
	var answered sync.WaitGroup
	var late task.Space
	var failed error
	if !d.asking.begin(shard, &answered, func() { late, failed = put() }) || !waitBriefly(&answered) {
		return space, fmt.Errorf("shard %d has not confirmed its share yet", shard)
	}
	return late, failed
}

// storedParts returns the parts as the row stores them.
func (d *division) storedParts() []divisionPart {
	parts := make([]divisionPart, len(d.parts))
	for i := range d.parts {
		parts[i] = d.parts[i].divisionPart
	}
	return parts
}

// room returns what no shard may use. It is negative if shards may use more than there is, since the whole has been lowered.
func (d *division) room() task.Amounts {
	left := d.quotas.Whole()
	for i := range d.parts {
		for f, v := range left.Each() {
			if *v != task.NoLimit {
				*v -= min(*d.parts[i].Most.Each()[f], min(*v, 0)+task.NoLimit)
			}
		}
	}
	return left
}

// safeShares returns what shards may be sent before anything is confirmed, since a lowered share may not arrive: for each no more than it
// may use already, but of what it uses beyond its share only as much as there is beside the others; for those that have confirmed nothing
// yet no more than the others leave; and for those that may have earlier shares no more than they have.
func (d *division) safeShares(want []task.Amounts) []task.Amounts {
	left := d.quotas.Whole()
	for i := range d.parts {
		for f, v := range left.Each() {
			if *v != task.NoLimit {
				*v -= min(d.parts[i].upperBound(f), *v)
			}
		}
	}
	to, room := slices.Clone(want), d.room()
	for i := range to {
		p := &d.parts[i]
		for f, v := range to[i].Each() {
			could, left := p.upperBound(f), left.Each()[f]
			has := could
			if p.known {
				has = *p.space.Share.Each()[f]
			}
			switch {
			case *p.Most.Each()[f] != task.NoLimit:
				*v = min(*v, max(has, could+min(*room.Each()[f], 0)))
			case could == task.NoLimit:
				*v = min(*v, has)
			case *left != task.NoLimit:
				*v = min(*v, could+*left)
				*left -= max(*v-could, 0)
			}
		}
	}
	whole := d.quotas.Whole()
	for f, all := range whole.Each() {
		d.leaveUsed(to, *all, f)
	}
	return to
}

// upperBound returns how much of one quota the shard may use by all the shares that it was sent.
func (p *divisionPart) upperBound(f int) int64 {
	if most := *p.Most.Each()[f]; most != task.NoLimit {
		return most
	}
	return *p.Sent.Each()[f]
}

// raisedShare returns a shard's share, increased towards what it wants as far as there is room. What it uses beyond its share counts
// already, and comes free for others too: while they may use more than there is, the shard must not begin as much again.
func raisedShare(p *shardPart, want task.Amounts, room *task.Amounts) task.Amounts {
	to := p.space.Share.Amounts
	for f, v := range to.Each() {
		left, asked := room.Each()[f], *want.Each()[f]
		switch {
		case asked == task.NoLimit:
			*v = asked
		case asked > *v:
			had := *p.Most.Each()[f]
			*v = max(*v, min(asked, had+*left))
			*left -= max(*v-had, 0)
		}
	}
	return to
}

// EnsureShare makes sure that a shard knows its share of the namespace before it gets a queue.
func (s *Divider) EnsureShare(ctx context.Context, ns string, shard uint32) error {
	lacks, err := system.View(ctx, s.shard, func(r store.Reader) (bool, error) {
		n, err := namespaces.Get(r, ns)
		if err != nil || !n.Quotas.Tasks() {
			return false, nil // creating the queue will report that the namespace does not exist
		}
		row, _, err := system.GetRow[divisionRow](r, divisionKey(task.SpaceName{Namespace: ns}))
		if err != nil {
			return false, err
		}
		at := slices.IndexFunc(row.Parts, func(p divisionPart) bool { return p.Shard == shard })
		return at < 0 || row.Parts[at].lacks(n.Quotas.Whole()), nil
	})
	if err != nil || !lacks {
		return err
	}
	return s.divide(ctx, task.SpaceName{Namespace: ns}, shard, s.askShards)
}

// lacks reports whether the shard has nothing of some quota, or may not know of it.
func (p divisionPart) lacks(whole task.Amounts) bool {
	for f, all := range whole.Each() {
		if has := *p.Most.Each()[f]; has == 0 || has > *all {
			return true
		}
	}
	return false
}
