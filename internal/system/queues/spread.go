package queues

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pawlq/pawl/internal/events"
	"github.com/pawlq/pawl/internal/parallel"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/system"
	"github.com/pawlq/pawl/internal/system/auditlog"
	"github.com/pawlq/pawl/internal/task"
)

const (
	// movePause is how often interrupted moves are resumed, RetireEvery how often shards are retired. The latter is longer than any call
	// takes, so that no copy sent before a shard was marked arrives after it has dropped its own.
	movePause   = time.Second
	RetireEvery = time.Minute
	// retireTime bounds a step towards retiring a queue's shards.
	retireTime = 5 * time.Second
)

// Spread spreads a queue over shards, slot by slot. It returns when the slots have moved; existing tasks stay where they are. After
// unavailable the move may have begun, and continues in the background.
func (s *Queues) Spread(ctx context.Context, by task.Author, ns, name string, target SpreadTarget) (Queue, error) {
	planned, err := s.planSpread(ctx, ns, name, target)
	if err != nil || target.DryRun {
		return planned, err
	}
	q, err := system.Update(ctx, s.shard, func(tx *store.Tx) (Queue, error) {
		q, dropping, shards, err := spreadTarget(tx, ns, name, target)
		if err != nil {
			return q, err
		}
		was := factsOf(q)
		moves := q.spreadOver(shards, tx.Now())
		if err := mayMove(q, moves); err != nil {
			return q, err
		}
		if !moves && q.Own == target.Own {
			return q, nil
		}
		q.Own = target.Own
		if q.Config.Version++; moves || dropping && q.divided() { // see useAgain
			q.Moved = q.Config.Version
		}
		if err := onQueue(tx, auditlog.Action{By: by, Action: task.QueueSpread}, q, was, factsOf(q)); err != nil {
			return q, err
		}
		s.setQueue(tx, q)
		s.recount()
		s.addEvent(tx, q, events.Event{Kind: events.QueueChanged})
		return q, nil
	})
	for err == nil && q.moving() {
		moving := q
		q, err = s.openSlots(ctx, q)
		if errors.Is(err, errRevised) { // by another call, which may have taken the step
			q, err = s.reread(ctx, moving)
		}
	}
	return q, err
}

// planSpread returns the queue as it will be when its slots have moved. Unless forced to, it refuses to spread a queue over several shards
// while tasks have keys in different slots, because such tasks will be refused then.
func (s *Queues) planSpread(ctx context.Context, ns, name string, target SpreadTarget) (Queue, error) {
	var before Queue
	q, err := system.View(ctx, s.shard, func(r store.Reader) (Queue, error) {
		q, _, shards, err := spreadTarget(r, ns, name, target)
		if before = q; err != nil {
			return q, err
		}
		moves := q.spreadOver(shards, 0)
		for i := range q.Parts {
			q.Parts[i].Slots = q.Parts[i].Next
		}
		q.Own = target.Own
		return q, mayMove(q, moves)
	})
	if err != nil || target.Force || len(q.targets()) < 2 || len(before.targets()) > 1 {
		return q, err
	}
	for _, shard := range before.Shards() {
		if err := s.cfg.Shards.CheckKeys(ctx, shard, ns, name); err != nil {
			return q, err
		}
	}
	return q, nil
}

func mayMove(q Queue, moves bool) error {
	if moves && q.Config.Settings.KeyOrder == task.KeyOrderStrict {
		return system.WrongState("queue %q keeps a strict order of keys, which a move of its slots would break: "+
			"set key_order to none, spread it, and set it back", q.Name)
	}
	return nil
}

// spreadTarget returns a queue, whether it is being deleted, and the shards that it will be spread over.
func spreadTarget(r store.Reader, ns, name string, target SpreadTarget) (q Queue, dropping bool, shards []uint32, err error) {
	q, dropping, ok, err := Get(r, ns, name)
	if err == nil && !ok {
		err = task.NotFound("queue", name)
	}
	if err != nil {
		return q, dropping, nil, err
	}
	settings, _, err := system.GetRow[system.Settings](r, system.SettingsKey)
	if err != nil {
		return q, dropping, nil, err
	}
	if shards, err = chooseShards(r, q, settings, target); err != nil {
		return q, dropping, nil, err
	}
	if q.moving() {
		return q, dropping, nil, task.Unavailable(time.Second, "queue %q: its slots are moving already", name)
	}
	return q, dropping, shards, nil
}

// reread returns the current row of a queue.
func (s *Queues) reread(ctx context.Context, was Queue) (Queue, error) {
	return system.View(ctx, s.shard, func(r store.Reader) (Queue, error) {
		q, dropping, ok, err := Get(r, was.Namespace, was.Name)
		if err == nil && (!ok || dropping) {
			err = task.NotFound("queue", was.Name)
		}
		return q, err
	})
}

// openSlots completes a move: once no copy takes the moving slots any more, the shards that they move to begin to.
func (s *Queues) openSlots(ctx context.Context, q Queue) (Queue, error) {
	if err := s.copies.send(ctx, q); err != nil {
		return q, err
	}
	if err := s.cfg.divide(ctx, q); err != nil {
		return q, err
	}
	until := map[uint32]store.Time{}
	for _, p := range q.Parts {
		if p.Left == 0 {
			continue
		}
		last, err := s.cfg.Shards.KeysUntil(ctx, p.Shard, q.Namespace, q.Name)
		if err != nil {
			return q, err
		}
		until[p.Shard] = last
	}
	q, err := s.revise(ctx, q, func(q *Queue) {
		for i := range q.Parts {
			p := &q.Parts[i]
			p.Slots, p.LeftUntil = p.Next, max(p.LeftUntil, until[p.Shard])
		}
	})
	if err != nil {
		return q, err
	}
	return q, s.copies.send(ctx, q)
}

// errRevised means that the queue's row is no longer the one that a step was planned for.
var errRevised = errors.New("the queue was changed concurrently")

// revise changes the parts of a queue if its row is unchanged.
func (s *Queues) revise(ctx context.Context, was Queue, change func(q *Queue)) (Queue, error) {
	return system.Update(ctx, s.shard, func(tx *store.Tx) (Queue, error) {
		q, dropping, ok, err := Get(tx, was.Namespace, was.Name)
		if err != nil {
			return q, err
		}
		if !ok || dropping || q.Config.Version != was.Config.Version {
			return q, errRevised
		}
		change(&q)
		q.Config.Version++
		s.setQueue(tx, q)
		return q, nil
	})
}

// trackMoves has the leader tend a queue if its row says that it is unfinished. It is called for each row that is written, and for all of
// them by copyAll.
func (s *Queues) trackMoves(q Queue) {
	s.unfinished.In(s.shard, func(queues *map[system.Name]bool) {
		if !q.unfinished() {
			delete(*queues, q.FullName())
			return
		}
		if *queues == nil {
			*queues = map[system.Name]bool{}
		}
		if (*queues)[q.FullName()] = q.moving(); q.moving() {
			select {
			case s.moves <- struct{}{}:
			default:
			}
		}
	})
}

// AdvanceMoves takes the next steps for unfinished queues, until ctx is done. It calls minutely whenever it retires
// shards, so that what else is due about every minute does not wake the node by itself. A queue whose shards do not
// answer delays no other.
func (s *Queues) AdvanceMoves(ctx context.Context, minutely func(ctx context.Context)) {
	var steps sync.WaitGroup
	defer steps.Wait()
	step := func(limited context.Context, name system.Name, retire bool) {
		if err := s.advanceQueue(limited, name, retire); err != nil && ctx.Err() == nil {
			s.log.Info("a queue's slots wait", "queue", name.Name, "error", err)
		}
	}
	var busy sync.Map // the moving queues for which a step is being taken
	var retiring atomic.Bool
	var retired time.Time
	for s.waitToAdvance(ctx, retired); ctx.Err() == nil; s.waitToAdvance(ctx, retired) {
		for _, name := range s.unfinishedQueues(true) { // not many: a caller began each of the moves
			if _, is := busy.LoadOrStore(name, nil); !is {
				steps.Go(func() {
					defer busy.Delete(name)
					step(ctx, name, false)
				})
			}
		}
		if time.Since(retired) < RetireEvery {
			continue
		}
		retired = time.Now()
		if names := s.unfinishedQueues(false); !retiring.Swap(true) {
			steps.Go(func() {
				defer retiring.Store(false)
				parallel.Run(len(names), func(i int) {
					limited, cancel := context.WithTimeout(ctx, retireTime)
					defer cancel()
					step(limited, names[i], true)
				})
			})
		}
		s.copies.resend() // has Repair find what is unfinished in the rows, whatever is remembered of it
		minutely(ctx)
	}
}

// waitToAdvance waits until it is time to tend queues: every movePause while slots are moving, otherwise when it is
// time to retire. A move that has just begun gets a movePause too: the call that began it takes the next step itself.
func (s *Queues) waitToAdvance(ctx context.Context, retired time.Time) {
	system.Sleep(ctx, movePause)
	if len(s.unfinishedQueues(true)) > 0 {
		return
	}
	timer := time.NewTimer(max(time.Until(retired.Add(RetireEvery)), 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.moves:
		system.Sleep(ctx, movePause)
	case <-timer.C:
	}
}

// unfinishedQueues returns the queues whose slots are moving, or those that are unfinished otherwise.
func (s *Queues) unfinishedQueues(moving bool) (names []system.Name) {
	s.unfinished.In(s.shard, func(queues *map[system.Name]bool) {
		for name, moves := range *queues {
			if moves == moving {
				names = append(names, name)
			}
		}
	})
	return names
}

// advanceQueue takes the next step for a queue, if it is time.
func (s *Queues) advanceQueue(ctx context.Context, name system.Name, retire bool) error {
	q, err := system.View(ctx, s.shard, func(r store.Reader) (Queue, error) {
		q, dropping, ok, err := Get(r, name.Namespace, name.Name)
		if !ok || dropping {
			return Queue{Namespace: name.Namespace, Name: name.Name}, err // there is nothing to do
		}
		return q, err
	})
	if err != nil {
		return err
	}
	switch {
	case q.moving():
		q, err = s.openSlots(ctx, q)
	case retire && q.unfinished():
		var now store.Time
		if q, now, err = s.forgetMoves(ctx, q); err == nil {
			q, err = s.retireParts(ctx, q, now)
		}
	}
	if err == nil {
		s.trackMoves(q)
	}
	return err
}

// forgetMoves stops shards from being asked about slots that have left them, once no key and no message can be known there any more. It
// returns the time.
func (s *Queues) forgetMoves(ctx context.Context, q Queue) (Queue, store.Time, error) {
	now, err := system.Update(ctx, s.shard, func(tx *store.Tx) (store.Time, error) { return tx.Now(), nil })
	if err != nil {
		return q, now, err
	}
	forgotten, later, err := s.forgettable(ctx, q, now)
	if err != nil {
		return q, now, err
	}
	restored := func(p Part) bool { return p.Left != 0 && p.LeftAt == 0 }
	old := func(p Part) bool {
		return p.Left != 0 && p.Recent && p.LeftAt != 0 && now >= p.LeftAt.Add(task.MovedRequestWindow)
	}
	if len(forgotten)+len(later) == 0 && !slices.ContainsFunc(q.Parts, func(p Part) bool { return restored(p) || old(p) }) {
		return q, now, nil
	}
	q, err = s.revise(ctx, q, func(q *Queue) {
		for i := range q.Parts {
			p := &q.Parts[i]
			if old(*p) {
				p.Recent = false
			}
			if restored(*p) {
				p.LeftAt = now
			}
			p.LeftUntil = max(p.LeftUntil, later[p.Shard])
			if slices.Contains(forgotten, p.Shard) {
				p.Recent, p.Left, p.LeftAt, p.LeftUntil = false, 0, 0, 0
			}
		}
	})
	if err != nil {
		return q, now, err
	}
	return q, now, s.copies.send(ctx, q)
}

// forgettable returns the shards where no key and no message of the slots that have left can be known any more, and, for shards where once
// keys live on, until when. A key that was free when the shard was asked can't be acquired there, since the slots are closed; but the
// holder of a once key may finish it, so its end is not known before.
func (s *Queues) forgettable(ctx context.Context, q Queue, now store.Time) (shards []uint32, later map[uint32]store.Time, err error) {
	later = map[uint32]store.Time{}
	for _, p := range q.Parts {
		if p.Left == 0 || p.LeftAt == 0 || now < p.LeftAt.Add(task.MovedMessageWindow) || now < p.LeftUntil.Add(task.ClockSlack) {
			continue
		}
		held, err := s.cfg.Shards.HoldsUnique(ctx, p.Shard, q.Namespace, q.Name, p.Left)
		if err != nil {
			return nil, nil, err
		}
		onces, err := s.cfg.Shards.OnceUntil(ctx, p.Shard, q.Namespace, q.Name, p.Left)
		if err != nil {
			return nil, nil, err
		}
		if now < onces.Add(task.ClockSlack) {
			later[p.Shard] = onces
		}
		if held || later[p.Shard] != 0 {
			continue
		}
		shards = append(shards, p.Shard)
	}
	return shards, later, nil
}

// retireParts removes parts in which nothing of a queue is left. A part is marked first, once its shard has the queue's changes, since it
// gets no more from then on, and may have tasks; the next time its shard drops its copy or refuses; then the part is removed, if the mark
// is still there.
func (s *Queues) retireParts(ctx context.Context, q Queue, now store.Time) (Queue, error) {
	changed := q.Config.Version // later ones only mark and remove parts
	for _, p := range q.Parts {
		if p.Next != 0 || p.Left != 0 {
			continue
		}
		var err error
		if p.Retiring == 0 {
			if !s.copies.has(copyName{p.Shard, q.FullName()}, changed) {
				continue
			}
			if q, err = s.revise(ctx, q, func(q *Queue) { q.part(p.Shard).Retiring = now }); err != nil {
				return q, err
			}
			continue
		}
		if now < p.Retiring.Add(RetireEvery-movePause) { // another leader has marked it
			continue
		}
		err = s.cfg.Shards.DropQueue(ctx, p.Shard, q.Namespace, q.Name, q.Config.Version)
		if errors.Is(err, task.ErrWrongState) {
			continue // it has tasks
		}
		if err != nil {
			return q, fmt.Errorf("shard %d: %w", p.Shard, err)
		}
		q, err = s.revise(ctx, q, func(q *Queue) {
			q.Parts = slices.DeleteFunc(q.Parts, func(other Part) bool { return other.Shard == p.Shard })
		})
		if err != nil {
			return q, err
		}
		s.log.Info("a queue has left a shard", "queue", q.Name, "shard", p.Shard)
	}
	return q, nil
}
