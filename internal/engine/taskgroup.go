package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A group lives in one shard, its home, whose number is in its id. The home has a row of where the group is, with its counters, a row
// for each member, and what the group enqueues when it comes to a point. Members are where their queues lie. A member tells its home
// when it ends, or lives again after a replay, by a notice: at once if the home is its own shard, else through the outbox. Notices of
// a member are numbered, and the home keeps the number of the newest, so that each end counts once, whatever comes late or twice.

// GroupState says where a group is.
type GroupState uint8

// The values are stored.
const (
	GroupRunning   GroupState = iota // members may be added
	GroupComplete                    // all had ended
	GroupCancelled                   // by a caller: its members are cancelled, or will be
)

var groupStates = []string{"running", "complete", "cancelled"}

func (s GroupState) String() string {
	if int(s) >= len(groupStates) { // of a later release
		return fmt.Sprintf("state_%d", s)
	}
	return groupStates[s]
}

// GroupCounts are the members of a group by where they are. Pending are those that have not ended.
type GroupCounts struct {
	Members, Pending, Succeeded, Dead, Poisoned, Discarded, Cancelled, Refused int64
}

// of is the counter of a member.
func (c *GroupCounts) of(m *member) *int64 {
	switch {
	case m.refused != "":
		return &c.Refused
	case m.state == task.Succeeded:
		return &c.Succeeded
	case m.state == task.Dead:
		return &c.Dead
	case m.state == task.Poisoned:
		return &c.Poisoned
	case m.state == task.Discarded:
		return &c.Discarded
	case m.state == task.Cancelled:
		return &c.Cancelled
	}
	return &c.Pending
}

// taskGroup is where a group is.
type taskGroup struct {
	id        task.ID
	name      string
	state     GroupState
	open      bool
	counts    GroupCounts
	added     uint64 // members that were given a number
	results   int64  // bytes of results that are kept
	waits     uint8  // bits by callback: it waits for its point
	retention *time.Duration
	createdAt store.Time
	endedAt   store.Time // when it was complete, or all members of a cancelled one had ended
	keptUntil store.Time
	wake      store.Time // its deadline: members are to be cancelled, or its rows go; 0: none
	walking   bool       // its members are being cancelled
	walk      task.ID    // behind this one
	leaving   bool       // its retention is over: only a repeat of the call that made it still finds it
	within    []string   // patterns of the queues that its maker was limited to; nil: all

	// Of the round, not stored.
	dirty   bool
	joining bool // a member is about to be counted: the group can't be complete
}

// The points of a group's life at which it enqueues a task, by their places in the row of what follows it.
const (
	onComplete = iota
	onSuccess
	onDeath
	groupPoints
)

var groupPointWords = [groupPoints]string{"on_complete", "on_success", "on_death"}

// member is what a group's home knows of a member.
type member struct {
	turn    uint64     // of the newest notice
	state   task.State // the end; 0: it has not ended
	id      task.ID    // zero: it is on its way
	typ     string
	queue   string
	refused string // the code; "": it was not
	result  schema.Result
	omitted bool // the result is too large to keep
}

func (m *member) pending() bool { return m.refused == "" && !m.state.Ended() }

// NewGroup is a filled and checked group with what the broker adds to it.
type NewGroup struct {
	task.Group
	Namespace string
	ID        task.ID // its shard is this one; derived from the request id, or new
}

// Joined is what became of a task that was to be a member of a group.
type Joined struct {
	Accepted
	Message *OutboxMessage // that brings it to its shard; nil: it is there, or was
	Err     error          // it was refused, and is no member unless it was given with its group
}

// GroupMade is the answer to making a group.
type GroupMade struct {
	Group     *GroupView
	Tasks     []Joined // in the order of the group's
	Duplicate bool     // the request had made it already
}

// How long a group is kept once it has ended.
const (
	keepGroup     = 24 * time.Hour
	keepDeadGroup = 14 * 24 * time.Hour // if something of it may be replayed
)

// MakeGroup makes a group and its members, all or nothing, here or as messages. A member that its queue refuses for a key that another
// task has is counted as refused.
//
// Errors: queue_full if a queue of this shard has no room for its members; unavailable while the rows are deleted of a group that the same
// request made long before; invalid_argument.
func MakeGroup(r *Round, n *NewGroup) (made GroupMade, err error) {
	if g, ok := r.anyGroup(n.Namespace, n.ID); ok {
		if !g.remembered(r.now) {
			return made, errGroupLeaves
		}
		return r.madeBefore(n, g), nil
	}
	if err := r.roomFor(n.Namespace, n.Tasks); err != nil {
		return made, err
	}
	for i := range n.Tasks {
		if err := checkThenAt(fmt.Sprintf("tasks[%d]", i), &n.Tasks[i], r.now.Time()); err != nil {
			return made, err
		}
	}
	g := &taskGroup{id: n.ID, name: n.Name, open: n.Open, retention: n.Retention, createdAt: r.now, within: n.Within}
	points := make([]schema.Follower, groupPoints)
	for i, s := range []*task.Spec{onComplete: n.OnComplete, onSuccess: n.OnSuccess, onDeath: n.OnDeath} {
		points[i] = schema.Follower{On: groupPointWords[i], Fate: schema.FateDropped}
		if s != nil {
			points[i] = newFollower(groupPointWords[i], s)
			g.waits |= 1 << i
		}
	}
	r.setFollowers(n.Namespace, n.ID, points)
	r.remember(n.Namespace, g)
	g.dirty = true
	g.joining = true
	made.Tasks = make([]Joined, len(n.Tasks))
	for i := range n.Tasks {
		s := n.Tasks[i]
		g.added++
		s.Member = &task.Member{Group: n.ID, Ref: numberedRef(g.added)}
		m, j := r.join(n.Namespace, s, g.added)
		r.countNew(n.Namespace, g, &s, m)
		made.Tasks[i] = j
	}
	g.joining = false
	r.advance(n.Namespace, g, task.ID{})
	made.Group = r.groupView(n.Namespace, g)
	return made, nil
}

// FindGroup is the answer to a call that made a group, or not_found.
func FindGroup(r *Round, n *NewGroup) (GroupMade, error) {
	g, ok := r.anyGroup(n.Namespace, n.ID)
	if !ok || !g.remembered(r.now) {
		return GroupMade{}, task.NotFound("group", n.ID.String())
	}
	return r.madeBefore(n, g), nil
}

// madeBefore answers a call that is repeated.
func (r *Round) madeBefore(n *NewGroup, g *taskGroup) GroupMade {
	made := GroupMade{Group: r.groupView(n.Namespace, g), Tasks: make([]Joined, len(n.Tasks)), Duplicate: true}
	for i := range made.Tasks {
		ref := numberedRef(uint64(i) + 1) // #nosec G115 -- at most a batch
		if m, ok := r.member(n.Namespace, n.ID, ref); ok {
			made.Tasks[i] = r.joinedBefore(n.Namespace, n.ID, ref, m)
		}
	}
	return made
}

// roomFor refuses tasks for which the queues of this shard have no room. Those of other shards wait on their way.
func (r *Round) roomFor(ns string, tasks []task.Spec) error {
	wanted := map[*queue]int64{}
	var all, size int64
	var in *space
	for i := range tasks {
		q := r.queue(ns, tasks[i].Queue)
		if q == nil || closed(q.config.Closed, &tasks[i]) {
			continue
		}
		wanted[q]++
		in, all, size = q.space, all+1, size+tasks[i].Size()
		if most := q.config.Settings.MaxLength; most > 0 && q.counts.Waiting()+wanted[q] > most {
			return &task.Error{Code: task.CodeQueueFull, RetryAfter: time.Second, Message: fmt.Sprintf(
				"queue %q has no room for all tasks of the group: %d wait, max_length is %d", q.name, q.counts.Waiting(), most)}
		}
	}
	if in != nil {
		return in.admit(all, 0, size)
	}
	return nil
}

// join enqueues a new member, here or as a message.
func (r *Round) join(ns string, s task.Spec, n uint64) (*member, Joined) {
	ref, group := s.Member.Ref, s.Member.Group
	m := &member{typ: s.Type, queue: s.Queue}
	s.RequestID = task.ID{} // the member's row is the record of the request
	a, err := Enqueue(r, &NewTask{Spec: s, Namespace: ns, ID: r.bornID(group, memberBirths+n), Fresh: true})
	var refused *task.Error
	switch {
	case err == nil && a.Duplicate:
		m.refused = refusedDuplicate
	case err == nil:
		m.id = a.ID
	case errors.Is(err, ErrUnknownQueue) || errors.Is(err, ErrSlotMoved):
		p := &OutboxMessage{Request: partID(group, ref), Spec: s}
		r.send(ns, p)
		return m, Joined{Message: p}
	case errors.As(err, &refused):
		m.refused = string(refused.Code)
	default:
		panic(fmt.Sprintf("member of group %s: %v", group, err))
	}
	return m, Joined{Accepted: a, Err: err}
}

const (
	// memberBirths are apart from the births of what a group enqueues itself.
	memberBirths = 1 << 32
	// refusedDuplicate: an idempotency key or unique key stands for another task.
	refusedDuplicate = "duplicate"
)

// joinedBefore is what became of a member that joined by an earlier call.
func (r *Round) joinedBefore(ns string, group, ref task.ID, m *member) Joined {
	if m.id == (task.ID{}) && m.refused == "" {
		if p, ok := readMessage(r.tx, ns, partID(group, ref)); ok {
			return Joined{Message: p}
		}
	}
	if m.refused != "" {
		return Joined{Err: &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("the task was refused before: %s", m.refused)}}
	}
	j := Joined{Accepted: Accepted{ID: m.id, State: m.state, CreatedAt: r.now, Duplicate: true}}
	if m.state == 0 {
		j.State = task.Ready
	}
	if x, err := r.exec(ns, m.id); err == nil {
		j.State, j.CreatedAt = x.State, x.CreatedAt
	}
	return j
}

// AddToGroup makes new members of a group, each answered by itself: one that is refused is no member. A request id that was given
// before finds its member.
//
// Errors: not_found; wrong_state if the group has ended; invalid_argument if it would have too many members.
func AddToGroup(r *Round, ns string, id task.ID, tasks []task.Spec) ([]Joined, error) {
	g, ok := r.group(ns, id)
	if !ok {
		return nil, task.NotFound("group", id.String())
	}
	out := make([]Joined, len(tasks))
	for i := range tasks {
		s := tasks[i]
		requested := s.RequestID != (task.ID{})
		if requested {
			s.Member = &task.Member{Group: id, Ref: requestedRef(s.RequestID)}
			if m, ok := r.member(ns, id, s.Member.Ref); ok {
				out[i] = r.joinedBefore(ns, id, s.Member.Ref, m)
				continue
			}
		}
		if out[i].Err = g.mayJoin(); out[i].Err == nil {
			out[i].Err = g.inGroup(&s)
		}
		if out[i].Err != nil {
			continue
		}
		if !requested {
			s.Member = &task.Member{Group: id, Ref: numberedRef(g.added + 1)}
		}
		g.joining = true
		m, j := r.join(ns, s, g.added+1)
		if out[i] = j; m.refused == "" && j.Err == nil {
			g.added++
			r.countNew(ns, g, &s, m)
		}
		g.joining = false
	}
	r.advance(ns, g, task.ID{})
	return out, nil
}

// mayJoin says whether a group takes another member.
func (g *taskGroup) mayJoin() error {
	if g.state != GroupRunning {
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("group %q: it is %s, and takes no members any more", g.id, g.state)}
	}
	if g.added >= task.MaxGroupMembers {
		return task.Invalid("tasks", "group %s has had %d members added: no more can be", g.id, g.added)
	}
	return nil
}

// CloseGroup lets an open group be complete when all its members have ended. On one that is closed it changes nothing.
func CloseGroup(r *Round, ns string, id task.ID) (*GroupView, error) {
	g, ok := r.group(ns, id)
	if !ok {
		return nil, task.NotFound("group", id.String())
	}
	if g.open {
		g.open = false
		g.dirty = true
		r.advance(ns, g, task.ID{})
	}
	return r.groupView(ns, g), nil
}

// The names of a group's members: those that were given a number lie in its order, and behind them those with a request id, and what
// follows members.
func numberedRef(n uint64) (ref task.ID) {
	binary.BigEndian.PutUint64(ref[:8], n)
	return ref
}

func requestedRef(request task.ID) task.ID {
	request[0] |= 0x80
	return request
}

// followerRef is that of the i-th task that follows a member.
func followerRef(parent task.ID, i int) task.ID {
	return requestedRef(requestOf(parent, uint64(i)+1)) // #nosec G115 -- a few
}

// group finds a group for a change: all verbs of a round share what they change of it, since what one enqueues may end a member in
// the middle of another. It is written when the round is sealed.
func (r *Round) group(ns string, id task.ID) (*taskGroup, bool) {
	g, ok := r.anyGroup(ns, id)
	return g, ok && !g.leaving
}

// remembered says whether a repeat of the call that made the group still finds it. While the rows of a large group are deleted, in several
// rounds, it doesn't.
func (g *taskGroup) remembered(now store.Time) bool {
	return !g.leaving || now < g.createdAt.Add(dedupWindow)
}

var errGroupLeaves error = &task.Error{Code: task.CodeUnavailable, RetryAfter: 100 * time.Millisecond,
	Message: "the group that this request made before is being deleted"}

// anyGroup is group with those that are leaving.
func (r *Round) anyGroup(ns string, id task.ID) (*taskGroup, bool) {
	if g := r.groups[groupName{ns, id}]; g != nil {
		return g, true
	}
	g, ok := readGroup(r.tx, ns, id)
	if ok {
		r.remember(ns, g)
	}
	return g, ok
}

type groupName struct {
	ns string
	id task.ID
}

func (r *Round) remember(ns string, g *taskGroup) {
	if r.groups == nil {
		r.groups = map[groupName]*taskGroup{}
	}
	r.groups[groupName{ns, g.id}] = g
	r.groupOrder = append(r.groupOrder, groupName{ns, g.id})
}

// sealGroups writes the groups that the round changed.
func (r *Round) sealGroups() {
	for _, name := range r.groupOrder {
		if g := r.groups[name]; g != nil && g.dirty {
			g.dirty = false
			r.tx.Set(schema.IDKey(name.ns, schema.TableGroup, name.id), g.encode())
		}
	}
}

func readGroup(from store.Reader, ns string, id task.ID) (*taskGroup, bool) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableGroup, id))
	if !ok {
		return nil, false
	}
	g, err := decodeGroup(id, row)
	schema.Must(err)
	return g, true
}

func (r *Round) member(ns string, group, ref task.ID) (*member, bool) {
	row, ok := r.tx.Get(schema.MemberKey(ns, group, ref))
	if !ok {
		return nil, false
	}
	m, err := decodeMember(row)
	schema.Must(err)
	return m, true
}

// countNew counts a new member, unless it has told of itself already: its enqueue may replace the last member of another group, which
// then enqueues a task that replaces this one.
func (r *Round) countNew(ns string, g *taskGroup, s *task.Spec, m *member) {
	if s.Unique != nil {
		if _, told := r.member(ns, g.id, s.Member.Ref); told {
			return
		}
	}
	r.setMember(ns, g, s.Member.Ref, nil, m)
}

// setMember writes a member and counts it: from is as it was, nil for a new one.
func (r *Round) setMember(ns string, g *taskGroup, ref task.ID, from, to *member) {
	if from == nil {
		g.counts.Members++
	} else {
		*g.counts.of(from)--
	}
	*g.counts.of(to)++
	g.dirty = true
	r.tx.Set(schema.MemberKey(ns, g.id, ref), to.encode())
}
