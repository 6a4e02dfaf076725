package conformance

import (
	"fmt"
	"slices"
	"testing"
)

// operations returns the API as one that has operations: any but the direct one, which is replaced.
func (w *world) operations() operationsAPI {
	d := w.api
	if all, ok := d.(*roundRobin); ok {
		d = all.next()
	}
	if api, has := d.(operationsAPI); has {
		return api
	}
	return newRPC(w.T, w.testNode)
}

func (w *world) start(o operation) operationInfo {
	w.Helper()
	return ok[operationInfo](w)(w.operations().StartOperation(w.ctx(), o))
}

// operate starts an operation and waits until it is no longer running.
func (w *world) operate(o operation) operationInfo {
	w.Helper()
	return ok[operationInfo](w)(w.operations().Operation(w.ctx(), w.start(o).ID, 20*second))
}

func (w *world) steer(verb, id string) operationInfo {
	w.Helper()
	return ok[operationInfo](w)(w.operations().Steer(w.ctx(), verb, id, "because"))
}

func TestOperations(t *testing.T) {
	stories := []story{
		{name: "an operation applies one action to all matching tasks and reports it", tell: func(w *world) {
			w.fill(450, spec{Queue: "a", Key: "mail"})
			w.fill(3, spec{Queue: "b", Key: "mail"})
			w.fill(3, spec{Queue: "a", Key: "other"})
			o := w.operate(operation{Action: "cancel", Filter: filter{Key: "mail"}, Reason: "wrong template"})
			is(w, "the counts", o.counts(), "done: 453 of 453, 453 done")
			is(w, "it", o, operationInfo{operation: operation{Action: "cancel", Filter: filter{Key: "mail",
				States: []string{"scheduled", "ready",
					"claimed", "retrying"}},
				Reason: "wrong template"}, ID: o.ID, State: "done", CreatedAt: o.CreatedAt, EndedAt: o.EndedAt, Total: 453,
				Matched: 453, Done: 453})
			is(w, "as it is read", ok[operationInfo](w)(w.operations().Operation(w.ctx(), o.ID, 0)), o)
			is(w, "what is left in a", w.queue("a").Depth, depth{Ready: 3})
			is(w, "what is left in b", w.queue("b").Depth, depth{})
		}},
		{name: "a dry run counts, returns samples, and changes nothing", tell: func(w *world) {
			w.id(spec{Queue: "a"})
			last := w.id(spec{Queue: "b"})
			n, sample, err := w.operations().TryOperation(w.ctx(), operation{Action: "discard", Filter: filter{}})
			must(w.T, err)
			is(w, "the count", n, int64(2))
			is(w, "the sample", len(sample), 2)
			list, _, err := w.operations().Operations(w.ctx(), part{})
			must(w.T, err)
			is(w, "no operation", len(list), 0)
			is(w, "its state", w.state(last), "ready")
		}},
		{name: "the current states of an operation's tasks are counted", tell: func(w *world) {
			w.put("a", settings{MaxAttempts: 1})
			for range 4 {
				w.id(spec{Type: "send", Queue: "a"})
				w.kill("a", "down")
			}
			w.id(spec{Type: "send", Queue: "b"})
			o := w.operate(operation{Action: "replay", Filter: filter{}})
			w.kill("a", "down again")
			w.ack(w.one(from("a")))
			got, err := w.operations().CurrentStates(w.ctx(), o.ID)
			must(w.T, err)
			is(w, "the current states of four", got, map[string]int64{"ready": 2, "succeeded": 1, "dead": 1})
			later := w.operate(operation{Action: "cancel", Filter: filter{Queue: "a"}})
			got, err = w.operations().CurrentStates(w.ctx(), o.ID)
			must(w.T, err)
			is(w, "of those that no other has changed", got, map[string]int64{"succeeded": 1, "dead": 1})
			got, err = w.operations().CurrentStates(w.ctx(), later.ID)
			must(w.T, err)
			is(w, "of those of the other", got, map[string]int64{"cancelled": 2})
		}},
		{name: "dead letters are replayed, except one whose unique key is taken", tell: func(w *world) {
			w.put("a", settings{MaxAttempts: 1})
			first := w.id(spec{Type: "send", Queue: "a", Unique: &unique{Key: "k"}})
			w.kill("a", "down")
			other := w.id(spec{Type: "send", Queue: "a"})
			w.kill("a", "down")
			w.id(spec{Type: "send", Queue: "a", Unique: &unique{Key: "k"}})
			w.id(spec{Queue: "b"})
			o := w.operate(operation{Action: "replay", Filter: filter{Queue: "a"}})
			is(w, "the counts", o.counts(), "done: 2 of 2, 1 done, 1 skipped as unique_key_taken")
			is(w, "the first", w.state(first), "dead not_retryable")
			is(w, "the other", w.state(other), "ready")
		}},
		{name: "tasks are moved to another queue, and both tasks refer to each other", tell: func(w *world) {
			id := w.id(spec{Type: "send", Queue: "a", Payload: `{"to":1}`, Key: "k", Tags: []string{"t"}, IdempotencyKey: "order-7",
				Headers: map[string]string{"h": "v"}})
			w.id(spec{Queue: "b"})
			o := w.operate(operation{Action: "move", Filter: filter{Queue: "a"}, ToQueue: "b"})
			is(w, "the counts", o.counts(), "done: 1 of 1, 1 done")
			old := w.get(id)
			is(w, "the old one", old.State+" "+old.Reason, "discarded moved")
			is(w, "its key", w.enqueue(spec{Type: "send", Queue: "a", Payload: `{"to":1}`, IdempotencyKey: "order-7"}).ID, id)
			now := w.get(old.MovedTo)
			is(w, "the new one", fmt.Sprint(now.State, now.Queue, now.Type, now.Payload, now.Key, now.Tags, now.Headers,
				now.MovedFrom == id),
				fmt.Sprint("ready", "b", "send", `{"to":1}`, "k", []string{"t"}, map[string]string{"h": "v"}, true))
		}},
		{name: "an operation keeps its rate, and can be paused, resumed and aborted", tell: func(w *world) {
			w.fill(100, spec{Queue: "a"})
			w.fill(1, spec{Queue: "b"})
			o := w.start(operation{Action: "discard", Filter: filter{Queue: "a"}, Rate: 8})
			w.pass(2 * second)
			o = w.steer("pause", o.ID)
			is(w, "two seconds on", o.counts(), "paused: 16 of 100, 16 done")
			is(w, "why", o.Why, "because")
			w.pass(minute)
			is(w, "a minute on", ok[operationInfo](w)(w.operations().Operation(w.ctx(), o.ID, 0)).counts(), "paused: 16 of 100, 16 done")
			is(w, "resumed", w.steer("resume", o.ID).State, "running")
			w.pass(second)
			o = w.steer("abort", o.ID)
			is(w, "aborted", o.State, "aborted")
			is(w, "the queue", w.queue("a").Depth, depth{Ready: 100 - o.Done})
			is(w, "a repeat", w.steer("abort", o.ID), o)
			_, err := w.operations().Steer(w.ctx(), "resume", o.ID, "")
			w.refused("to resume it", err, refusal{Code: "wrong_state"})
		}},
		{name: "a canary goes first", tell: func(w *world) {
			w.fill(5, spec{Queue: "a"})
			w.fill(1, spec{Queue: "b"})
			o := w.operate(operation{Action: "set_priority", Filter: filter{Queue: "a"}, Priority: "high", Canary: 2, Max: 4})
			is(w, "the counts", o.counts(), "paused: 2 of 4, 2 done")
			w.steer("resume", o.ID)
			o = ok[operationInfo](w)(w.operations().Operation(w.ctx(), o.ID, 20*second))
			is(w, "then", o.counts(), "done: 4 of 4, 4 done")
		}},
		{name: "tasks are listed and replayed by the operation that changed them", tell: func(w *world) {
			listed := func(f filter) []string { return ids(w.list(f)) }
			w.fill(4, spec{Queue: "a"})
			all := listed(filter{Queue: "a"})
			o := w.operate(operation{Action: "cancel", Filter: filter{Queue: "a"}, Max: 3})
			mine := listed(filter{Operation: o.ID})
			is(w, "those that it cancelled", len(mine), 3)
			left := listed(filter{Queue: "a", States: []string{"ready"}})
			left = append(left, mine...)
			slices.Sort(left)
			slices.Sort(all)
			is(w, "those and the one that it left", left, all)
			again := w.operate(operation{Action: "replay", Filter: filter{Operation: o.ID, States: []string{"cancelled"}}})
			is(w, "the counts", again.counts(), "done: 3 of 3, 3 done")
			is(w, "its filter", again.Filter, filter{Operation: o.ID, States: []string{"cancelled"}})
			print := "00ff00ff00ff00ff"
			none := w.operate(operation{Action: "discard", Filter: filter{Fingerprint: print, States: []string{"dead"}}})
			is(w, "a filter with a fingerprint", none.Filter, filter{Fingerprint: print, States: []string{"dead"}})
			fields := filter{Payload: []string{"n:17.0", "to:nobody"}, States: []string{"dead"}}
			is(w, "a filter with fields of the payload", w.operate(operation{Action: "discard", Filter: fields}).Filter, fields)
			is(w, "those of the first by now", len(listed(filter{Operation: o.ID})), 0)
			is(w, "those of the second", listed(filter{Queue: "a", Operation: again.ID}), mine)
			there := w.operate(operation{Action: "move", Filter: filter{Operation: again.ID}, ToQueue: "b"})
			is(w, "moved", there.counts(), "done: 3 of 3, 3 done")
			is(w, "their new selves", len(listed(filter{Queue: "b", Operation: there.ID})), 3)
			is(w, "their old selves", listed(filter{Queue: "a", Operation: there.ID}), mine)
		}},
		{name: "operations are listed newest first, in pages", tell: func(w *world) {
			var all []string
			for range 3 {
				o := w.operate(operation{Action: "run_now", Filter: filter{Queue: "a"}})
				is(w, "its counts", o.counts(), "done: 0 of 0, 0 done")
				all = append(all, o.ID)
				w.pass(second)
			}
			w.id(spec{Queue: "a"})
			w.id(spec{Queue: "b"})
			list, next, err := w.operations().Operations(w.ctx(), part{Limit: 2})
			must(w.T, err)
			rest, end, err := w.operations().Operations(w.ctx(), part{Limit: 2, Cursor: next})
			must(w.T, err)
			var got []string
			for _, o := range append(list, rest...) {
				got = append(got, o.ID)
			}
			is(w, "the list", got, reversed(all))
			is(w, "the end", end, "")
		}},
		{name: "a move skips tasks with follow-up tasks and members of groups, and keeps a task's parent", tell: func(w *world) {
			first := w.id(spec{Queue: "a", Then: []spec{{Type: "next", Queue: "a"}}})
			_, tasks := w.group(groupSpec{Tasks: []spec{{Type: "member", Queue: "a"}}})
			w.id(spec{Queue: "a", Type: "free"})
			move := operation{Action: "move", Filter: filter{Queue: "a"}, ToQueue: "b"}
			is(w, "the counts", w.operate(move).counts(), "done: 3 of 3, 1 done, 2 skipped as in_workflow")
			is(w, "those left alone", []string{w.state(first), w.state(tasks[0].ID)}, []string{"ready", "ready"})
			is(w, "the one that moved", w.claims(from("b"))[0].Type, "free")
			for range 2 {
				w.ackWith(w.claims(from("a"))[0], "7")
			}
			w.pass(second)
			is(w, "the counts behind", w.operate(move).counts(), "done: 1 of 1, 1 done")
			next := w.claims(from("b"))[0]
			is(w, "the one that follows", []string{next.Type, next.Parent.TaskID, string(next.Parent.Result)}, []string{"next", first, "7"})
		}},
		{name: "invalid operations are refused", tell: func(w *world) {
			w.id(spec{Queue: "a"})
			w.id(spec{Queue: "b"})
			for field, o := range map[string]operation{
				"action":       {Filter: filter{}},
				"filter.state": {Action: "move", ToQueue: "x", Filter: filter{States: []string{"dead"}}},
				"to_queue":     {Action: "move", Filter: filter{}},
				"priority":     {Action: "set_priority"},
				"max":          {Action: "cancel", Max: -1},
				"canary":       {Action: "cancel", Max: 3, Canary: 3},
				"filter.queue": {Action: "cancel", Filter: filter{Queue: "no/name"}},
			} {
				_, err := w.operations().StartOperation(w.ctx(), o)
				w.refused(field, err, refusal{Code: "invalid_argument", Field: field})
			}
			_, err := w.operations().Operation(w.ctx(), "01900000-0000-7001-8000-000000000000", 0)
			w.refused("an unknown one", err, refusal{Code: "not_found"})
		}},
	}
	for i := range stories {
		stories[i].gateway = true
	}
	tellAll(t, append(stories, overTwoShards(stories)...))
}
