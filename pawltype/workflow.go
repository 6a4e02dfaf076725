package pawltype

import "time"

// Group is everything the broker knows of a group.
type Group struct {
	ID         string
	Name       string
	State      GroupState
	Open       bool
	Counts     GroupCounts
	CreatedAt  time.Time
	EndedAt    time.Time // when it completed, or when all members of a cancelled group had ended
	KeptUntil  time.Time // when it is removed
	OnComplete *Follower // nil: none
	OnSuccess  *Follower
	OnDeath    *Follower
}

// GroupState is the state of a group.
type GroupState string

// States of a group.
const (
	GroupRunning   GroupState = "running"   // members can be added
	GroupComplete  GroupState = "complete"  // all members have ended
	GroupCancelled GroupState = "cancelled" // its members are cancelled, or will be shortly
)

// GroupCounts are the numbers of a group's members by state. As the parent's result, in a task that a group enqueued, they also
// identify the group.
type GroupCounts struct {
	GroupID   string `json:"group_id,omitempty"`
	Name      string `json:"name,omitempty"`
	Members   int64  `json:"members"`
	Pending   int64  `json:"pending"` // not ended yet
	Succeeded int64  `json:"succeeded"`
	Dead      int64  `json:"dead"`
	Poisoned  int64  `json:"poisoned"`
	Discarded int64  `json:"discarded"`
	Cancelled int64  `json:"cancelled"`
	Refused   int64  `json:"refused"`           // refused by their queues
	TaskID    string `json:"task_id,omitempty"` // with OnDeath: the member that died
}

// GroupMember is a member of a group, as recorded in the group.
type GroupMember struct {
	TaskID            string // "" while it is on its way to its queue, or if it was refused
	Type              string
	Queue             string
	State             State  // its final state; "" until it has ended
	Refused           string // why its queue refused it: an error code, or duplicate
	Result            []byte // up to 16 KiB
	ResultContentType string
	ResultOmitted     bool // it is larger, or the group already keeps 64 MiB: Client.Task has it
}

// DecodeResult decodes the member's result from JSON into v, which is left unchanged if there is none.
func (m *GroupMember) DecodeResult(v any) error { return decode(m.TaskID, "result", m.Result, v) }

// Parent is the task or group that a task follows.
type Parent struct {
	TaskID  string // set instead of GroupID
	GroupID string
	// Result is the task's result, nil if it has none or it was too large to be passed along; for a group, its GroupCounts as JSON.
	Result      []byte
	ContentType string // "" and "application/json": Result is a JSON value
	Omitted     bool   // the result was too large to be passed along: Client.Task has it
}

// Follower is a follow-up task of a task or group, and its state.
type Follower struct {
	Type   string
	Queue  string
	State  FollowerState
	TaskID string // once it exists; for a duplicate, that of the other task
	Reason string // the code of a refusal, or the state in which its parent ended
}

// FollowerState is the state of a follow-up task.
type FollowerState string

// States of a follow-up task.
const (
	FollowerWaiting   FollowerState = "waiting"   // for the success of its parent, or for the point in its group that enqueues it
	FollowerSent      FollowerState = "sent"      // on its way to another shard, or to a queue that is full
	FollowerCreated   FollowerState = "created"   // it is a task like any other
	FollowerDuplicate FollowerState = "duplicate" // an idempotency key or unique key belonged to another task
	FollowerRefused   FollowerState = "refused"   // its queue refused it
	FollowerDropped   FollowerState = "dropped"   // its parent ended otherwise
)
