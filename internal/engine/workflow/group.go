package workflow

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/pawlq/pawl/internal/engine"
	"github.com/pawlq/pawl/internal/engine/schema"
	"github.com/pawlq/pawl/internal/store"
	"github.com/pawlq/pawl/internal/task"
)

// A group lives in one shard, its home, whose number is part of its id. The home has a row with the state and counters
// of the group, a row for each member, and a row with the tasks that the group enqueues at the points of its life.
// Members are in the shards of their queues. A member that ends or is replayed sends a notice to its home: directly if
// that is its own shard, else through the outbox. Notices of a member are numbered, and the home records the number of
// the newest, so that each end counts once even if notices arrive late or twice.

// State is the state of a group.
type State uint8

// The values are stored.
const (
	Running   State = iota // members may be added
	Complete               // all members have ended
	Cancelled              // by a caller; its members are being cancelled, or were
)

var groupStates = []string{"running", "complete", "cancelled"}

func (s State) String() string {
	if int(s) >= len(groupStates) { // of a later release
		return fmt.Sprintf("state_%d", s)
	}
	return groupStates[s]
}

// Counts holds the numbers of a group's members by state. Pending members have not ended.
type Counts struct {
	Members, Pending, Succeeded, Dead, Poisoned, Discarded, Cancelled, Refused int64
}

// of returns the counter for a member.
func (c *Counts) of(m *member) *int64 {
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

// taskGroup is the state of a group.
type taskGroup struct {
	id           task.ID
	name         string
	state        State
	open         bool
	counts       Counts
	added        uint64 // members that have a number
	results      int64  // bytes of stored results
	waits        uint8  // bit set of the points for which a task waits
	retention    *time.Duration
	createdAt    store.Time
	endedAt      store.Time // when all members had ended
	keptUntil    store.Time
	deadline     store.Time // its deadline, to cancel members or delete its rows; 0: none
	cancelling   bool       // its members are being cancelled
	cancelCursor task.ID    // members up to this one have been
	expired      bool       // its retention is over: only a repeat of the call that created it still finds it
	within       []string   // patterns of the queues to which its creator was limited; nil: all
	digest       uint64     // of the call that created it: see Call.digest

	// Not stored, only for the round.
	dirty   bool
	joining bool // a member is about to be counted, so the group can't be complete
}

// The points of a group's life at which it enqueues a task, by their index in the row of its follow-ups.
const (
	onComplete = iota
	onSuccess
	onDeath
	groupPoints
)

var groupPointWords = [groupPoints]string{"on_complete", "on_success", "on_death"}

// member is a member as its group's home records it.
type member struct {
	revision uint64     // of the newest notice
	state    task.State // the final state; 0: it has not ended
	id       task.ID    // zero: it is on its way to another shard
	typ      string
	queue    string
	refused  string // the error code; "": it was not refused
	result   schema.Result
	omitted  bool   // the result is too large to keep
	digest   uint64 // of the task, if its request id refers to the member; 0: it has none
}

func (m *member) pending() bool { return m.refused == "" && !m.state.Ended() }

// Call is a completed and validated group with what the broker adds to it.
type Call struct {
	task.Group
	Namespace string
	ID        task.ID // of this shard; derived from the request id, or new

	digested uint64
	members  []NewMember
}

// Hash hashes the tasks of the call, and returns it. It is called before the round, because large payloads take
// milliseconds; if it was not, the round does it.
func (n *Call) Hash() *Call {
	if n.members == nil {
		n.members, n.digested = NewMembers(n.Tasks), n.digest()
	}
	return n
}

// NewMember is a task that is to join a group, with hashes of its content.
type NewMember struct {
	task.Spec
	fingerprint uint64 // see engine.NewTask
	digest      uint64 // see member; 0: it has no request id
}

// NewMembers hashes tasks that are to join a group.
func NewMembers(tasks []task.Spec) []NewMember {
	var hasher engine.Hasher
	out := make([]NewMember, len(tasks))
	for i := range tasks {
		out[i] = NewMember{Spec: tasks[i], fingerprint: hasher.Hash(&tasks[i])}
		if tasks[i].RequestID != (task.ID{}) {
			out[i].digest = digest(&tasks[i])
		}
	}
	return out
}

// digest hashes what must be the same when a request is repeated.
func (n *Call) digest() uint64 {
	tasks := []*task.Spec{{Type: n.Name}, n.OnComplete, n.OnSuccess, n.OnDeath}
	for i := range n.Tasks {
		tasks = append(tasks, &n.Tasks[i])
	}
	return digest(tasks...)
}

// digest hashes what must be the same of tasks: not their options, nor the notation of their payloads, as for a task without a group.
func digest(tasks ...*task.Spec) uint64 {
	var d xxhash.Digest
	d.Reset()
	var content []byte
	for _, s := range tasks {
		if s == nil {
			s = &task.Spec{}
		}
		content = s.AppendContent(content[:0])
		for _, text := range [][]byte{[]byte(s.Queue), content} {
			_, _ = d.Write(binary.AppendUvarint(nil, uint64(len(text))))
			_, _ = d.Write(text)
		}
	}
	return d.Sum64()
}

// Joined is the outcome of adding a task to a group.
type Joined struct {
	engine.Accepted
	Message *schema.Message // that carries it to its shard; nil: it is there, or was
	Err     error           // it was refused, and is a member only if the group was created with it
}

// Made is the answer to creating a group.
type Made struct {
	Group     *View
	Tasks     []Joined // in the order of the call
	Duplicate bool     // the request had already created it
}

// How long a group is kept after it has ended.
const (
	keepGroup     = 24 * time.Hour
	keepDeadGroup = 14 * 24 * time.Hour // if some of its members may be replayed
)

// Make creates a group and its members, all or nothing. Members of other shards are sent as messages. A member whose
// key belongs to another task is counted as refused.
//
// Errors: conflict if the request created a group of other tasks; queue_full if a queue of this shard has no room for
// its members; unavailable while the rows of a group that the same request created long ago are being deleted;
// invalid_argument; ErrSlotMoved if the request may be known, or repeated, in another shard.
func Make(r *engine.Round, n *Call) (made Made, err error) {
	n.Hash()
	if g, ok := anyGroup(r, n.Namespace, n.ID); ok {
		if !g.remembered(r.Now()) {
			return made, ErrBeingDeleted
		}
		return madeBefore(r, n, g)
	}
	if n.movedAway(r) {
		return made, engine.ErrSlotMoved
	}
	if err := r.MayUseID(n.Namespace, n.RequestID, n.ID); err != nil {
		return made, err
	}
	if err := r.RoomFor(n.Namespace, n.Tasks); err != nil {
		return made, err
	}
	for i := range n.Tasks {
		if err := engine.CheckThenAt(fmt.Sprintf("tasks[%d]", i), &n.Tasks[i], r.Now().Time()); err != nil {
			return made, err
		}
	}
	g := &taskGroup{id: n.ID, name: n.Name, open: n.Open, retention: n.Retention, createdAt: r.Now(), within: n.Within, digest: n.digested}
	points := make([]schema.Follower, groupPoints)
	for i, s := range []*task.Spec{onComplete: n.OnComplete, onSuccess: n.OnSuccess, onDeath: n.OnDeath} {
		points[i] = schema.Follower{On: groupPointWords[i], State: schema.FollowerDropped}
		if s != nil {
			points[i] = newFollower(groupPointWords[i], s)
			g.waits |= 1 << i
		}
	}
	setFollowers(r, n.Namespace, n.ID, points)
	remember(r, n.Namespace, g)
	g.dirty = true
	g.joining = true
	made.Tasks = make([]Joined, len(n.Tasks))
	for i, s := range n.members {
		g.added++
		s.Member = &task.Member{Group: n.ID, Ref: numberedRef(g.added)}
		m, j := join(r, n.Namespace, s, g.added)
		countNew(r, n.Namespace, g, &s.Spec, m)
		made.Tasks[i] = j
	}
	g.joining = false
	advance(r, n.Namespace, g, task.ID{})
	made.Group = viewOfGroup(r, n.Namespace, g)
	return made, nil
}

// movedAway reports whether the slot of a request has moved since the group's shard was chosen by it. Then repeats of
// the request go elsewhere.
func (n *Call) movedAway(r *engine.Round) bool {
	q := r.Queue(n.Namespace, n.Home.Queue)
	slot, ok := n.Home.Slot()
	return q != nil && ok && n.RequestID != (task.ID{}) && (q.Config().Closed.Has(slot) || n.Home.Routed < q.Config().Moved)
}

// Find returns the answer to an earlier call that created a group, or not_found. If the shard does not know yet that
// the slot of the request has left it, it returns ErrUnknownQueue: the group could still be created here.
func Find(r *engine.Round, n *Call) (Made, error) {
	n.Hash()
	g, ok := anyGroup(r, n.Namespace, n.ID)
	if !ok && !engine.CanAnswer(r, n.Namespace, []task.Spec{n.Home}) {
		return Made{}, engine.ErrUnknownQueue
	}
	if !ok || !g.remembered(r.Now()) {
		return Made{}, task.NotFound("group", n.ID.String())
	}
	return madeBefore(r, n, g)
}

// madeBefore answers a repeated call.
func madeBefore(r *engine.Round, n *Call, g *taskGroup) (Made, error) {
	if n.digested != g.digest {
		return Made{}, &task.Error{Code: task.CodeConflict, Field: "request_id",
			Message: fmt.Sprintf("request_id %q was used for group %s, which has another name or other tasks", n.RequestID, n.ID)}
	}
	made := Made{Group: viewOfGroup(r, n.Namespace, g), Tasks: make([]Joined, len(n.Tasks)), Duplicate: true}
	for i := range made.Tasks {
		ref := numberedRef(uint64(i) + 1) // #nosec G115 -- at most a batch
		if m, ok := readMember(r, n.Namespace, n.ID, ref); ok {
			made.Tasks[i] = joinedBefore(r, n.Namespace, n.ID, ref, m)
		}
	}
	return made, nil
}

// join enqueues a new member, here or as a message.
func join(r *engine.Round, ns string, s NewMember, n uint64) (*member, Joined) {
	ref, group := s.Member.Ref, s.Member.Group
	m := &member{typ: s.Type, queue: s.Queue}
	s.RequestID = task.ID{} // the member's row is the record of the request
	a, err := engine.Enqueue(r, &engine.NewTask{Spec: s.Spec, Namespace: ns, ID: engine.ChildID(r, group, memberIDs+n), Fresh: true,
		Fingerprint: s.fingerprint})
	var refused *task.Error
	switch {
	case err == nil && a.Duplicate:
		m.refused = refusedDuplicate
	case err == nil:
		m.id = a.ID
	case errors.Is(err, engine.ErrUnknownQueue) || errors.Is(err, engine.ErrSlotMoved):
		p := &schema.Message{Request: task.PartID(group, ref), Spec: s.Spec}
		r.Send(ns, p)
		return m, Joined{Message: p}
	case errors.As(err, &refused):
		m.refused = string(refused.Code)
	default:
		panic(fmt.Sprintf("member of group %s: %v", group, err))
	}
	return m, Joined{Accepted: a, Err: err}
}

const (
	// memberIDs keeps the ids of members apart from those of the tasks that a group enqueues itself.
	memberIDs = 1 << 32
	// refusedDuplicate: an idempotency key or unique key belongs to another task.
	refusedDuplicate = "duplicate"
)

// joinedBefore returns the outcome of a member that an earlier call added.
func joinedBefore(r *engine.Round, ns string, group, ref task.ID, m *member) Joined {
	if m.id == (task.ID{}) && m.refused == "" {
		if p, ok := schema.ReadMessage(r.Tx(), ns, task.PartID(group, ref)); ok {
			return Joined{Message: p}
		}
	}
	if m.refused != "" {
		return Joined{Err: &task.Error{Code: task.CodeConflict, Message: fmt.Sprintf("the task was refused earlier: %s", m.refused)}}
	}
	j := Joined{Accepted: engine.Accepted{ID: m.id, State: m.state, CreatedAt: r.Now(), Duplicate: true}}
	if m.state == 0 {
		j.State = task.Ready
	}
	if x, err := r.Exec(ns, m.id); err == nil {
		j.State, j.CreatedAt = x.State, x.CreatedAt
	}
	return j
}

// Add adds members to a group, each with its own outcome: a refused task does not become a member. A repeated request id finds its member.
//
// Errors: not_found; wrong_state if the group has ended; invalid_argument if it would have too many members.
func Add(r *engine.Round, ns string, id task.ID, tasks []NewMember) ([]Joined, error) {
	g, ok := group(r, ns, id)
	if !ok {
		return nil, task.NotFound("group", id.String())
	}
	out := make([]Joined, len(tasks))
	for i, s := range tasks {
		requested := s.RequestID != (task.ID{})
		if requested {
			s.Member = &task.Member{Group: id, Ref: requestedRef(s.RequestID)}
			if m, ok := readMember(r, ns, id, s.Member.Ref); ok {
				if out[i] = joinedBefore(r, ns, id, s.Member.Ref, m); m.digest != 0 && m.digest != s.digest {
					out[i] = Joined{Err: &task.Error{Code: task.CodeConflict, Field: "request_id",
						Message: fmt.Sprintf("request_id %q was used for another member of group %s", s.RequestID, id)}}
				}
				continue
			}
		}
		if out[i].Err = g.mayJoin(); out[i].Err == nil {
			out[i].Err = g.inGroup(&s.Spec)
		}
		if out[i].Err != nil {
			continue
		}
		if !requested {
			s.Member = &task.Member{Group: id, Ref: numberedRef(g.added + 1)}
		}
		g.joining = true
		m, j := join(r, ns, s, g.added+1)
		m.digest = s.digest
		if out[i] = j; m.refused == "" && j.Err == nil {
			g.added++
			countNew(r, ns, g, &s.Spec, m)
		}
		g.joining = false
	}
	advance(r, ns, g, task.ID{})
	return out, nil
}

// mayJoin returns an error if the group takes no further members.
func (g *taskGroup) mayJoin() error {
	if g.state != Running {
		return &task.Error{Code: task.CodeWrongState, Message: fmt.Sprintf("group %q: it is %s, and accepts no more members", g.id,
			g.state)}
	}
	if g.added >= task.MaxGroupMembers {
		return task.Invalid("tasks", "group %s has had %d members added, the maximum", g.id, g.added)
	}
	return nil
}

// Close closes an open group, so that it becomes complete when all its members have ended. Closing a closed group is a no-op.
func Close(r *engine.Round, ns string, id task.ID) (*View, error) {
	g, ok := group(r, ns, id)
	if !ok {
		return nil, task.NotFound("group", id.String())
	}
	if g.open {
		g.open = false
		g.dirty = true
		advance(r, ns, g, task.ID{})
	}
	return viewOfGroup(r, ns, g), nil
}

// The references of a group's members: numbered ones are in order, and after them come those with a request id and the
// follow-ups of members.
func numberedRef(n uint64) (ref task.ID) {
	binary.BigEndian.PutUint64(ref[:8], n)
	return ref
}

func requestedRef(request task.ID) task.ID {
	request[0] |= 0x80
	return request
}

// followerRef returns the reference of the i-th follow-up of a member.
func followerRef(parent task.ID, i int) task.ID {
	return requestedRef(task.RequestOf(parent, uint64(i)+1)) // #nosec G115 -- a few
}

// group returns a group to change. All verbs of a round share one copy, because enqueuing a task in one may end a
// member in the middle of another. It is written when the round is sealed.
func group(r *engine.Round, ns string, id task.ID) (*taskGroup, bool) {
	g, ok := anyGroup(r, ns, id)
	return g, ok && !g.expired
}

// remembered reports whether a repeat of the call that created the group still finds it. It does not while the rows of
// a large group are being deleted, over several rounds.
func (g *taskGroup) remembered(now store.Time) bool {
	return !g.expired || now < g.createdAt.Add(task.RequestWindow)
}

var ErrBeingDeleted error = &task.Error{Code: task.CodeUnavailable, RetryAfter: 100 * time.Millisecond,
	Message: "the group that this request created earlier is being deleted"}

// anyGroup is group, but also returns groups that are leaving.
func anyGroup(r *engine.Round, ns string, id task.ID) (*taskGroup, bool) {
	if m := engine.HasRoundMemory[groups](r); m != nil && m.byName[groupName{ns, id}] != nil {
		return m.byName[groupName{ns, id}], true
	}
	g, ok := readGroup(r.Tx(), ns, id)
	if ok {
		remember(r, ns, g)
	}
	return g, ok
}

type groupName struct {
	ns string
	id task.ID
}

// groups holds the groups that the verbs of a round have read.
type groups struct {
	byName map[groupName]*taskGroup
	order  []groupName
}

func remember(r *engine.Round, ns string, g *taskGroup) {
	m := engine.RoundMemory[groups](r)
	if m.byName == nil {
		m.byName = map[groupName]*taskGroup{}
	}
	m.byName[groupName{ns, g.id}] = g
	m.order = append(m.order, groupName{ns, g.id})
}

// seal writes the groups that the round changed.
func seal(r *engine.Round) {
	m := engine.HasRoundMemory[groups](r)
	if m == nil {
		return
	}
	for _, name := range m.order {
		if g := m.byName[name]; g != nil && g.dirty {
			g.dirty = false
			r.Tx().Set(schema.IDKey(name.ns, schema.TableGroup, name.id), g.encode())
		}
	}
}

func readGroup(from store.Reader, ns string, id task.ID) (*taskGroup, bool) {
	row, ok := from.Get(schema.IDKey(ns, schema.TableGroup, id))
	if !ok {
		return nil, false
	}
	return schema.Must(decodeGroup(id, row)), true
}

func readMember(r *engine.Round, ns string, group, ref task.ID) (*member, bool) {
	return schema.Read(r.Tx(), schema.MemberKey(ns, group, ref), decodeMember)
}

// countNew counts a new member, unless its own notice has been processed already: its enqueue may replace the last
// member of another group, which then enqueues a task that replaces this one.
func countNew(r *engine.Round, ns string, g *taskGroup, s *task.Spec, m *member) {
	if s.Unique != nil {
		if _, exists := readMember(r, ns, g.id, s.Member.Ref); exists {
			return
		}
	}
	setMember(r, ns, g, s.Member.Ref, nil, m)
}

// setMember writes a member and counts it. From is its previous state, or nil for a new one.
func setMember(r *engine.Round, ns string, g *taskGroup, ref task.ID, from, to *member) {
	if from == nil {
		g.counts.Members++
	} else {
		*g.counts.of(from)--
	}
	*g.counts.of(to)++
	g.dirty = true
	r.Tx().Set(schema.MemberKey(ns, g.id, ref), to.encode())
}

// Within returns a not-found error for a group that may have members outside a scope.
func Within(r *engine.Round, s task.Scope, ns string, id task.ID) error {
	if s.All() {
		return nil
	}
	g, ok := anyGroup(r, ns, id)
	if !ok || !s.Covers(task.Scope{Queues: g.within}) {
		return task.NotFound("group", id.String())
	}
	return nil
}

// inGroup returns an error if the member, or one of its follow-ups, is for a queue outside those to which the group is limited.
func (g *taskGroup) inGroup(s *task.Spec) error {
	scope := task.Scope{Queues: g.within}
	if scope.All() {
		return nil
	}
	if !scope.Sees(s.Queue) {
		return task.Invalid("queue", "%q is not one of the queues that group %s was limited to when it was created", s.Queue, g.id)
	}
	for i := range s.Then {
		if err := g.inGroup(&s.Then[i]); err != nil {
			return err
		}
	}
	return nil
}
