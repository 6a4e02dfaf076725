package engine_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/once"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// onceStep is a verb on a once key: "once begin t1 key=order-7". fence=N uses an earlier claim, far simulates that the
// task is in another shard that has confirmed the claim, and ended=t2 that this shard has reported the end of t2's
// latest claim.
func (s *story) onceStep(d *datadriven.TestData) string {
	name := d.CmdArgs[1].Key
	tokens := s.tokens[name]
	c := &once.Call{Key: arg(d, "key"), Result: []byte(arg(d, "result")), TTL: 24 * time.Hour, Routed: uint64(number(arg(d, "routed"))),
		Verb: once.Verb(1 + slices.Index([]string{"begin", "finish", "abandon"}, d.CmdArgs[0].Key)),
		Hold: engine.Hold{Namespace: "default", ID: s.id(name), Token: tokens[len(tokens)-1]}}
	if fence := number(arg(d, "fence")); fence > 0 {
		c.Hold.Token = tokens[fence-1]
	}
	if v := arg(d, "ttl"); v != "" {
		c.TTL = duration(v)
	}
	if d.HasArg("far") {
		c.By, c.Queue = &once.Holder{ID: c.Hold.ID, Fence: c.Hold.Token.Fence, Nonce: c.Hold.Token.Nonce, Worker: "far"}, "default"
		if c.Routed == 0 {
			c.Routed = 1000
		}
	}
	if v := arg(d, "ended"); v != "" {
		last := s.tokens[v][len(s.tokens[v])-1]
		c.Ended = &once.Holder{ID: s.id(v), Fence: last.Fence, Nonce: last.Nonce}
	}
	a, err := engine.Run(s.World, func(r *engine.Round) (once.Answer, error) { return once.Do(r, c) })
	switch a.State {
	case once.Done:
		return fmt.Sprintf("done: %q for %s", a.Result, a.Until.Sub(s.Now))
	case once.Held:
		return fmt.Sprintf("held by %s at fence %d, %q, far %t; again in %s", s.name(a.Holder.ID), a.Holder.Fence, a.Holder.Worker,
			a.Far, a.RetryAfter)
	case once.Away:
		return fmt.Sprintf("away: %s holds its task at fence %d, queue %q", s.name(a.Holder.ID), a.Holder.Fence, a.Queue)
	}
	return answer(err, "%s", map[once.State]string{once.Run: "run", once.Free: "free"}[a.State])
}

// modelOnce is a once key in the model: the claim that began it, or the expiry of its result.
type modelOnce struct {
	holder *modelTask
	fence  int
	done   bool
	result byte
	until  store.Time
}

// onceStep uses a random token of all that were ever issued.
func (d *duel) onceStep() string {
	t := d.any(func(t *modelTask) bool { return len(d.tokens[t.id]) > 0 })
	if t == nil {
		return "nobody to do a thing once"
	}
	tokens := d.tokens[t.id]
	fence := 1 + d.rng.IntN(len(tokens))
	if d.rng.IntN(4) > 0 {
		fence = len(tokens)
	}
	verb := once.Verb(1 + d.rng.IntN(3))
	c := &once.Call{Verb: verb, Key: d.pick("1", "2"), Result: []byte{byte(d.rng.IntN(256))},
		TTL: time.Duration(1+d.rng.IntN(200)) * time.Second, Hold: engine.Hold{Namespace: "default", ID: t.id, Token: tokens[fence-1]}}
	got, err := engine.Run(d.World, func(r *engine.Round) (once.Answer, error) { return once.Do(r, c) })
	if t.state != task.Claimed || fence != t.fence {
		return d.judge(verb.String(), false, false, err)
	}
	key := [2]string{t.queue, c.Key}
	o := d.m.onces[key]
	if o != nil && (o.done && o.until <= d.Now || !o.done && (o.holder.state != task.Claimed || o.fence != o.holder.fence)) {
		o = nil
	}
	mine := o != nil && o.holder == t && o.fence == fence
	want := once.Run
	switch {
	case verb == once.Finish && !mine:
		if !errors.Is(err, task.ErrWrongState) {
			d.T.Fatalf("Finish of a key that the claim does not hold: %v, %v, want wrong_state", got, err)
		}
		return "finish of what it does not hold"
	case o != nil && o.done:
		want = once.Done
	case verb == once.Abandon:
		want = once.Free
		if mine {
			delete(d.m.onces, key)
		}
	case verb == once.Finish:
		want = once.Done
		o = &modelOnce{holder: t, fence: fence, done: true, result: c.Result[0], until: d.Now.Add(c.TTL)}
		d.m.onces[key] = o
	case o != nil && !mine:
		want = once.Held
	default:
		d.m.onces[key] = &modelOnce{holder: t, fence: fence}
	}
	if err != nil || got.State != want || want == once.Done && (got.Result[0] != o.result || got.Until != o.until) || want == once.Held &&
		got.Holder.ID != o.holder.id {
		d.T.Fatalf("%s = %+v, %v, want state %d of %+v", verb, got, err, want, o)
	}
	return fmt.Sprintf("%s, %d", verb, want)
}

// Check finds a once key that would never be forgotten, and one that no claim can have held.
func TestCheckFindsOnceRows(t *testing.T) {
	row := func(holder task.ID, result string) []byte { // held by a claim, until a time
		one, until := 1, engine.Dawn+7
		f := schema.Encoding(nil)
		f.Put(2, holder[:])
		schema.Num(&f, 3, &one)
		schema.Num(&f, 4, &one)
		f.Text(7, &result)
		schema.Num(&f, 8, &until)
		return f.Row()
	}
	held := row(task.ID{1}, "")
	key := schema.OnceRowKey("default", "default", "k")
	remind := func(tx *store.Tx) {
		tx.Set(schema.DeadlineKey(engine.Dawn+7, schema.OnOnce, "default", key[len("default")+2:]), nil)
	}
	for name, spoil := range map[string]func(tx *store.Tx){
		"no deadline":             func(tx *store.Tx) { tx.Set(key, held) },
		"no row":                  remind,
		"no holder":               func(tx *store.Tx) { tx.Set(key, row(task.ID{}, "")) },
		"a result before its end": func(tx *store.Tx) { tx.Set(key, row(task.ID{1}, "1")) },
		"no row at all":           func(tx *store.Tx) { tx.Set(key, []byte("x")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := engine.NewWorld(t)
			w.Round(func(r *engine.Round) { r.Tx().Set(key, held); remind(r.Tx()) })
			if found := engine.CheckAll(w.Store, "default"); len(found) > 0 {
				t.Fatalf("Check found problems before any damage: %q", found)
			}
			w.Round(func(r *engine.Round) {
				r.Tx().Delete(key)
				r.Tx().Delete(schema.DeadlineKey(engine.Dawn+7, schema.OnOnce, "default", key[len("default")+2:]))
				spoil(r.Tx())
			})
			want := map[string]string{"no deadline": "is missing", "no row": "refers to nothing"}[name] // else: of the row itself
			if want == "" {
				want = "once key"
			}
			if found := engine.CheckAll(w.Store, "default"); len(found) != 1 || !strings.Contains(found[0], want) {
				t.Errorf("found %q, want one finding with %q", found, want)
			}
		})
	}
}
