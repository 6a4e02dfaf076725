package quotas

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// This file is about the leader that watches how namespaces and queues use their shares, and divides again where a shard is short of room.

// Run watches how namespaces and queues use their shares, and divides again where a shard is short of room, until ctx is done. While no
// namespace has quotas, and no spread queue limits, it waits for a change: the call that makes it may fail before it divides anything.
// Shards that do not answer hold up no division among the others.
func (s *Divider) Run(ctx context.Context) {
	seen := map[spaceName][3]uint64{}
	var asking asking
	defer asking.calls.Wait()
	for system.Sleep(ctx, dividePause); ctx.Err() == nil; system.Sleep(ctx, dividePause) {
		newest := s.shard.Changes(0).Version
		all, err := s.divisions(ctx)
		if err != nil {
			continue
		}
		if forgetGone(seen, all); len(all) == 0 {
			s.shard.Await(ctx, newest, math.MaxInt64)
			continue
		}
		s.askAll(ctx, &asking, all)
		due := slices.DeleteFunc(all, func(d *division) bool { return !d.needsDivision(seen) })
		parallel.Run(len(due), func(i int) {
			d := due[i]
			if err := s.divide(ctx, d.name, 0, d.answers); err != nil && ctx.Err() == nil {
				s.log.Info("quotas or limits could not be divided again", "namespace", d.name.Namespace, "queue", d.name.Queue, "error",
					err)
			}
		})
	}
}

// forgetGone forgets what was seen of quotas and limits that are no longer divided.
func forgetGone(seen map[spaceName][3]uint64, all []*division) {
	names := make(map[task.SpaceName]bool, len(all))
	for _, d := range all {
		names[d.name] = true
	}
	maps.DeleteFunc(seen, func(at spaceName, _ [3]uint64) bool { return !names[at.SpaceName] })
}

// answers gives another division of the same name what the shards have just answered for this one. A silent shard is no error: whatever
// it has not confirmed, it had not confirmed before.
func (d *division) answers(_ context.Context, to *division) []error {
	to.asking = d.asking
	for i := range to.parts {
		for j := range d.parts {
			if d.parts[j].known && d.question(j) == to.question(i) {
				to.parts[i].space, to.parts[i].known, to.parts[i].refused = d.parts[j].space, true, d.parts[j].refused
			}
		}
	}
	return nil
}

// question is what a shard is asked, and what was known about it then. Its answer counts only while the row still says the same: after
// another division, others may have what the shard had, or the shard may have got its first queue; or the queue is another one of that
// name.
type question struct {
	name  task.SpaceName
	since uint64
	part  divisionPart
}

func (d *division) question(i int) question {
	return question{d.name, d.row.Since, d.parts[i].divisionPart}
}

type spaceName struct {
	task.SpaceName
	shard uint32
}

// divisions returns everything whose shares shards must know.
func (s *Divider) divisions(ctx context.Context) ([]*division, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (all []*division, err error) {
		rows, err := system.ScanRows[namespaces.Namespace](r, system.NamespaceTable)
		if err != nil {
			return nil, err
		}
		settings, _, err := system.GetRow[system.Settings](r, system.SettingsKey)
		if err != nil {
			return nil, err
		}
		for _, n := range rows {
			name := task.SpaceName{Namespace: n.Name}
			row, known, err := system.GetRow[divisionRow](r, divisionKey(name))
			if err != nil {
				return nil, err
			}
			if n.RemovedBy == nil && (known || n.Quotas.Tasks()) {
				all = append(all, newDivision(name, n.Quotas, system.DataShards(settings.DataShards), row))
			}
		}
		ofQueues, err := divisionsOfQueues(r)
		return append(all, ofQueues...), err
	})
}

// asking holds what Run has asked the shards.
type asking struct {
	calls   sync.WaitGroup
	mu      sync.Mutex
	pending map[uint32]bool         // shards that have not answered yet
	putting map[uint32]int          // shares that shards have not confirmed yet
	answers map[question]task.Space // that no check has seen
}

// askAll asks each shard once, unless an earlier call to it is still pending.
func (s *Divider) askAll(ctx context.Context, a *asking, all []*division) {
	questions := map[uint32][]question{}
	for _, d := range all {
		for i := range d.parts {
			questions[d.parts[i].Shard] = append(questions[d.parts[i].Shard], d.question(i))
		}
	}
	a.mu.Lock()
	if a.pending == nil {
		a.pending, a.putting, a.answers = map[uint32]bool{}, map[uint32]int{}, map[question]task.Space{}
	}
	var asked sync.WaitGroup
	for shard, about := range questions {
		if a.pending[shard] {
			continue
		}
		a.pending[shard] = true
		asked.Add(1)
		a.calls.Go(func() {
			defer asked.Done()
			s.ask(ctx, a, shard, about)
		})
	}
	a.mu.Unlock()
	waitBriefly(&asked)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, d := range all {
		d.asking = a
		for i := range d.parts {
			d.parts[i].space, d.parts[i].known = a.answers[d.question(i)]
		}
	}
	clear(a.answers)
}

func (s *Divider) ask(ctx context.Context, a *asking, shard uint32, about []question) {
	names := make([]task.SpaceName, len(about))
	for i := range about {
		names[i] = about[i].name
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	spaces, err := s.shards.Spaces(ctx, shard, names)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pending, shard)
	if err != nil {
		return
	}
	for i := range spaces {
		a.answers[about[i]] = spaces[i]
	}
}

// begin sends a share to a shard in the background. It returns false, and sends nothing, if parallel.Limit shares are on their way there:
// then the shard's answers are late.
func (a *asking) begin(shard uint32, answered *sync.WaitGroup, put func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.putting[shard] >= parallel.Limit {
		return false
	}
	a.putting[shard]++
	answered.Add(1)
	a.calls.Go(func() {
		defer answered.Done()
		put()
		a.mu.Lock()
		defer a.mu.Unlock()
		a.putting[shard]--
	})
	return true
}

// waitBriefly waits for all, but no longer than askPatience. It reports whether all are done.
func waitBriefly(all *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	t := time.NewTimer(askPatience)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// needsDivision reports whether to divide again: a shard does not use its share, or another division would help one that is out of room,
// or nearly so.
func (d *division) needsDivision(seen map[spaceName][3]uint64) bool {
	settled := true
	for i := range d.parts {
		p := &d.parts[i]
		settled = settled && (p.settled() || !p.known)
		if p.known {
			at := spaceName{d.name, p.Shard}
			for f, n := range p.space.Refused {
				p.refused[f] = n != seen[at][f]
			}
			seen[at] = p.space.Refused
		}
	}
	// a shard that was away when limits were lowered may have too much
	if room := d.room(); !settled || least(room, task.Amounts{}) != (task.Amounts{}) {
		return true
	}
	want, holders := d.shareOut(), d.holders()
	for i := range d.parts {
		p := &d.parts[i]
		for f, to := range want[i].Each() {
			has, used := *p.space.Share.Each()[f], *p.space.Use.Each()[f]
			if *to > has && p.known && (p.refused[f] || has-used < (*to-used)/int64(2*holders) || f == runningField && p.space.Ready > 0 &&
				used >= has) {
				return true
			}
		}
	}
	return false
}

func (d *division) holders() (n int) {
	for i := range d.parts {
		if d.parts[i].holds() {
			n++
		}
	}
	return max(n, 1)
}
