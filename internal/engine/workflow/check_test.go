package workflow

import (
	"testing"

	"github.com/pawlq/pawl/internal/engine/checktest"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/task"
)

// checked holds the rows to check, before they are encoded.
type checked struct {
	*checktest.Rows
	followers map[task.ID][]schema.Follower
	groups    map[task.ID]*taskGroup
	members   map[[2]task.ID]*member
	messages  []*schema.Message
}

// idOf returns an id of shard 1.
func idOf(n uint64) task.ID { return task.NewID(1, 1, n) }

// The groups, members and tasks of the world below.
var (
	groupGone, groupEnded, groupRuns = idOf(1), idOf(2), idOf(3) // groups
	parent, waiting                  = idOf(11), idOf(12)        // tasks that others follow
	first, second                    = idOf(21), idOf(22)        // members of the running group
	old, oldest                      = idOf(31), idOf(32)        // of the leaving group
)

// newChecked returns rows in which everything agrees.
func newChecked() *checked {
	w := &checked{Rows: checktest.New(), followers: map[task.ID][]schema.Follower{}, groups: map[task.ID]*taskGroup{},
		members: map[[2]task.ID]*member{}}
	point := func(i int, s schema.FollowerState, spec []byte) schema.Follower {
		return schema.Follower{On: groupPointWords[i], State: s, Spec: spec}
	}
	w.Known[parent] = &schema.Exec{State: task.Succeeded, Links: &schema.Links{Followed: true}}
	w.Known[waiting] = &schema.Exec{State: task.Ready, Links: &schema.Links{Followed: true}}
	w.Known[idOf(13)] = &schema.Exec{State: task.Ready}
	w.followers[parent] = []schema.Follower{{State: schema.FollowerSent}, {State: schema.FollowerCreated, ID: idOf(13)}}
	w.followers[waiting] = []schema.Follower{{Type: "t", State: schema.FollowerWaiting, Spec: []byte("x")}}
	w.messages = append(w.messages, &schema.Message{Request: idOf(91), From: schema.Origin{Parent: parent, N: 0}})

	w.groups[groupRuns] = &taskGroup{id: groupRuns, state: Running, createdAt: 5, waits: 1<<onComplete | 1<<onDeath,
		counts: Counts{Members: 5,
			Pending: 4, Succeeded: 1}}
	w.followers[groupRuns] = []schema.Follower{point(onComplete, schema.FollowerWaiting, []byte("x")),
		point(onSuccess, schema.FollowerDropped,
			nil), point(onDeath, schema.FollowerWaiting, []byte("x"))}
	w.join(first, numberedRef(1), groupRuns, task.Ready, 2)
	w.join(second, numberedRef(2), groupRuns, task.Succeeded, 1)
	w.members[[2]task.ID{groupRuns, numberedRef(3)}] = &member{} // on its way
	w.messages = append(w.messages, &schema.Message{Request: task.PartID(groupRuns, numberedRef(3))})
	// so is this one, of which its shard knows
	w.members[[2]task.ID{groupRuns, requestedRef(idOf(4))}] = &member{}
	// of another shard
	w.members[[2]task.ID{groupRuns, numberedRef(5)}] = &member{id: task.NewID(2, 1, 1), revision: 1}
	// whose creation was not reported to the group
	w.Known[idOf(23)] = &schema.Exec{State: task.Ready, CreatedAt: 9, Links: &schema.Links{Group: groupRuns,
		Ref: requestedRef(task.ID{0x12})}}

	w.groups[groupEnded] = &taskGroup{id: groupEnded, state: Complete, createdAt: 5, endedAt: 6, keptUntil: 7, deadline: 7}
	w.followers[groupEnded] = []schema.Follower{point(onComplete, schema.FollowerSent, nil), point(onSuccess, schema.FollowerCreated, nil),
		point(onDeath, schema.FollowerDropped, nil)}
	w.messages = append(w.messages, &schema.Message{Request: idOf(92), From: schema.Origin{Parent: groupEnded, N: onComplete}})
	// of an older group of that id
	w.Known[idOf(24)] = &schema.Exec{State: task.Ready, CreatedAt: 4, Links: &schema.Links{Group: groupEnded, Ref: numberedRef(1)}}

	w.groups[groupGone] = &taskGroup{id: groupGone, state: Cancelled, createdAt: 5, endedAt: 6, keptUntil: 7, deadline: 7, expired: true,
		counts: Counts{Members: 2, Pending: 2}}
	w.followers[groupGone] = make([]schema.Follower, groupPoints)
	for i := range w.followers[groupGone] {
		w.followers[groupGone][i].State = schema.FollowerDropped
	}
	w.join(old, numberedRef(1), groupGone, task.Ready, 1)
	w.Known[old].State = task.Succeeded
	w.Known[oldest] = &schema.Exec{State: task.Ready, CreatedAt: 9, Links: &schema.Links{Group: groupGone, Ref: numberedRef(2)}}
	// of a forgotten group
	w.Known[idOf(33)] = &schema.Exec{State: task.Ready, CreatedAt: 9, Links: &schema.Links{Group: idOf(99), Ref: numberedRef(2)}}
	return w
}

// join makes a task a member, as its group records it.
func (w *checked) join(id, ref, group task.ID, s task.State, turn uint64) {
	w.Known[id] = &schema.Exec{State: s, CreatedAt: 9, Links: &schema.Links{Group: group, Ref: ref, Revision: turn}}
	m := &member{id: id, revision: turn}
	if s.Ended() {
		m.state = s
	}
	w.members[[2]task.ID{group, ref}] = m
}

func (w *checked) check() {
	for id, all := range w.followers {
		w.Set(schema.IDKey(checktest.NS, schema.TableFollow, id), schema.EncodeFollowers(all))
	}
	for id, g := range w.groups {
		w.Set(schema.IDKey(checktest.NS, schema.TableGroup, id), g.encode())
	}
	for name, m := range w.members {
		w.Set(schema.MemberKey(checktest.NS, name[0], name[1]), m.encode())
	}
	for _, m := range w.messages {
		w.Set(schema.IDKey(checktest.NS, schema.TableOutbox, m.Request), m.Encode())
	}
	check(w.Rows)
}

// Every disagreement is reported, by exactly one finding.
func TestCheck(t *testing.T) {
	ref := func(n uint64) [2]task.ID { return [2]task.ID{groupRuns, numberedRef(n)} }
	broken := []byte{0xff}
	for name, c := range map[string]struct {
		spoil func(w *checked)
		want  string
	}{
		"nothing": {func(*checked) {}, ""},

		"a message that can't be read": {func(w *checked) { w.Set(schema.IDKey(checktest.NS, schema.TableOutbox, idOf(93)), broken) },
			"message"},
		"a message with a wrong address": {func(w *checked) {
			m := w.messages[0]
			w.messages = w.messages[1:]
			to := schema.Message{Request: m.Request, From: m.From, Spec: task.Spec{Queue: "elsewhere"}}
			row := append(to.Encode(), m.Encode()[1:]...)
			w.Set(schema.IDKey(checktest.NS, schema.TableOutbox, m.Request), row)
		}, "is sent to"},
		"a row that are orphaned":           {func(w *checked) { w.followers[idOf(77)] = nil }, "are orphaned"},
		"a row behind a task without links": {func(w *checked) { w.followers[idOf(13)] = nil }, "are orphaned"},
		"a row behind a task that says no":  {func(w *checked) { w.followers[first] = nil }, "are orphaned"},
		"a row that can't be read": {func(w *checked) {
			delete(w.followers, waiting)
			w.Set(schema.IDKey(checktest.NS, schema.TableFollow, waiting), broken)
		}, "are orphaned"},
		"no row":                        {func(w *checked) { delete(w.followers, waiting) }, "has lost its followers"},
		"waits for a success that came": {func(w *checked) { w.Known[waiting].State = task.Succeeded }, "is succeeded, and its follower 0"},
		"created before the success": {func(w *checked) {
			w.Known[parent].State, w.followers[parent] = task.Dead, w.followers[parent][1:]
			w.messages = w.messages[1:]
		}, "is dead, and its follower 0"},
		"waits without a task": {func(w *checked) { w.followers[waiting][0].Spec = nil }, "is ready, and its follower 0"},
		"created, and its task is kept": {func(w *checked) { w.followers[parent][1].Spec = []byte("x") },
			"is succeeded, and its follower 1"},
		"sent, and no message is there": {func(w *checked) { w.messages = w.messages[1:] }, "follower 0 of"},
		"created, and a message is on its way": {func(w *checked) {
			w.messages[0].From.N = 1
			w.followers[parent][0].State = schema.FollowerCreated
		}, "follower 1 of"},
		"too few points":               {func(w *checked) { w.followers[groupGone] = w.followers[groupGone][1:] }, "has 2 points"},
		"a point waits, by the group":  {func(w *checked) { w.groups[groupRuns].waits |= 1 << onSuccess }, "on_success is dropped"},
		"a point waits, by its row":    {func(w *checked) { w.groups[groupRuns].waits = 1 << onDeath }, "on_complete is waiting"},
		"a point waits without a task": {func(w *checked) { w.followers[groupRuns][onDeath].Spec = nil }, "on_death is waiting"},
		"a point of a group that has ended": {func(w *checked) {
			w.groups[groupEnded].waits = 1 << onDeath
			w.followers[groupEnded][onDeath] = w.followers[groupRuns][onDeath]
		}, "on_death is waiting"},
		"a point was sent without a message": {func(w *checked) { w.messages = w.messages[:2] }, "on_complete of group"},
		"a group that can't be read": {func(w *checked) { w.Set(schema.IDKey(checktest.NS, schema.TableGroup, idOf(9)), broken) },
			"group"},
		"a task has a group's id": {func(w *checked) { w.Known[groupRuns] = &schema.Exec{State: task.Ready} }, "has the id of a task"},
		"ended and not kept":      {func(w *checked) { w.groups[groupEnded].keptUntil = 0 }, "ended 6, kept until 0"},
		"kept and not ended":      {func(w *checked) { w.groups[groupRuns].keptUntil = 7 }, "ended 0, kept until 7"},
		"complete and not ended": {func(w *checked) { w.groups[groupEnded].endedAt, w.groups[groupEnded].keptUntil = 0, 0 },
			"is complete: ended 0"},
		"running, and nothing is pending":   {func(w *checked) { w.idle(groupRuns) }, "nothing is pending"},
		"open, and nothing is pending":      {func(w *checked) { w.idle(groupRuns); w.groups[groupRuns].open = true }, ""},
		"cancelled, and nothing is pending": {func(w *checked) { w.idle(groupRuns); w.groups[groupRuns].state = Cancelled }, ""},
		"a member of nothing": {func(w *checked) { w.members[[2]task.ID{idOf(98), numberedRef(1)}] = &member{} },
			"is orphaned"},
		"a member that can't be read": {func(w *checked) { w.Set(schema.MemberKey(checktest.NS, groupGone, numberedRef(8)), broken) },
			"is orphaned"},
		"a pending member without a task": {func(w *checked) {
			w.members[ref(7)] = &member{id: idOf(78)}
			w.groups[groupRuns].counts.Members++
			w.groups[groupRuns].counts.Pending++
		}, "is pending, and task"},
		"a member that is lost": {func(w *checked) { w.messages[1].Request = idOf(94) }, "lost on its way"},
		"a member that was refused": {func(w *checked) {
			w.messages[1].Request, w.members[ref(3)].refused = idOf(94), "duplicate"
			w.groups[groupRuns].counts.Pending--
			w.groups[groupRuns].counts.Refused++
		}, ""},
		"a count":                             {func(w *checked) { w.groups[groupRuns].counts.Dead++ }, "counts"},
		"a task that its group does not know": {func(w *checked) { w.Known[idOf(23)].Links.Ref = numberedRef(6) }, "and its group has"},
		"a task that came back to life, and its group does not know it": {func(w *checked) { w.Known[idOf(23)].Links.Revision = 1 },
			"and its group has"},
		"another task by that name": {func(w *checked) {
			w.Known[idOf(23)].Links.Ref = requestedRef(idOf(4))
			w.members[[2]task.ID{groupRuns, requestedRef(idOf(4))}].id = task.NewID(2, 1, 2)
		}, "and its group has"},
		"a birth that is not told": {func(w *checked) { w.Known[idOf(23)].Links.Ref = requestedRef(idOf(4)) }, ""},
		"a birth that is half told": {func(w *checked) {
			w.Known[idOf(23)].Links.Ref = requestedRef(idOf(4))
			w.members[[2]task.ID{groupRuns, requestedRef(idOf(4))}].revision = 1
		}, "and its group has"},
		"the turn of a member": {func(w *checked) { w.Known[first].Links.Revision++ }, "at turn 3"},
		"the end of a member":  {func(w *checked) { w.Known[second].State = task.Dead }, "is dead at turn 1"},
		"a member of the same round": {func(w *checked) { w.Known[idOf(23)].Links.Ref = numberedRef(6); w.Known[idOf(23)].CreatedAt = 5 },
			"and its group has"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newChecked()
			c.spoil(w)
			w.check()
			w.Expect(t, c.want, 2)
		})
	}
}

// A group needs a deadline once it has ended, or while its members are being cancelled.
func TestCheckDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(g *taskGroup)
		want  string
	}{
		"ended":     {func(g *taskGroup) { g.state, g.endedAt, g.keptUntil = Cancelled, 6, 7 }, "its deadline 0"},
		"cancelled": {func(g *taskGroup) { g.state, g.cancelling = Cancelled, true }, "its deadline 0"},
		"waits":     {func(g *taskGroup) { g.state = Cancelled }, ""},
	} {
		w := newChecked()
		w.idle(groupRuns)
		c.spoil(w.groups[groupRuns])
		w.check()
		t.Log(name)
		w.Expect(t, c.want, 2)
	}
}

// idle removes all pending members of a group, and all tasks that wait for it.
func (w *checked) idle(group task.ID) {
	for name, m := range w.members {
		if name[0] == group && m.pending() {
			delete(w.members, name)
			delete(w.Known, m.id)
		}
	}
	delete(w.Known, idOf(23))
	w.groups[group].counts, w.groups[group].waits = Counts{Members: 1, Succeeded: 1}, 0
	for i := range w.followers[group] {
		w.followers[group][i].State, w.followers[group][i].Spec = schema.FollowerDropped, nil
	}
}
