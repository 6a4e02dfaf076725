package broker

import (
	"context"
	"testing"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// requested are the calls that take a request id. Each returns the id of what it created.
func (w *world) requested(group task.ID) map[string]func(request task.ID) (task.ID, error) {
	ctx := context.Background()
	triggers := func(name string) func(task.ID) (task.ID, error) {
		return func(request task.ID) (task.ID, error) {
			out, err := TriggerSchedule.Call(ctx, w, ScheduleTrigger{AtHome: AtHome{OnSchedule{OnShard{one, ns}, name}}, Request: request})
			if err != nil || out.Made.Message == nil {
				return out.Made.ID, err
			}
			return out.Made.Message.Request, nil
		}
	}
	return map[string]func(request task.ID) (task.ID, error){
		"task": func(request task.ID) (task.ID, error) {
			s := task.Spec{Queue: "a", Type: "parent", RequestID: request, Then: []task.Spec{{Queue: "a", Type: "child"}}}
			s.Fill()
			got, _, err := w.Enqueue(ctx, one, ns, []task.Spec{s})
			if err != nil {
				return task.ID{}, err
			}
			return got[0].ID, got[0].Err
		},
		"group": func(request task.ID) (task.ID, error) {
			g := task.Group{Tasks: []task.Spec{{Queue: "a", Type: "member"}}, OnComplete: &task.Spec{Queue: "a", Type: "last"},
				RequestID: request}
			g.Fill()
			made, _, err := w.MakeGroup(ctx, one, ns, g, []string{"a"})
			if err != nil {
				return task.ID{}, err
			}
			return made.Group.ID, nil
		},
		"member": func(request task.ID) (task.ID, error) {
			s := task.Spec{Queue: "a", Type: "added", RequestID: request, Then: []task.Spec{{Queue: "a", Type: "grandchild"}}}
			s.Fill()
			got, _, err := w.AddToGroup(ctx, ns, group, []task.Spec{s}, []string{"a"})
			if err != nil {
				return task.ID{}, err
			}
			return got[0].ID, got[0].Err
		},
		"tick":         triggers("near"),
		"another tick": triggers("twin"),
		"far tick":     triggers("far"),
	}
}

// orders returns all orders of the words.
func orders(words []string) (all [][]string) {
	if len(words) == 0 {
		return [][]string{nil}
	}
	for i, first := range words {
		rest := append(append([]string(nil), words[:i]...), words[i+1:]...)
		for _, order := range orders(rest) {
			all = append(all, append([]string{first}, order...))
		}
	}
	return all
}

// Calls of different kinds may have the same request id, in any order: each creates something of its own, each finds
// that again when it is repeated, and every task can be acked.
func TestCallsOfOneRequestID(t *testing.T) {
	inWorld(t, func(w *world) {
		ctx := context.Background()
		w.enqueue(task.Spec{Queue: "a"})
		defer w.addShard(two)()
		for _, name := range []string{"near", "twin", "far"} {
			s := task.Schedule{Name: name, Every: 30 * 24 * time.Hour, Task: task.Spec{Queue: "a", Type: "tick"}}
			if name == "far" {
				s.Task.Queue = "far"
			}
			s.Fill()
			_, err := PutSchedule.Call(ctx, w, SchedulePutCall{OnShard: OnShard{one, ns}, Put: SchedulePut{Schedule: s, Version: 1}})
			w.must(err)
		}
		g := task.Group{Open: true}
		g.Fill()
		made, _, err := w.MakeGroup(ctx, one, ns, g, nil)
		w.must(err)

		calls := w.requested(made.Group.ID)
		all := orders([]string{"task", "group", "member", "tick"})
		for i, order := range all { // these two go to different places in it
			at := i % 5
			all[i] = append(append(append([]string{"far tick"}, order[:at]...), "another tick"), order[at:]...)
		}
		request := func(order, version int) task.ID {
			id := task.NewID(0, time.Now().UnixMilli(), uint64(order+1))
			if version != 7 {
				id[6] = byte(version)<<4 | id[6]&0xf
			}
			return id
		}
		for _, version := range []int{7, 4} {
			for i, order := range all {
				id, created := request(i, version), map[string]task.ID{}
				seen := map[task.ID]string{}
				for _, what := range order {
					got, err := calls[what](id)
					if err != nil {
						t.Fatalf("%v with one request id: %s: %v", order, what, err)
					}
					if other, taken := seen[got]; taken {
						t.Fatalf("%v with one request id: %s and %s have the id %s", order, other, what, got)
					}
					created[what], seen[got] = got, what
				}
				for what, first := range created {
					if again, err := calls[what](id); err != nil || again != first && what != "far tick" {
						t.Fatalf("%v with one request id: %s repeated = %s, %v, want %s", order, what, again, err, first)
					}
				}
			}
		}
		w.ackAll("a")
		w.pass(time.Second)
		problems, _, err := w.Check(ctx, one)
		w.must(err)
		if len(problems) > 0 {
			t.Errorf("inconsistencies: %q", problems)
		}
		r, err := w.replica(one)
		w.must(err)
		n, _, err := read(ctx, r, func(from store.Reader) (map[string]int, error) {
			n := map[string]int{}
			lo, hi := schema.TableBounds(ns, schema.TableExec)
			from.Scan(lo, hi, func(_, row []byte) bool {
				n[schema.Must(schema.DecodeExec(row)).Type]++
				return true
			})
			return n, nil
		})
		w.must(err)
		for _, typ := range []string{"parent", "child", "member", "last", "added", "grandchild"} {
			if n[typ] != 2*len(all) {
				t.Errorf("%d tasks of type %s, want %d", n[typ], typ, 2*len(all))
			}
		}
		if n["tick"] != 4*len(all) {
			t.Errorf("%d tasks of triggers here, want %d", n["tick"], 4*len(all))
		}
	})
}
