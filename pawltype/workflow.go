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
	EndedAt    time.Time // when it was complete, or all members of a cancelled one had ended
	KeptUntil  time.Time // when it is forgotten
	OnComplete *Follower // nil: it has none
	OnSuccess  *Follower
	OnDeath    *Follower
}

// GroupState says where a group is.
type GroupState string

// The states of a group.
const (
	GroupRunning   GroupState = "running"   // members may be added
	GroupComplete  GroupState = "complete"  // all members had ended
	GroupCancelled GroupState = "cancelled" // its members are cancelled, or will be in a moment
)

// GroupCounts are the members of a group by where they are. As the parent's result of a task that a group enqueues it also says which
// group it is.
type GroupCounts struct {
	GroupID   string `json:"group_id,omitempty"`
	Name      string `json:"name,omitempty"`
	Members   int64  `json:"members"`
	Pending   int64  `json:"pending"` // have not ended
	Succeeded int64  `json:"succeeded"`
	Dead      int64  `json:"dead"`
	Poisoned  int64  `json:"poisoned"`
	Discarded int64  `json:"discarded"`
	Cancelled int64  `json:"cancelled"`
	Refused   int64  `json:"refused"`           // their queues would not take them
	TaskID    string `json:"task_id,omitempty"` // of OnDeath: the member that died
}

// GroupMember is a member of a group, as the group knows it.
type GroupMember struct {
	TaskID            string // "" while it is on its way to its queue, or if it was refused
	Type              string
	Queue             string
	State             State  // its end; "" while it has not ended
	Refused           string // why its queue would not take it: a code, or duplicate
	Result            []byte // up to 16 KiB
	ResultContentType string
	ResultOmitted     bool // it is larger, or the group keeps 64 MiB already: Client.Task has it
}

// DecodeResult decodes the member's result from JSON into v, which stays as it is if there is none.
func (m *GroupMember) DecodeResult(v any) error { return decode(m.TaskID, "result", m.Result, v) }

// Parent is what a task follows: another task, or a group.
type Parent struct {
	TaskID  string // either this or GroupID
	GroupID string
	// Result is that of the task, nil if it has none or it was too large to take along. Of a group it is its GroupCounts as JSON.
	Result      []byte
	ContentType string // "" and "application/json": Result is a JSON value
	Omitted     bool   // the result was too large to take along: Client.Task has it
}

// Follower is a task that follows another, or a group, and what became of it.
type Follower struct {
	Type   string
	Queue  string
	State  FollowerState
	TaskID string // when it is born; of a duplicate that of the other task
	Reason string // the code of a refusal, or the state in which its parent ended
}

// FollowerState is what became of a task that follows another.
type FollowerState string

// The states of a task that follows another.
const (
	FollowerWaiting   FollowerState = "waiting"   // for the success of its parent, or the point that its group is to come to
	FollowerSent      FollowerState = "sent"      // on its way to another shard, or to a queue that is full
	FollowerBorn      FollowerState = "born"      // it is a task like any other
	FollowerDuplicate FollowerState = "duplicate" // an idempotency key or unique key stood for another task
	FollowerRefused   FollowerState = "refused"   // its queue would not take it
	FollowerDropped   FollowerState = "dropped"   // its parent ended otherwise
)
