package workflow

import (
	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// View describes a group.
type View struct {
	ID        task.ID
	Name      string
	State     State
	Open      bool
	Counts    Counts
	CreatedAt store.Time
	EndedAt   store.Time // 0: not all members have ended
	KeptUntil store.Time
	Within    []string          // patterns of the queues to which its creator was limited; nil: all
	Points    []schema.Follower // the tasks that it enqueues at points of its life, with their states
}

// Member is a member of a group as its home records it.
type Member struct {
	Ref     task.ID
	ID      task.ID // zero: it is on its way to another shard, or was refused
	Type    string
	Queue   string
	State   task.State // the final state; 0: it has not ended
	Refused string     // why it was refused; "": it was not
	Result  schema.Result
	Omitted bool // the result is too large to keep here: the task has it
}

func viewOfGroup(r *engine.Round, ns string, g *taskGroup) *View {
	return groupView(r.Tx(), ns, g)
}

func groupView(from store.Reader, ns string, g *taskGroup) *View {
	v := &View{ID: g.id, Name: g.name, State: g.state, Open: g.open, Counts: g.counts, CreatedAt: g.createdAt, EndedAt: g.endedAt,
		KeptUntil: g.keptUntil, Within: g.within}
	for _, f := range schema.ReadFollowers(from, ns, g.id) {
		if f.Type != "" {
			v.Points = append(v.Points, f)
		}
	}
	return v
}

// Show reads a group.
func Show(from store.Reader, ns string, id task.ID) (*View, error) {
	g, ok := readGroup(from, ns, id)
	if !ok || g.expired {
		return nil, task.NotFound("group", id.String())
	}
	return groupView(from, ns, g), nil
}

// List reads up to limit groups before one, newest first; a zero id: from the newest. Groups outside the scope are skipped.
func List(from store.Reader, ns string, s task.Scope, before task.ID, limit int) (groups []*View, more bool) {
	lo, hi := schema.TableBounds(ns, schema.TableGroup)
	if before != (task.ID{}) {
		hi = schema.IDKey(ns, schema.TableGroup, before)
	}
	m := schema.Count(from)
	m.ScanBack(lo, hi, func(k, row []byte) bool {
		if more = len(groups) == limit || m.Full() && len(groups) > 0; more {
			return false
		}
		g := schema.Must(decodeGroup(schema.IDAt(k), row))
		if !g.expired && s.Covers(task.Scope{Queues: g.within}) {
			groups = append(groups, groupView(m, ns, g))
		}
		return true
	})
	return groups, more
}

// Members reads up to limit members of a group after one, or roughly 8 MiB of them: first the numbered ones, in order,
// then those with request ids and the follow-ups of members.
func Members(from store.Reader, ns string, id, behind task.ID, limit int) (list []Member, more bool, err error) {
	if g, ok := readGroup(from, ns, id); !ok || g.expired {
		return nil, false, task.NotFound("group", id.String())
	}
	meter := schema.Count(from)
	for len(list) < limit && !meter.Full() {
		chunk := min(limit-len(list), 100)
		refs, members := membersOf(meter, ns, id, behind, chunk)
		for i, m := range members {
			list = append(list, Member{Ref: refs[i], ID: m.id, Type: m.typ, Queue: m.queue, State: m.state, Refused: m.refused,
				Result: m.result, Omitted: m.omitted})
		}
		if len(refs) < chunk {
			return list, false, nil
		}
		behind = refs[len(refs)-1]
	}
	return list, true, nil
}
