package explain

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/breaker"
	"github.com/pawlq/pawl/internal/engine/limit"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/humanize"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// QueueExplanation explains what the ready tasks of a queue wait for, in one shard.
type QueueExplanation struct {
	Ready     int64
	Claimable int64 // of the ready: not held back by a pause, a breaker or a limit
	Claimed   int64
	Waiting   int64 // scheduled and retrying
	// Reasons are why ready tasks wait; Count is how many. A task that waits for several reasons is counted at each,
	// except that of the reasons of its key only the first counts. For keys there is one reason per code, for types one
	// per type.
	Reasons []Reason
	Keys    []HeldKey // the keys with the most held tasks, up to maxKeysShown
	// Idle are the types of ready tasks that no worker takes, the ones with the most tasks first, up to maxTypesShown.
	Idle        []IdleType
	NextDue     store.Time    // of scheduled and retrying tasks; 0: there are none
	OldestReady store.Time    // since when the oldest ready task has been ready; 0: there is none
	MaxWait     time.Duration // from the settings: a task that is ready for longer needs attention
	// Partial means that there are more keys and types than were read; the counts cover only those.
	Partial bool
}

// HeldKey is a key whose tasks are held by a limit or pause of the key.
type HeldKey struct {
	Key   string
	Code  task.Why
	Tasks int64
	Until store.Time // for a rate: when the next token arrives
}

// IdleType is a type that no worker takes.
type IdleType struct {
	Type  string
	Tasks int64
}

// Bounds of a queue's explanation.
const (
	maxKeysShown   = 10
	maxTypesLooked = 1_000   // types for which workers are checked, the ones with the most tasks
	maxRowsOfKeys  = 250_000 // rows of lanes, of claimed tasks and of buckets that are read, each; reading is concurrent with rounds
)

// Memory is the part of the leader's memory that explaining a queue needs.
type Memory struct {
	Now     store.Time
	Next    store.Time // there is no deadline before this
	Most    int64      // how many tasks of the queue may run in this shard
	Running []Runner   // some of the queue's running tasks, if it has reached this limit
	Stale   map[string]bool
	Workers Workers
	Full    *task.Space // the namespace's usage, if it has reached its running limit
}

// MemoryOf copies it. Its cost is that of reading one task, however long the queue is.
func MemoryOf(r *engine.Round, ns, name string, workers func(queue string) Workers) (*Memory, error) {
	q := r.Queue(ns, name)
	if q == nil {
		return nil, task.NotFound("queue", name)
	}
	m := &Memory{Now: r.Now(), Next: r.Leader().FirstDeadline(), Workers: workers(name), Most: q.MaxRunning()}
	if q.Counts().Claimed >= m.Most {
		m.Running = runnersOf(r, ns, r.ClaimedTasks(q, maxLooked))
	}
	if space, full := q.Space(); full {
		m.Full = &space
	}
	for _, row := range q.StaleRows() {
		if m.Stale == nil {
			m.Stale = map[string]bool{}
		}
		m.Stale[string(row)] = true
	}
	return m, nil
}

// Queue explains what the ready tasks of a queue wait for. It reads only the state, so that no round waits for it:
// 100,000 keys are 100,000 lanes. The copy of the leader's memory may be slightly older or newer than the state.
func Queue(from store.Reader, ns, name string, m *Memory) (*QueueExplanation, error) {
	row, ok := from.Get(schema.QueueKey(ns, schema.TableQueue, name))
	if !ok {
		return nil, task.NotFound("queue", name)
	}
	config := schema.Must(task.DecodeQueueConfig(row))
	e := &queueExplainer{from: from, ns: ns, name: name, config: &config, m: m, keys: map[string]*keyState{}, types: map[string]int64{},
		free: map[string]int64{}, count: map[task.Why]int64{}, pausedTypes: map[string]int64{}, broken: map[string]*brokenType{}}
	if row, ok = from.Get(schema.QueueKey(ns, schema.TableCounts, name)); ok {
		e.counts = schema.Must(schema.DecodeCounts(row))
	}
	e.readKeys()
	e.readBreakers()
	e.readLanes()
	return e.explain(), nil
}

// queueExplainer summarizes the lanes of a queue.
type queueExplainer struct {
	from     store.Reader
	ns, name string
	config   *task.QueueConfig
	counts   schema.Counts
	m        *Memory

	keys        map[string]*keyState // keys with claimed tasks, a bucket or ready tasks
	types       map[string]int64     // ready tasks by type
	free        map[string]int64     // of those, the ones not held by their type or key
	count       map[task.Why]int64   // tasks held by their keys
	pausedTypes map[string]int64
	broken      map[string]*brokenType // types whose breaker is not closed
	held        int64                  // tasks read that are held by their type or key
	oldest      query.Oldest
	partial     bool
}

// brokenType is a type whose breaker is not closed.
type brokenType struct {
	*breaker.Breaker
	tasks int64 // ready
	probe bool  // one of them will be let through
}

// keyState is a key of a queue.
type keyState struct {
	claimed  int // the number of claims known; exact if it may reach the limit
	yielding int // of these, the ones that the order of the key does not wait for
	bucket   *limit.Bucket
	tasks    int64 // ready
	why      task.Why
	until    store.Time
	known    bool // why has been determined
}

func (e *queueExplainer) key(name string) *keyState {
	k := e.keys[name]
	if k == nil {
		k = &keyState{}
		e.keys[name] = k
	}
	return k
}

// readKeys reads which keys have claimed tasks or spent tokens.
func (e *queueExplainer) readKeys() {
	s := &e.config.Settings
	limited := s.KeyOrder != task.KeyOrderNone || s.PerKey.MaxRunning > 0 || s.PerKey.Rate.IsSet()
	for _, k := range s.Keys {
		limited = limited || k.MaxRunning > 0 || k.Rate.IsSet()
	}
	type claimOf struct {
		id  task.ID
		key *keyState
	}
	var claims []claimOf // to be read: those listed in rows of keys may have ended since
	prefix := schema.QueueKey(e.ns, schema.TableClaimed, e.name)
	e.scan(prefix, limited, func(k, _ []byte) {
		switch at := e.key(string(k[len(prefix) : len(k)-17])); {
		case e.m.Stale[string(k)]:
		case s.KeyOrder == task.KeyOrderStrict:
			claims = append(claims, claimOf{schema.IDAt(k), at})
		default:
			at.claimed++
		}
	})
	prefix = schema.QueueKey(e.ns, schema.TableUse, e.name)
	e.scan(prefix, limited || s.Rate.IsSet(), func(k, v []byte) {
		u := schema.Must(limit.DecodeUse(v))
		at := e.key(string(k[len(prefix):]))
		at.bucket = u.Bucket
		if most := e.keysLimit(string(k[len(prefix):])); most > 0 && at.claimed+len(u.Named) >= most {
			for _, id := range u.Named {
				claims = append(claims, claimOf{id, at})
			}
		}
	})
	slices.SortFunc(claims, func(a, b claimOf) int { return a.id.Compare(b.id) })
	ids := make([]task.ID, len(claims))
	for i := range claims {
		ids[i] = claims[i].id
	}
	e.from.GetEach(schema.IDKeys(e.ns, schema.TableExec, ids), func(i int, row []byte) {
		x := schema.Must(schema.DecodeExec(row))
		if x.State != task.Claimed {
			return
		}
		claims[i].key.claimed++
		if x.Claim.Yields {
			claims[i].key.yielding++
		}
	})
}

func (e *queueExplainer) readBreakers() {
	prefix := schema.QueueKey(e.ns, schema.TableBreaker, e.name)
	e.scan(prefix, e.config.Settings.Breaks(), func(k, v []byte) {
		b := schema.Must(breaker.Decode(string(k[len(prefix):]), v))
		if b.State != breaker.Closed {
			e.broken[b.Type] = &brokenType{Breaker: b}
		}
	})
}

// scan reads rows if they are needed, at most maxRowsOfKeys.
func (e *queueExplainer) scan(prefix []byte, needed bool, fn func(k, v []byte)) {
	if !needed {
		return
	}
	n := 0
	e.from.Scan(prefix, schema.After(prefix), func(k, v []byte) bool {
		if n++; n > maxRowsOfKeys {
			e.partial = true
			return false
		}
		fn(k, v)
		return true
	})
}

func (e *queueExplainer) readLanes() {
	prefix := schema.QueueKey(e.ns, schema.TableLane, e.name)
	e.scan(prefix, true, func(k, v []byte) {
		name, ok := schema.ParseLane(k[len(prefix):])
		row := schema.Must(schema.DecodeLane(v))
		if !ok {
			schema.Damaged(fmt.Errorf("lane key %q", bytes.Clone(k)))
		}
		e.lane(name, row.Count)
		e.oldest.Add(k[len(prefix):], row)
	})
}

// lane adds a lane with n tasks.
func (e *queueExplainer) lane(name schema.LaneName, n int64) {
	e.types[name.Type] += n
	_, paused := e.config.HeldType(name.Type)
	if paused {
		e.pausedTypes[name.Type] += n
	}
	b := e.broken[name.Type]
	if b != nil {
		b.tasks += n
	}
	held := paused || b != nil
	keyHeld := false
	if name.Key != "" {
		k := e.key(name.Key)
		if !k.known {
			k.known = true
			k.why, k.until = e.whyKey(name.Key, k)
		}
		if k.tasks += n; k.why != "" {
			e.count[k.why] += n
			held, keyHeld = true, true
		}
	}
	if b != nil && !paused && !keyHeld && b.Tries() {
		b.probe = true
	}
	if held {
		e.held += n
	} else {
		e.free[name.Type] += n
	}
}

// whyKey returns why no task of a key may run; "": they may.
func (e *queueExplainer) whyKey(key string, k *keyState) (task.Why, store.Time) {
	if _, paused := e.config.HeldKey(key); paused {
		return task.WhyKeyPaused, 0
	}
	rules := e.config.Settings.RulesOf(key)
	if rules.MaxRunning > 0 && k.claimed >= rules.MaxRunning {
		return task.WhyKeyMaxRunning, 0
	}
	if until, empty := k.bucket.EmptyUntil(rules.Rate, e.m.Now); empty {
		return task.WhyKeyRate, until
	}
	if e.orders(k) {
		return task.WhyKeyOrder, 0
	}
	return "", 0
}

func (e *queueExplainer) explain() *QueueExplanation {
	c, behind := &e.counts, query.OldestBehind(e.from, e.ns, e.name)
	out := &QueueExplanation{Ready: c.Ready[0] + c.Ready[1] + c.Ready[2], Claimed: c.Claimed, Waiting: c.Scheduled + c.Retrying,
		NextDue: e.nextDue(), OldestReady: query.EarlierOf(e.oldest.Since(e.from, e.ns, e.name), behind.Since),
		MaxWait: e.config.Settings.MaxWait, Partial: e.partial}
	breakers := e.ofBreakers()
	out.Claimable = out.Ready - e.held - c.Parked
	if out.Ready == 0 {
		return out
	}
	e.wholeQueue(out)
	if n := c.Parked - c.Behind; n > 0 {
		out.Reasons = append(out.Reasons, whyUnique(e.name, n))
	}
	if n := c.Behind + e.count[task.WhyKeyOrder]; n > 0 {
		out.Reasons = append(out.Reasons, e.whyOrder(n, behind))
	}
	for _, typ := range schema.SortedKeys(e.pausedTypes) {
		hold, _ := e.config.HeldType(typ)
		why := whyHeld(e.name, hold)
		why.Count = e.pausedTypes[typ]
		out.Reasons = append(out.Reasons, why)
	}
	out.Reasons = append(out.Reasons, breakers...)
	e.ofKeys(out)
	e.ofWorkers(out)
	slices.SortStableFunc(out.Reasons, func(a, b Reason) int { return cmp.Compare(a.Code.Order(), b.Code.Order()) })
	return out
}

// wholeQueue adds the reasons that hold back all tasks of the queue.
func (e *queueExplainer) wholeQueue(out *QueueExplanation) {
	add := func(why Reason) {
		why.Count = out.Ready
		out.Reasons = append(out.Reasons, why)
		out.Claimable = 0
	}
	s := &e.config.Settings
	if e.config.Paused {
		add(whyQueuePaused(e.name, e.config))
	}
	if e.counts.Claimed >= e.m.Most {
		add(whyQueueFull(e.name, e.config, e.m.Most, e.counts.Claimed, e.m.Running))
	}
	if e.m.Full != nil {
		add(whyNamespaceFull(*e.m.Full))
	}
	if k := e.keys[""]; k != nil {
		if until, empty := k.bucket.EmptyUntil(s.Rate, e.m.Now); empty {
			add(whyQueueRate(e.name, e.config, until, e.m.Now))
		}
	}
}

// ofBreakers returns the reasons of the types whose breakers hold the most tasks, up to breaker.MaxListed. A probe is not held.
func (e *queueExplainer) ofBreakers() (reasons []Reason) {
	for typ, b := range e.broken {
		if b.probe {
			b.tasks--
			e.held--
			e.free[typ]++
		}
		if b.tasks > 0 {
			why := whyBreaker(e.name, b.Info(e.config.Settings.BreakerOf(typ)))
			why.Count = b.tasks
			reasons = append(reasons, why)
		}
	}
	slices.SortFunc(reasons, func(a, b Reason) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Type, b.Type)) })
	return slices.Clip(reasons[:min(len(reasons), breaker.MaxListed)])
}

// ofKeys adds the reasons that hold back keys, one per code, and the keys with the most tasks.
func (e *queueExplainer) ofKeys(out *QueueExplanation) {
	keys := map[task.Why]int{}
	shared := map[task.Why]bool{} // some of these keys use the default limit of keys
	for name, k := range e.keys {
		if k.why == "" || k.tasks == 0 || k.why == task.WhyKeyOrder { // whyOrder reports the last of these
			continue
		}
		keys[k.why]++
		if _, own := e.config.Settings.Keys[name]; !own {
			shared[k.why] = true
		}
		out.Keys = append(out.Keys, HeldKey{name, k.why, k.tasks, k.until})
	}
	slices.SortFunc(out.Keys, func(a, b HeldKey) int { return cmp.Or(cmp.Compare(b.Tasks, a.Tasks), cmp.Compare(a.Key, b.Key)) })
	out.Keys = slices.Clip(out.Keys[:min(len(out.Keys), maxKeysShown)])
	for code, n := range keys {
		out.Reasons = append(out.Reasons, whyKeys(e.name, code, n, e.count[code], shared[code]))
	}
}

// ofWorkers adds the reasons of types that no worker takes, or for which none has a free slot.
func (e *queueExplainer) ofWorkers(out *QueueExplanation) {
	t := &e.m.Workers
	if t.Draining {
		why := whyDraining()
		why.Count = out.Ready
		out.Reasons = append(out.Reasons, why)
	}
	busy, unknown := alike{code: task.WhyWorkersBusy}, alike{code: task.WhyWorkersUnknown}
	types := slices.SortedFunc(maps.Keys(e.types), func(a, b string) int {
		return cmp.Or(cmp.Compare(e.types[b], e.types[a]),
			cmp.Compare(a, b))
	})
	for _, typ := range types[:min(len(types), maxTypesLooked)] {
		why := t.why(e.name, typ, e.counts.Claimed, e.m.Now)
		switch {
		case why == nil:
		case why.Code == task.WhyNoWorker: // for all types
			why.Count = out.Ready
			out.Reasons = append(out.Reasons, *why)
			return
		case why.Code == task.WhyWorkersBusy:
			busy.add(typ, e.free[typ])
		case why.Code == task.WhyWorkersUnknown:
			unknown.add(typ, e.types[typ])
		case len(out.Idle) < maxTypesShown:
			why.Count = e.types[typ]
			out.Reasons = append(out.Reasons, *why)
			out.Idle = append(out.Idle, IdleType{typ, e.types[typ]})
		}
	}
	e.ofTypes(out, &unknown)
	if out.Claimable > 0 {
		e.ofTypes(out, &busy)
	}
}

// alike collects types whose tasks wait for the same reason.
type alike struct {
	code  task.Why
	types []string
	tasks int64
}

func (a *alike) add(typ string, tasks int64) {
	if tasks > 0 {
		a.types, a.tasks = append(a.types, typ), a.tasks+tasks
	}
}

// ofTypes adds one reason for all types of alike.
func (e *queueExplainer) ofTypes(out *QueueExplanation, a *alike) {
	if a.tasks == 0 {
		return
	}
	t := &e.m.Workers
	why := t.reason(a.code, t.of(e.name, a.types, e.m.Now), e.counts.Claimed, e.m.Now)
	why.Count = a.tasks
	out.Reasons = append(out.Reasons, why)
}

// nextDue returns when the next scheduled or retrying task is due.
func (e *queueExplainer) nextDue() (next store.Time) {
	for _, s := range []task.State{task.Scheduled, task.Retrying} {
		// Starting earlier would walk over the tombstones of tasks that were due before.
		lo := schema.WaitKey(e.ns, e.name, s, min(e.m.Next, e.m.Now), task.ID{})
		e.from.Scan(lo, schema.After(schema.StatePrefix(e.ns, schema.TableWaiting, e.name, s)), func(k, _ []byte) bool {
			if at := store.Time(binary.BigEndian.Uint64(k[len(k)-24:])); next == 0 || at < next {
				next = at
			}
			return false
		})
	}
	return next
}

// whyKeys is the reason if several keys hold tasks back; whyKeyFull and others are for a single key. Shared means that
// some of the keys have no limit of their own.
func whyKeys(queue string, code task.Why, keys int, tasks int64, shared bool) Reason {
	which := humanize.Count(int64(keys), "key")
	flag := "--for-key KEY"
	if shared {
		flag = "--for-each-key"
	}
	switch code {
	case task.WhyKeyPaused:
		return Reason{Code: code, Count: tasks, Detail: fmt.Sprintf("%s of queue %q %s paused", which, queue,
			humanize.One(int64(keys), "is", "are")),
			Change: "resume them: " + queueCommand("resume", queue, "--key KEY")}
	case task.WhyKeyMaxRunning:
		return Reason{Code: code, Count: tasks, Detail: fmt.Sprintf("%s of queue %q %s as many tasks as %s", which, queue,
			humanize.One(int64(keys), "is running", "are running"), humanize.One(int64(keys), "its limit allows", "their limits allow")),
			Change: "wait until some of them end, or raise the limit: " + queueCommand("set", queue, flag, "--max-running N")}
	}
	return Reason{Code: code, Count: tasks, Detail: fmt.Sprintf("%s of queue %q %s used up %s rate limit", which, queue,
		humanize.One(int64(keys), "has", "have"), humanize.One(int64(keys), "its", "their")),
		Change: "wait for new tokens, or raise the rate: " + queueCommand("set", queue, flag, "--rate N/PERIOD")}
}
