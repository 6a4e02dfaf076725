package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/workflow"
	"github.com/pawlq/pawl/internal/task"
)

// shards simulates several shards, each with its own queue, and senders between them that lose answers and deliver late or twice.
type shards struct {
	t      *testing.T
	rng    *rand.Rand
	worlds []*engine.World
	tokens map[task.ID]task.Token
	groups map[task.ID]bool // true: it was cancelled
	makes  []*workflow.Call
	orders map[task.ID]bool   // to cancel that were delivered
	whole  map[task.ID]bool   // groups that have been complete
	looked [shardCount]uint64 // up to which round check has looked at a shard
}

const shardCount = 3

func newShards(t *testing.T, seed uint64) *shards {
	s := &shards{t: t, rng: rand.New(rand.NewPCG(seed, 7)), tokens: map[task.ID]task.Token{}, groups: map[task.ID]bool{},
		orders: map[task.ID]bool{}, whole: map[task.ID]bool{}}
	for i := range shardCount {
		w := engine.NewWorld(t)
		w.PutQueue(queueAt(i), task.DefaultSettings(), false)
		s.worlds = append(s.worlds, w)
	}
	return s
}

func queueAt(i int) string { return "q" + strconv.Itoa(i+1) }

// at returns the shard with a number.
func (s *shards) at(number uint32) *engine.World { return s.worlds[number-1] }

func (s *shards) newID(shard int) task.ID {
	return task.NewID(uint32(shard+1), int64(s.worlds[shard].Now)/1000, s.rng.Uint64())
}

func (s *shards) spec(depth int) task.Spec {
	spec := task.Spec{Type: "job", Queue: queueAt(s.rng.IntN(shardCount)), MaxAttempts: 1 + s.rng.IntN(2)}
	if depth > 0 {
		for range s.rng.IntN(3) {
			spec.Then = append(spec.Then, s.spec(depth-1))
		}
	}
	switch s.rng.IntN(12) {
	case 0:
		spec.IdempotencyKey, spec.Then = "key", nil
	case 1:
		spec.Unique = &task.Unique{Key: "u", OnConflict: task.OnConflicts[s.rng.IntN(4)]}
	}
	spec.Fill()
	return spec
}

// step does one thing to some shard.
func (s *shards) step() string {
	i := s.rng.IntN(shardCount)
	w := s.worlds[i]
	switch s.rng.IntN(16) {
	case 0:
		return s.make(i)
	case 1:
		return s.onGroup(s.add)
	case 2:
		return s.onGroup(func(w *engine.World, id task.ID) string {
			_, err := engine.Run(w, func(r *engine.Round) (*workflow.View, error) { return workflow.Close(r, "default", id) })
			return s.allow("close", err)
		})
	case 3:
		if s.rng.IntN(4) > 0 {
			return "nothing"
		}
		return s.onGroup(func(w *engine.World, id task.ID) string {
			_, err := engine.Run(w, func(r *engine.Round) (*workflow.View, error) {
				return workflow.Cancel(r, task.Author{}, "default", id)
			})
			if err == nil {
				s.groups[id] = true
			}
			return s.allow("cancel of a group", err)
		})
	case 4:
		w.BecomeLeader()
		w.Backdate(time.Hour)
		return "new leader"
	case 5:
		d := time.Duration(s.rng.IntN(20000)) * time.Millisecond
		for _, w := range s.worlds {
			w.Pass(d)
		}
		return "time"
	case 6:
		return s.onTask(w, "cancel", engine.Cancel)
	case 7, 8:
		return s.onTask(w, "replay", func(r *engine.Round, ns string, id task.ID) error { return engine.Retry(r, ns, id) })
	case 9, 10, 11:
		return s.carry(w, s.rng.IntN(3) > 0)
	}
	return s.work(i)
}

func (s *shards) make(i int) string {
	if len(s.makes) > 0 && s.rng.IntN(4) == 0 { // a call that comes again
		n := s.makes[s.rng.IntN(len(s.makes))]
		made, err := engine.Run(s.at(n.ID.Shard()), func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) })
		if err != nil || !made.Duplicate {
			s.t.Fatalf("a repeated group call got %+v, %v, want a duplicate", made, err)
		}
		return "group again"
	}
	n := &workflow.Call{Namespace: "default", ID: s.newID(i)}
	n.Open = s.rng.IntN(3) == 0
	for range 1 + s.rng.IntN(6) {
		n.Tasks = append(n.Tasks, s.spec(2))
	}
	done, died := task.Spec{Type: "done", Queue: queueAt(s.rng.IntN(shardCount))}, task.Spec{Type: "died",
		Queue: queueAt(s.rng.IntN(shardCount))}
	n.OnComplete, n.OnDeath = &done, &died
	n.Fill()
	if _, err := engine.Run(s.worlds[i], func(r *engine.Round) (workflow.Made, error) { return workflow.Make(r, n) }); err != nil {
		s.t.Fatal(err)
	}
	s.groups[n.ID], s.makes = false, append(s.makes, n)
	return "group"
}

func (s *shards) add(w *engine.World, id task.ID) string {
	spec := s.spec(1)
	spec.RequestID = task.NewID(1, 1, uint64(s.rng.IntN(1000)))
	for range 1 + s.rng.IntN(2) {
		_, err := engine.Run(w, func(r *engine.Round) ([]workflow.Joined, error) {
			return workflow.Add(r, "default", id, workflow.NewMembers([]task.Spec{spec}))
		})
		s.allow("add", err)
	}
	return "add"
}

func (s *shards) onGroup(do func(w *engine.World, id task.ID) string) string {
	if len(s.makes) == 0 {
		return "nothing"
	}
	id := s.makes[s.rng.IntN(len(s.makes))].ID
	return do(s.at(id.Shard()), id)
}

// allow ignores refusals that depend on the placement.
func (s *shards) allow(what string, err error) string {
	if err == nil {
		return what
	}
	if !errors.Is(err, task.ErrWrongState) && !errors.Is(err, task.ErrNotFound) && !errors.Is(err, task.ErrStaleClaim) {
		s.t.Fatalf("%s: %v", what, err)
	}
	return "refused " + what
}

func (s *shards) onTask(w *engine.World, what string, do func(r *engine.Round, ns string, id task.ID) error) string {
	var ids []task.ID
	eachExec(w, func(id task.ID, x *schema.Exec) {
		if what == "cancel" != x.State.Ended() {
			ids = append(ids, id)
		}
	})
	if len(ids) == 0 {
		return "nothing"
	}
	id := ids[s.rng.IntN(len(ids))]
	_, err := engine.Run(w, func(r *engine.Round) (struct{}, error) { return struct{}{}, do(r, "default", id) })
	return s.allow(what, err)
}

// work claims a task and ends the claim of another, or loses it.
func (s *shards) work(i int) string {
	w := s.worlds[i]
	for _, c := range w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: queueAt(i)}}, Max: 3, Lease: 30 * time.Second}) {
		s.tokens[c.ID] = c.Token
	}
	var held []task.ID
	eachExec(w, func(id task.ID, x *schema.Exec) {
		if x.State == task.Claimed {
			held = append(held, id)
		}
	})
	if len(held) == 0 {
		return "nothing to end"
	}
	id := held[s.rng.IntN(len(held))]
	h := engine.Hold{Namespace: "default", ID: id, Token: s.tokens[id]}
	switch x := s.rng.IntN(8); {
	case x == 0:
		_, err := engine.Run(w, func(r *engine.Round) (engine.Settled, error) {
			return engine.Fail(r, h, engine.FailRequest{Action: engine.FailAction(s.rng.IntN(4))})
		})
		return s.allow("fail", err)
	case x == 1:
		return "a claim is left alone"
	}
	for range 1 + s.rng.IntN(2) { // an answer may be lost, and the call repeated
		if _, err := engine.Run(w, func(r *engine.Round) (engine.Settled, error) {
			return engine.Ack(r, h, schema.Result{Data: []byte("7")})
		}); err != nil {
			return s.allow("ack", err)
		}
	}
	return "ack"
}

// carry delivers some messages. Those that it does not mark as delivered are sent again.
func (s *shards) carry(w *engine.World, notes bool) string {
	for _, p := range w.Messages(1000) {
		if s.rng.IntN(3) == 0 {
			continue
		}
		var a engine.Accepted
		var refused *task.Error
		switch {
		case p.Notice != nil:
			s.at(p.Notice.Group.Shard()).Round(func(r *engine.Round) { workflow.Receive(r, "default", p.Notice) })
		case p.Cancel != (task.ID{}):
			s.cancel(p)
		default:
			i, err := strconv.Atoi(p.Spec.Queue[1:])
			if err != nil {
				s.t.Fatal(err)
			}
			n := &engine.NewTask{Spec: p.Spec, Namespace: "default", ID: s.newID(i - 1), Fresh: true}
			a, err = engine.Run(s.worlds[i-1], func(r *engine.Round) (engine.Accepted, error) { return engine.Enqueue(r, n) })
			errors.As(err, &refused)
		}
		if notes {
			w.Round(func(r *engine.Round) { engine.Delivered(r, "default", p.Request, a, refused) })
		}
	}
	if notes {
		return "deliver"
	}
	return "delivery whose answer is lost"
}

// cancel delivers an order to cancel a task, which has an effect only once.
func (s *shards) cancel(p *schema.Message) {
	w := s.at(p.Cancel.Shard())
	_, err := engine.Run(w, func(r *engine.Round) (struct{}, error) {
		return struct{}{}, engine.CancelOnce(r, "default", p.Cancel, p.Request)
	})
	s.allow("order", err)
	if s.orders[p.Request] && len(w.Last.Transitions) > 0 {
		s.t.Fatalf("an order to cancel task %s took effect again: it is %s", p.Cancel, w.Last.Transitions[0].To.State)
	}
	s.orders[p.Request] = true
}

func eachExec(w *engine.World, fn func(id task.ID, x *schema.Exec)) {
	lo, hi := schema.TableBounds("default", schema.TableExec)
	w.Store.Scan(lo, hi, func(k, v []byte) bool {
		fn(schema.IDAt(k), schema.Must(schema.DecodeExec(v)))
		return true
	})
}

// check checks the shards that have changed since its last call.
func (s *shards) check() error {
	for i, w := range s.worlds {
		if s.looked[i] == w.Index {
			continue
		}
		s.looked[i] = w.Index
		if err := w.Check(); err != nil {
			return fmt.Errorf("shard %d: %w", i+1, err)
		}
	}
	for id := range s.groups {
		if v, err := workflow.Show(s.at(id.Shard()).Store, "default", id); err == nil && v.State == workflow.Complete && !s.whole[id] {
			s.whole[id] = true
			if err := s.allEnded(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// allEnded checks that a group which has just become complete has no members that have not ended.
func (s *shards) allEnded(group task.ID) (bad error) {
	for _, w := range s.worlds {
		eachExec(w, func(id task.ID, x *schema.Exec) {
			if x.Links.Member() && x.Links.Group == group && x.Links.Revision == 0 {
				bad = fmt.Errorf("group %s is complete, and its member %s is %s", group, id, x.State)
			}
		})
	}
	return bad
}

// noneLeft checks that all members of a cancelled group have ended, in all shards, except replayed ones.
func (s *shards) noneLeft() {
	for _, w := range s.worlds {
		eachExec(w, func(id task.ID, x *schema.Exec) {
			if x.Links.Member() && s.groups[x.Links.Group] && x.Links.Revision == 0 && !x.State.Ended() {
				s.t.Errorf("group %s was cancelled, but its member %s is %s", x.Links.Group, id, x.State)
			}
		})
	}
}

// finish runs everything to its end.
func (s *shards) finish() {
	for _, n := range s.makes {
		_, err := engine.Run(s.at(n.ID.Shard()), func(r *engine.Round) (*workflow.View, error) {
			return workflow.Close(r, "default", n.ID)
		})
		s.allow("close", err)
	}
	for range 20 { // no worker: cancelled tasks end
		for _, w := range s.worlds {
			w.Pass(time.Second)
			s.carry(w, true)
		}
	}
	s.noneLeft()
	for range 400 {
		for i, w := range s.worlds {
			w.Pass(10 * time.Second)
			s.carry(w, true)
			for _, c := range w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: queueAt(i)}}, Max: 100}) {
				h := engine.Hold{Namespace: "default", ID: c.ID, Token: c.Token}
				if _, err := engine.Run(w, func(r *engine.Round) (engine.Settled, error) {
					return engine.Ack(r, h, schema.Result{})
				}); err != nil {
					s.t.Fatal(err)
				}
			}
		}
		idle := true
		for _, w := range s.worlds {
			eachExec(w, func(_ task.ID, x *schema.Exec) { idle = idle && x.State.Ended() })
			idle = idle && len(w.Messages(1)) == 0
		}
		if idle {
			return
		}
	}
	s.t.Fatal("the tasks and messages did not come to an end")
}

// judge compares the groups' counters with the tasks, and follow-ups with what was requested.
func (s *shards) judge() error {
	counts, done, died := map[task.ID]*workflow.Counts{}, map[task.ID]int{}, map[task.ID]int{}
	for id := range s.groups {
		counts[id] = &workflow.Counts{}
	}
	behind := map[string]int{} // parent and type of the follow-up
	for _, w := range s.worlds {
		eachExec(w, func(id task.ID, x *schema.Exec) {
			e := schema.ReadEnvelope(w.Store, "default", id)
			if p := e.Parent; p != nil && p.Group != (task.ID{}) {
				if x.Type == "done" {
					done[p.Group]++
				} else {
					died[p.Group]++
				}
			} else if p != nil {
				behind[p.ID.String()]++
			}
			if x.Links.Member() {
				c := counts[x.Links.Group]
				c.Members++
				countState(c, x.State)
			}
		})
	}
	for id, cancelled := range s.groups {
		v, err := workflow.Show(s.at(id.Shard()).Store, "default", id)
		if err != nil {
			return err
		}
		want := *counts[id]
		want.Refused = v.Counts.Refused
		want.Members += want.Refused
		if v.Counts != want || v.Counts.Pending != 0 {
			return fmt.Errorf("group %s counts %+v, there are %+v", id, v.Counts, want)
		}
		if once := map[bool]int{false: 1, true: 0}[cancelled]; done[id] != once {
			return fmt.Errorf("group %s is %s (cancelled: %t), and on_complete was made %d times: %+v", id, v.State, cancelled,
				done[id], v.Points)
		}
		if died[id] > 1 || !cancelled && died[id] == 0 && v.Counts.Dead+v.Counts.Poisoned > 0 && v.EndedAt == 0 {
			return fmt.Errorf("group %s: on_death was made %d times", id, died[id])
		}
	}
	for _, w := range s.worlds {
		var bad error
		eachExec(w, func(id task.ID, x *schema.Exec) {
			if x.Links == nil || !x.Links.Followed {
				return
			}
			created := 0
			for _, f := range schema.FollowersOf(w.Store, "default", id, x) {
				if f.State == schema.FollowerCreated {
					created++
				} else if f.State == schema.FollowerSent || f.State == schema.FollowerWaiting && x.State == task.Succeeded {
					bad = fmt.Errorf("task %s is %s, and what follows it is %s", id, x.State, f.State)
				}
			}
			if created != behind[id.String()] {
				bad = fmt.Errorf("task %s is %s: %d were created behind it, and there are %d", id, x.State, created, behind[id.String()])
			}
		})
		if bad != nil {
			return bad
		}
	}
	return nil
}

// Whatever leaders, deliveries and callers do, each end is counted once, each follow-up is created once, and
// on_complete runs once. PAWL_SEED repeats a run.
func TestGroupsCountOnce(t *testing.T) {
	first, last := uint64(1), uint64(shardSeeds)
	if s := os.Getenv("PAWL_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, last = seed, seed
	}
	seen := map[string]int{}
	for seed := first; seed <= last; seed++ {
		s := newShards(t, seed)
		for step := range 300 {
			what := s.step()
			seen[what]++
			if err := s.check(); err != nil {
				t.Fatalf("PAWL_SEED=%d, step %d, %s: %v", seed, step, what, err)
			}
		}
		s.finish()
		if err := errors.Join(s.check(), s.judge()); err != nil {
			t.Fatalf("PAWL_SEED=%d: %v", seed, err)
		}
	}
	for _, what := range []string{"group", "group again", "add", "close", "cancel of a group", "replay", "cancel", "ack", "fail", "deliver",
		"delivery whose answer is lost", "new leader"} {
		if seen[what] == 0 && first != last {
			t.Errorf("%q never happened", what)
		}
	}
	t.Log(seen)
}

// countState counts a member in the state of its task.
func countState(c *workflow.Counts, s task.State) {
	switch s {
	case task.Succeeded:
		c.Succeeded++
	case task.Dead:
		c.Dead++
	case task.Poisoned:
		c.Poisoned++
	case task.Discarded:
		c.Discarded++
	case task.Cancelled:
		c.Cancelled++
	default:
		c.Pending++
	}
}
