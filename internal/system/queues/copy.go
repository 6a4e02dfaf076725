package queues

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/namespaces"
	"github.com/pawlq/pawl/internal/task"
)

// copies sends copies of queues to the data shards, and remembers which of them the shards have.
//
// A change of a queue is a new version of its row, of which each of the queue's shards gets a copy. The leader sends a copy until the shard
// has confirmed it. What a shard lacks follows from the rows: every copy that no shard has confirmed to this leader. So a leader that
// remembers nothing sends too much, and never too little.
type copies struct {
	system      *system.Shard
	shards      Shards
	ensureShare func(ctx context.Context, ns string, shard uint32) error // see Config

	confirmed system.Memory[map[copyName]uint64] // versions of the copies that shards are known to have
	unsent    chan struct{}                      // capacity 1: shards may lack copies
}

// copyName names a shard's copy of a queue.
type copyName struct {
	shard uint32
	queue system.Name
}

// copyShards returns the shards that get copies: all except those that are about to drop theirs.
func (q Queue) copyShards() []uint32 {
	return slices.DeleteFunc(q.Shards(), func(shard uint32) bool {
		p := q.part(shard)
		return p != nil && p.Retiring != 0
	})
}

// lateTime is how long a shard may take to confirm a copy after another shard has. It is longer than an election.
const lateTime = 2 * time.Second

// send sends a queue's configuration to its shards at the same time. The error names those that have not confirmed it in time.
func (c *copies) send(ctx context.Context, q Queue) error {
	shards := q.copyShards()
	errs := make([]error, len(shards))
	soon, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(math.MaxInt64, cancel)
	defer late.Stop()
	parallel.Run(len(shards), func(i int) {
		if errs[i] = c.sendTo(soon, q, shards[i]); errs[i] == nil {
			late.Reset(lateTime)
		}
	})
	return unconfirmed(ctx, q, shards, errs)
}

// unconfirmed returns an error that names the shards that have not confirmed their copies; nil: all have.
func unconfirmed(ctx context.Context, q Queue, shards []uint32, errs []error) error {
	var names []string
	var why *task.Error
	for i, err := range errs {
		if err == nil {
			continue
		}
		e, refused := task.AsError(err)
		if refused && e.Code != task.CodeUnavailable {
			return err
		}
		names = append(names, fmt.Sprint(shards[i]))
		if why == nil {
			why = e
		}
	}
	switch {
	case len(names) == 0:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	word, have, reason := "shard", "has", ""
	if len(names) > 1 {
		word, have = "shards", "have"
	}
	if why != nil {
		reason = ": " + why.Message
	}
	return task.Unavailable(time.Second,
		"queue %q: the change is made, but %s %s of the %d that hold the queue %s not confirmed it yet, and will get it%s",
		q.Name, word, strings.Join(names, ", "), len(shards), have, reason)
}

func (c *copies) sendTo(ctx context.Context, q Queue, shard uint32) error {
	return c.sendPart(ctx, copyPart{copyTarget{shard, q.Namespace}, map[string]task.QueueConfig{q.Name: q.copyFor(shard)}})
}

// sendPart sends copies to a shard, and remembers that it has them.
func (c *copies) sendPart(ctx context.Context, p copyPart) error {
	since, err := system.View(ctx, c.system, func(r store.Reader) (uint64, error) {
		n, err := namespaces.Get(r, p.ns)
		if errors.Is(err, task.ErrNotFound) {
			return 0, nil // so are its queues: see dropLate
		}
		return n.Since, err
	})
	if err == nil {
		err = c.ensureShare(ctx, p.ns, p.shard)
	}
	if err == nil {
		err = c.shards.CopyQueues(ctx, p.shard, p.ns, since, p.configs)
	}
	if err != nil {
		c.resend()
		return err
	}
	c.confirmed.In(c.system, func(versions *map[copyName]uint64) {
		if *versions == nil {
			*versions = map[copyName]uint64{}
		}
		for name, config := range p.configs {
			at := copyName{p.shard, system.Name{Namespace: p.ns, Name: name}}
			(*versions)[at] = max((*versions)[at], config.Version)
		}
	})
	return c.dropLate(ctx, p)
}

// dropLate drops copies that reached a shard after it had dropped its own: their queues have been deleted, or have left
// the shard, meanwhile.
func (c *copies) dropLate(ctx context.Context, p copyPart) error {
	late, err := system.View(ctx, c.system, func(r store.Reader) (late []Queue, err error) {
		for name := range p.configs {
			q, dropping, ok, err := Get(r, p.ns, name)
			if err != nil {
				return nil, err
			}
			if !ok {
				q.Config.Version = system.GetNumber(r, system.FloorKey) // no copy of a deleted queue is newer
			}
			if !ok || dropping || !q.In(p.shard) {
				late = append(late, Queue{Namespace: p.ns, Name: name, Shard: p.shard, Config: q.Config})
			}
		}
		return late, nil
	})
	for _, q := range late {
		if e := c.shards.DropQueue(ctx, p.shard, q.Namespace, q.Name, q.Config.Version); e != nil && !errors.Is(e, task.ErrWrongState) {
			err = errors.Join(err, e)
		}
		c.forget(q)
		c.resend() // if it is kept after all, the shard needs its copy
	}
	return err
}

// has reports whether a shard is known to have a copy as new as version.
func (c *copies) has(name copyName, version uint64) (has bool) {
	c.confirmed.In(c.system, func(versions *map[copyName]uint64) { has = (*versions)[name] >= version })
	return has
}

// forget forgets which shards have copies of a queue: they may drop them.
func (c *copies) forget(q Queue) {
	c.confirmed.In(c.system, func(versions *map[copyName]uint64) {
		for _, shard := range q.Shards() {
			delete(*versions, copyName{shard, q.FullName()})
		}
	})
}

// resend has Repair send the copies that shards lack.
func (c *copies) resend() {
	select {
	case c.unsent <- struct{}{}:
	default:
	}
}

const (
	// copyChunk is how many configurations one call sends to a shard during a repair.
	copyChunk = 500
	// repairPause and maxRepairPause bound the pause before a repair is retried.
	repairPause    = 200 * time.Millisecond
	maxRepairPause = 5 * time.Second
	// copyTime bounds the sending of what was read: a shard may drop its copy RetireEvery after its part was marked.
	copyTime = RetireEvery / 2
)

// Repair sends the copies that shards lack and completes deletions, until ctx is done: first what an earlier leader has left undone, then
// whatever a call could not do. It looks at all rows when a call has failed, and when AdvanceMoves asks for it, about every minute. Each
// lane is repaired on its own: one whose shard hangs is left alone, while the others are repaired again.
func (s *Queues) Repair(ctx context.Context) {
	var lanes sync.WaitGroup
	defer lanes.Wait()
	var busy, pauses sync.Map // the lanes that are being repaired or pause, and how long they paused last
	attempt := func(lane string, err error) {
		if err == nil || ctx.Err() != nil {
			pauses.Delete(lane)
			return
		}
		s.log.Warn("copies of queues are not complete yet", "error", err)
		last, _ := pauses.LoadOrStore(lane, repairPause/2)
		pause := min(2*last.(time.Duration), maxRepairPause)
		pauses.Store(lane, pause)
		system.Sleep(ctx, pause)
	}
	for ctx.Err() == nil {
		err := s.copyAll(ctx, func(lane string, repair func(ctx context.Context) error) {
			if _, is := busy.LoadOrStore(lane, nil); !is {
				lanes.Go(func() {
					attempt(lane, repair(ctx))
					busy.Delete(lane)
					s.copies.resend() // it may lack more by now
				})
			}
		})
		if attempt("", err); err != nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.copies.unsent:
			system.Sleep(ctx, repairPause) // a shard that refuses at once is not asked in a tight loop
		}
	}
}

// copyPart is the queues sent to a shard in one call.
type copyPart struct {
	copyTarget
	configs map[string]task.QueueConfig
}

type copyTarget struct {
	shard uint32
	ns    string
}

// copyAll calls start for each lane of what the rows say is unfinished: the copies that a shard lacks, or the deletions of queues in the
// same shards. No lane waits for another.
func (s *Queues) copyAll(ctx context.Context, start func(lane string, repair func(ctx context.Context) error)) error {
	var queues []Queue
	dropping := map[string][]Queue{}
	_, err := system.View(ctx, s.shard, func(r store.Reader) (struct{}, error) {
		return struct{}{}, Scan(r, []byte{system.QueueTable}, []byte{system.QueueTable + 1}, func(q Queue, drops bool) bool {
			if drops {
				lane := fmt.Sprint("deletions in ", q.Shards())
				dropping[lane] = append(dropping[lane], q)
			} else {
				queues = append(queues, q)
				s.trackMoves(q)
			}
			return true
		})
	})
	if err != nil {
		return err
	}
	until := time.Now().Add(copyTime)
	in := func(repair func(ctx context.Context) error) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			ctx, cancel := context.WithDeadline(ctx, until)
			defer cancel()
			return repair(ctx)
		}
	}
	for _, lane := range s.copies.lacking(queues) {
		start(fmt.Sprint("copies in ", lane[0].shard), in(func(ctx context.Context) error { return s.copies.sendLane(ctx, lane) }))
	}
	for name, lane := range dropping {
		start(name, in(func(ctx context.Context) error { return s.finishDrops(ctx, lane) }))
	}
	return nil
}

// finishDrops completes deletions in the same shards, until there is no time left.
func (s *Queues) finishDrops(ctx context.Context, lane []Queue) (err error) {
	for _, q := range lane {
		if e := s.finishDrop(ctx, q, copyTime); !errors.Is(e, task.ErrWrongState) {
			err = errors.Join(err, e)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return err
}

// sendLane sends copies to one shard, until a call fails: the others would wait as long.
func (c *copies) sendLane(ctx context.Context, lane []copyPart) error {
	for _, p := range lane {
		if err := c.sendPart(ctx, p); err != nil {
			return fmt.Errorf("shard %d: %w", p.shard, err)
		}
	}
	return nil
}

// lacking returns the copies that shards are not known to have: see copyLanes.
func (c *copies) lacking(queues []Queue) (lanes [][]copyPart) {
	c.confirmed.In(c.system, func(versions *map[copyName]uint64) { lanes = copyLanes(queues, *versions) })
	return lanes
}

// copyLanes returns, for each shard, the copies that it does not have in their current versions, in calls of bounded size.
func copyLanes(queues []Queue, confirmed map[copyName]uint64) (lanes [][]copyPart) {
	laneOf, open := map[uint32]int{}, map[copyTarget]map[string]task.QueueConfig{} // the calls that are not full yet
	for _, q := range queues {
		for _, shard := range q.copyShards() {
			if confirmed[copyName{shard, q.FullName()}] >= q.Config.Version {
				continue
			}
			to := copyTarget{shard, q.Namespace}
			if len(open[to])%copyChunk == 0 {
				at, known := laneOf[shard]
				if !known {
					at = len(lanes)
					laneOf[shard], lanes = at, append(lanes, nil)
				}
				open[to] = map[string]task.QueueConfig{}
				lanes[at] = append(lanes[at], copyPart{to, open[to]})
			}
			open[to][q.Name] = q.copyFor(shard)
		}
	}
	return lanes
}
