package engine_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/fingerprint"
	"github.com/pawlq/pawl/internal/engine/operation"
	"github.com/pawlq/pawl/internal/engine/query"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/engine/zonemap"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// lottery applies random verbs to tasks, so that there are some in each state.
type lottery struct {
	*engine.World
	rng    *rand.Rand
	queues []string
	types  []string
	keys   []string
	skew   bool // producers' clocks differ
	claims []engine.Hold
}

func (l *lottery) pick(of []string) string { return of[l.rng.IntN(len(of))] }

func (l *lottery) spec() task.Spec {
	s := task.Spec{Type: l.pick(l.types), Queue: l.pick(l.queues), Priority: task.Priorities[l.rng.IntN(3)],
		Payload: []byte(l.pick([]string{"apple pie", "pear", `{"fruit":"plum","n":[1]}`}))}
	if l.rng.IntN(3) == 0 {
		s.Key = l.pick(l.keys)
	}
	if l.rng.IntN(3) == 0 {
		s.Tags = []string{l.pick([]string{"vip", "slow"}), "all"}
	}
	if l.rng.IntN(4) == 0 {
		s.Delay = time.Duration(1+l.rng.IntN(600)) * time.Second
	}
	if l.rng.IntN(3) == 0 {
		s.Unique = &task.Unique{Key: l.pick(l.keys), States: task.Unfinished, OnConflict: []task.OnConflict{task.Keep,
			task.KeepLast}[l.rng.IntN(2)]}
	}
	if l.rng.IntN(20) == 0 {
		s.ExpiresIn = time.Duration(1+l.rng.IntN(60)) * time.Second
	}
	if l.rng.IntN(6) == 0 { // also shorter than the leases of tasks that are claimed with it
		keep := time.Duration(l.rng.IntN(300)) * time.Second
		s.Retention = &keep
	}
	s.Fill()
	return s
}

func (l *lottery) enqueue() {
	l.Round(func(r *engine.Round) {
		for range 1 + l.rng.IntN(4) {
			n := &engine.NewTask{Namespace: "default", Spec: l.spec(), ID: l.NewID(), Fresh: true}
			if l.skew && l.rng.IntN(3) == 0 {
				l.IDs++
				n.ID = task.NewID(1, int64(l.Now)/1000+int64(l.rng.IntN(60_000)-50_000), task.Mix(l.IDs))
			}
			if _, err := engine.Enqueue(r, n); err != nil {
				l.T.Fatal(err)
			}
		}
	})
}

// step does one thing.
func (l *lottery) step() {
	switch l.rng.IntN(12) {
	case 0, 1, 2, 3:
		l.enqueue()
	case 4, 5, 6:
		for _, t := range l.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: l.pick(l.queues)}}, Max: 1 + l.rng.IntN(3),
			Worker: l.pick([]string{"w1", "w2"}), Lease: time.Duration(1+l.rng.IntN(600)) * time.Second}) {
			l.claims = append(l.claims, engine.Hold{Namespace: "default", ID: t.ID, Token: t.Token})
		}
	case 7, 8, 9:
		l.settle()
	case 10:
		l.operate()
	default:
		if l.Pass(time.Duration(l.rng.IntN(60_000)) * time.Millisecond); l.rng.IntN(4) == 0 {
			l.BecomeLeader()
		}
	}
}

// elsewhere leaves claimed and dead tasks in another namespace, which no search may find.
func (l *lottery) elsewhere() {
	l.Round(func(r *engine.Round) {
		engine.PutQueue(r, "other", "a1", task.QueueConfig{Version: 1, Settings: task.DefaultSettings()})
		for range 4 {
			s := task.Spec{Type: "x", Queue: "a1", Payload: []byte("apple")}
			s.Fill()
			if _, err := engine.Enqueue(r, &engine.NewTask{Namespace: "other", ID: l.NewID(), Fresh: true, Spec: s}); err != nil {
				l.T.Fatal(err)
			}
		}
		got, _ := engine.ClaimTasks(r, &engine.ClaimRequest{Namespace: "other", Queues: []engine.Share{{Queue: "a1"}},
			Max: 2, MaxBytes: 1 << 20, Lease: 12 * time.Hour})
		if _, err := engine.Fail(r, engine.Hold{Namespace: "other", ID: got[0].ID, Token: got[0].Token},
			engine.FailRequest{Action: engine.FailDead}); err != nil {
			l.T.Fatal(err)
		}
	})
}

// forgetZones leaves tasks as a release without zones did.
func (l *lottery) forgetZones() {
	for range 30 {
		l.step()
	}
	l.Round(func(r *engine.Round) {
		lo, hi := schema.TableBounds("default", schema.TableZone)
		r.Tx().Scan(lo, hi, func(k, _ []byte) bool {
			r.Tx().Delete(bytes.Clone(k))
			return true
		})
	})
	l.BecomeLeader()
}

func (l *lottery) settle() {
	for range min(2, len(l.claims)) {
		at := l.rng.IntN(len(l.claims))
		hold := l.claims[at]
		l.claims = slices.Delete(l.claims, at, at+1)
		_, _ = engine.Run(l.World, func(r *engine.Round) (engine.Settled, error) {
			if l.rng.IntN(3) == 0 {
				return engine.Ack(r, hold, schema.Result{})
			}
			message := fmt.Sprintf("%s %d", l.pick([]string{"timed out after", "no host"}), l.rng.IntN(100))
			return engine.Fail(r, hold, engine.FailRequest{Action: engine.FailAction(l.rng.IntN(4)),
				Failure: schema.Failure{Message: message}})
		}) // the lease may be over
	}
}

// operate applies a random verb to a random task, which may refuse it.
func (l *lottery) operate() {
	var ids []task.ID
	lo, hi := schema.TableBounds("default", schema.TableExec)
	l.Store.Scan(lo, hi, func(k, _ []byte) bool { ids = append(ids, schema.IDAt(k)); return true })
	if len(ids) == 0 {
		return
	}
	id := ids[l.rng.IntN(len(ids))]
	x, err := schema.ReadExec(l.Store, "default", id)
	if err != nil {
		l.T.Fatal(err)
	}
	verb := l.rng.IntN(4)
	_, _ = engine.Run(l.World, func(r *engine.Round) (struct{}, error) {
		switch verb {
		case 0:
			return struct{}{}, engine.Cancel(r, "default", id)
		case 1:
			return struct{}{}, engine.Discard(r, "default", id, x.EndedAt)
		case 2:
			return struct{}{}, engine.Retry(r, "default", id)
		}
		return struct{}{}, engine.RunNow(r, "default", id)
	})
}

// all returns all tasks.
func (l *lottery) all() (views []*query.View) {
	lo, hi := schema.TableBounds("default", schema.TableExec)
	l.Store.Scan(lo, hi, func(k, _ []byte) bool {
		v, err := query.Show(l.Store, "default", schema.IDAt(k))
		if err != nil {
			l.T.Fatal(err)
		}
		views = append(views, v)
		return true
	})
	return views
}

// wants reports whether a filter selects a task, in the most obvious form.
func wants(f *query.Filter, v *query.View) bool {
	x := v.Exec
	last := schema.Failure{}
	for _, a := range v.Attempts {
		if a.Failure != (schema.Failure{}) {
			last = a.Failure
		}
	}
	within := f.Within == nil
	for _, pattern := range f.Within {
		if prefix, ok := strings.CutSuffix(pattern, "*"); pattern == v.Queue || ok && strings.HasPrefix(v.Queue, prefix) {
			within = true
		}
	}
	state := len(f.States) == 0
	for _, s := range f.States {
		state = state || s == x.State
	}
	return within && state && (f.Queue == "" || f.Queue == v.Queue) && (f.Not == "" || f.Not != v.Queue) &&
		(f.Type == "" || f.Type == v.Type) && (f.Tag == "" || slices.Contains(v.Tags, f.Tag)) && (f.Key == "" || f.Key == v.Key) &&
		(f.Worker == "" || f.Worker == x.Claim.Worker) && strings.Contains(last.Message, f.Error) && (f.Fingerprint == "" ||
		f.Fingerprint == fingerprint.Text(fingerprint.Of(v.Type,
			fingerprint.Normalize(last.Message)))) &&
		(f.CreatedAfter == 0 || x.CreatedAt > f.CreatedAfter) && (f.CreatedBefore == 0 || x.CreatedAt < f.CreatedBefore) &&
		bytes.Contains(v.Payload, []byte(f.Text)) && (f.Payload == nil || f.Payload[1].Value == "1" &&
		bytes.Contains(v.Payload, []byte("fruit")))
}

// expect returns the ids that a filter selects, in order.
func expect(f *query.Filter, all []*query.View) (ids []task.ID) {
	var found []*query.View
	for _, v := range all {
		if wants(f, v) {
			found = append(found, v)
		}
	}
	byEnd := f.Queue != "" && len(f.States) == 1 && (f.States[0] == task.Dead || f.States[0] == task.Poisoned)
	slices.SortFunc(found, func(a, b *query.View) int {
		if byEnd && a.Exec.EndedAt != b.Exec.EndedAt {
			return cmp.Compare(b.Exec.EndedAt, a.Exec.EndedAt)
		}
		return bytes.Compare(b.ID[:], a.ID[:])
	})
	for _, v := range found {
		ids = append(ids, v.ID)
	}
	return ids
}

func (l *lottery) filter(all []*query.View) (f query.Filter) {
	some := func(one int) bool { return l.rng.IntN(one) == 0 }
	if some(2) {
		f.Queue = l.pick(append(l.queues, "none"))
	}
	if some(2) {
		for range 1 + l.rng.IntN(3) {
			f.States = append(f.States, task.States[l.rng.IntN(len(task.States))])
		}
	}
	if some(3) {
		f.Type = l.pick(append(l.types, "none"))
	}
	if some(8) {
		f.Key = l.pick(l.keys)
	}
	if some(8) {
		f.Tag = l.pick([]string{"vip", "all", "none"})
	}
	if some(8) {
		f.Worker = "w1"
	}
	if some(4) {
		f.Error = l.pick([]string{"host", "after 1", "timed", "none"})
	}
	if some(6) {
		f.Fingerprint = fingerprint.Text(fingerprint.Of(l.pick(l.types), "no host *"))
	}
	if some(8) {
		f.Text = "ap"
	}
	if some(8) {
		f.Payload = []query.PayloadField{{Path: "fruit", Value: "plum"}, {Path: "n.0", Value: l.pick([]string{"1", "2"})}}
	}
	if some(8) {
		f.Not = l.pick(l.queues)
	}
	if some(8) {
		f.Within = [][]string{{"a*"}, {"a1", "b*"}, {"none"}}[l.rng.IntN(3)]
	}
	if len(all) > 0 && some(8) {
		f.CreatedAfter = all[l.rng.IntN(len(all))].Exec.CreatedAt
	}
	if len(all) > 0 && some(8) {
		f.CreatedBefore = all[l.rng.IntN(len(all))].Exec.CreatedAt
	}
	return f
}

// budget returns a random budget, so that a search takes each of its ways, and a list a different one on each page.
func (l *lottery) budget() query.Budget {
	any := func(of ...int) int { return of[l.rng.IntN(len(of))] }
	return query.Budget{Rows: any(1, 2, 7, 1000), Index: any(0, 10, 1000), Kept: any(1, 3, 1000), Scans: any(0, 3, 1000),
		Lanes: any(0, 2, 1000), Probe: any(1, 5, 1000)}
}

// read reads a complete list, page by page.
func (l *lottery) read(f query.Filter, limit int) (ids []task.ID) {
	var cursor []byte
	for pages := 0; ; pages++ {
		p, err := query.ReadPage(l.Store, "default", f, cursor, limit, l.budget())
		if err != nil {
			l.T.Fatal(err)
		}
		for _, v := range p.Tasks {
			ids = append(ids, v.ID)
		}
		if p.Next == nil {
			return ids
		}
		if len(p.Tasks) > limit || cursor != nil && bytes.Compare(p.Next, cursor) >= 0 || pages > 10_000 {
			l.T.Fatalf("%+v: page %d with a limit of %d has %d tasks and continues from %x after %x", f, pages, limit, len(p.Tasks), p.Next,
				cursor)
		}
		if n := len(p.Tasks); n > 0 && bytes.Compare(p.Next, placeIn(f, p.Tasks[n-1])) > 0 {
			l.T.Fatalf("%+v: the page continues from %x, which is before its last task %s", f, p.Next, p.Tasks[n-1].ID)
		}
		cursor = p.Next
	}
}

func placeIn(f query.Filter, v *query.View) []byte {
	if !f.ByEnd() {
		return v.ID[:]
	}
	return append(binary.BigEndian.AppendUint64(nil, uint64(v.Exec.EndedAt)), v.ID[:]...)
}

// A search for the claimed and ended tasks of some queues finds the claimed ones, even if other queues have more
// claimed tasks than a search keeps.
func TestSearchFindsClaimedAmongMany(t *testing.T) {
	engine.FewPerZone(t, 4)
	w := engine.NewWorld(t)
	claim := func(queue string) task.ID {
		if _, err := w.Enqueue(task.Spec{Type: "job", Queue: queue}); err != nil {
			t.Fatal(err)
		}
		return w.Claim(engine.ClaimRequest{Queues: []engine.Share{{Queue: queue}}, Lease: time.Hour})[0].ID
	}
	for range 20 { // older zones: ids before the first one are always read
		w.Pass(time.Second)
		claim("old")
	}
	w.Pass(time.Second)
	want := claim("mail")
	for range 20 {
		w.Pass(time.Second)
		claim("busy")
	}
	f := query.Filter{Within: []string{"mail"}, States: []task.State{task.Claimed, task.Succeeded}}
	for _, kept := range []int{1, 3, 20, 21, 40, 41, 1000} {
		p, err := query.ReadPage(w.Store, "default", f, nil, 10, query.Budget{Rows: 1000, Index: 1000, Kept: kept, Scans: 1000,
			Lanes: 1000, Probe: 1000})
		if err != nil || len(p.Tasks) != 1 || p.Tasks[0].ID != want {
			t.Errorf("a search that keeps %d tasks found %v, %v, want %s", kept, p.Tasks, err, want)
		}
	}
}

// A list with any filter has the tasks, in the order, that examining each task finds; so do the count and the steps of operations.
func TestSearchAgainstModel(t *testing.T) {
	engine.FewPerZone(t, 4)
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 4))
		l := &lottery{World: engine.NewWorld(t), rng: rng, queues: []string{"a1", "a2", "b1"}, types: []string{"x", "y", "z"},
			keys: []string{"k", "l", "m"}, skew: seed%2 == 1}
		if seed%4 == 3 { // more features than a zone records
			for i := range 300 {
				l.types = append(l.types, fmt.Sprint("type-", i))
			}
			zonemap.ZoneTasks = 400
		}
		for _, q := range l.queues {
			s := task.DefaultSettings()
			s.PerKey.MaxRunning = rng.IntN(3)
			l.PutQueue(q, s, false)
		}
		l.elsewhere()
		if seed%3 == 2 {
			l.forgetZones()
		}
		found := 0
		for step := range 500 {
			if l.step(); step%7 > 0 {
				continue
			}
			if step%28 == 0 {
				if err := l.Check(); err != nil {
					t.Fatalf("seed %d, step %d: %v", seed, step, err)
				}
			}
			all := l.all()
			f := l.filter(all)
			want := expect(&f, all)
			found += len(want)
			if got := l.read(f, []int{1, 3, 1000}[rng.IntN(3)]); !slices.Equal(got, want) {
				t.Fatalf("seed %d, step %d: %+v\nlisted %v\nwant   %v", seed, step, f, got, want)
			}
			l.checkCount(f, all)
			l.checkSteps(f, want)
		}
		if found < 300 {
			t.Errorf("seed %d: all filters together found only %d tasks", seed, found)
		}
	}
}

func (l *lottery) checkCount(f query.Filter, all []*query.View) {
	want := map[task.State]int64{}
	for _, v := range all {
		if wants(&f, v) {
			want[v.Exec.State]++
		}
	}
	var got query.Matches
	for cursor := []byte(nil); ; cursor = got.Next {
		n, err := query.CountMatches(l.Store, "default", f, cursor, 1+l.rng.IntN(20), 3)
		if err != nil {
			l.T.Fatal(err)
		}
		if got.Add(n); n.Next == nil {
			break
		}
		got.Next = n.Next
	}
	if fmt.Sprint(got.States) != fmt.Sprint(want) && len(got.States)+len(want) > 0 {
		l.T.Fatalf("%+v: counted %v, want %v", f, got.States, want)
	}
}

// checkSteps checks what the steps of an operation would select.
func (l *lottery) checkSteps(f query.Filter, want []task.ID) {
	var got []task.ID
	c := operation.StepCall{Operation: task.NewID(1, 0, 1), Action: task.Cancel, Filter: f}
	for !c.Swept {
		c.Step, c.Count = c.Step+1, 1+l.rng.IntN(5)
		s, err := operation.SelectStep(l.Store, "default", &c)
		if err != nil {
			l.T.Fatal(err)
		}
		for _, t := range s.Tasks {
			got = append(got, t.ID)
		}
		c.Cursor, c.Swept = s.Next, s.Swept
	}
	if !slices.Equal(got, want) {
		l.T.Fatalf("%+v: the steps of an operation selected %v, want %v", f, got, want)
	}
}

// A search reads no more than its budget allows, reports how much it read, and continues where it stopped until it has found everything.
func TestSearchIsBounded(t *testing.T) {
	w := engine.NewWorld(t)
	for _, q := range []string{"default", "other", "dead"} {
		w.PutQueue(q, task.DefaultSettings(), false)
	}
	add := func(queue, typ, key string) task.ID {
		w.Now += store.Time(20 * time.Millisecond / time.Microsecond)
		a, err := w.Enqueue(task.Spec{Type: typ, Queue: queue, Key: key})
		if err != nil {
			t.Fatal(err)
		}
		return a.ID
	}
	engine.FewPerZone(t, 10)
	rare := add("default", "rare", "rare")
	add("other", "common", "")
	for i := range 300 {
		typ := "common"
		if i == 0 || i == 299 {
			typ = "rare"
		}
		w.Bring(add("dead", typ, ""), "dead", task.Dead)
	}
	for range 1000 {
		add("default", "common", "")
	}
	ready, dead := []task.State{task.Ready}, []task.State{task.Dead}
	for _, c := range []struct {
		name        string
		filter      query.Filter
		most        query.Budget
		limit       int
		rows, found int
		whole       bool
	}{
		{"newest", query.Filter{}, query.BudgetOf(100, 0), 10, 10, 10, false},
		{"bounded", query.Filter{Key: "none"}, query.BudgetOf(10, 0), 10, 10, 0, false},
		{"fields of payloads, bounded", query.Filter{Payload: []query.PayloadField{{Path: "a", Value: "1"}}}, query.BudgetOf(10, 0), 10, 10,
			0, false},
		{"payloads, bounded", query.Filter{Text: "none"}, query.BudgetOf(10, 0), 10, 10, 0, false},
		// tasks and lanes: the rare one is in the row of its lane
		{"by state", query.Filter{States: ready}, query.BudgetOf(1000, 2000), 10, 1000 + 1 + 3, 10, false},
		{"by state, bounded", query.Filter{States: ready, Text: "none"}, query.BudgetOf(10, 2000), 10, 1004, 0, false},
		{"by state, too many", query.Filter{States: ready}, query.BudgetOf(1000, 900), 10, 10, 10, false},
		{"by state, too many queues", query.Filter{States: ready}, query.Budget{Rows: 1000, Index: 2000, Kept: 10, Scans: 1, Lanes: 10,
			Probe: 10}, 10, 10, 10, false},
		{"by state and key", query.Filter{States: ready, Key: "rare"}, query.BudgetOf(1000, 900), 10, 1 + 3, 1, true},
		{"by state and type", query.Filter{States: ready, Type: "rare"}, query.BudgetOf(1000, 900), 10, 1 + 3, 1, true},
		{"no such state", query.Filter{States: []task.State{task.Claimed}}, query.BudgetOf(1, 1), 10, 0, 0, true},
		{"dead, bounded", query.Filter{Queue: "dead", States: dead, Type: "none"}, query.BudgetOf(1, 0), 10, 20, 0, false},
		{"dead, bounded behind a match", query.Filter{Queue: "dead", States: dead, Type: "rare"}, query.BudgetOf(2, 0), 10, 21, 1, false},
		{"zones, bounded", query.Filter{Type: "none"}, query.BudgetOf(1, 0), 10, 20, 0, false},
		{"queue, full", query.Filter{Queue: "default"}, query.BudgetOf(1000, 0), query.IndexChunk, query.IndexChunk,
			query.IndexChunk, false},
		{"queue, bounded", query.Filter{Queue: "default", Key: "none"}, query.BudgetOf(10, 0), 10, 10, 0, false},
	} {
		p, err := query.ReadPage(w.Store, "default", c.filter, nil, c.limit, c.most)
		if err != nil || p.Rows != c.rows || len(p.Tasks) != c.found || (p.Next == nil) != c.whole {
			t.Errorf("%s: a page has %d tasks from %d rows, complete %t (%v), want %d from %d, %t", c.name, len(p.Tasks), p.Rows,
				p.Next == nil, err, c.found, c.rows, c.whole)
		}
	}
	for _, f := range []query.Filter{{Type: "rare", States: ready}, {Type: "rare", Queue: "default"}, {Type: "rare", Not: "dead"},
		{Key: "rare"}} {
		var cursor []byte
		var found []task.ID
		pages := 0
		for ; pages < 3000; pages++ {
			p, err := query.ReadPage(w.Store, "default", f, cursor, 10, query.Budget{Rows: 1, Probe: 1, Kept: 1})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range p.Tasks {
				found = append(found, v.ID)
			}
			if cursor = p.Next; cursor == nil {
				break
			}
		}
		if !slices.Equal(found, []task.ID{rare}) {
			t.Errorf("%+v: %d pages found %v, want %s", f, pages, found, rare)
		}
	}
	if n, err := query.CountMatches(w.Store, "default", query.Filter{States: ready}, make([]byte, 16), 1000, 0); err != nil ||
		n.Count != 0 {
		t.Errorf("counted %d tasks below the lowest id (%v), want none", n.Count, err)
	}
	for _, c := range []struct {
		f    query.Filter
		size int
	}{{query.Filter{}, schema.DeadTail}, {query.Filter{Queue: "dead", States: dead}, 16}, {query.Filter{}, 3}} {
		if _, err := query.List(w.Store, "default", c.f, make([]byte, c.size), 1); !errors.Is(err, task.ErrInvalidArgument) {
			t.Errorf("%+v: a cursor of %d bytes returned %v, want invalid_argument", c.f, c.size, err)
		}
	}
}
