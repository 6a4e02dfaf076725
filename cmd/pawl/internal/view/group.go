package view

import (
	"encoding/json"
	"time"

	"github.com/pawlq/pawl/pawltype"
)

// Group is a group as in the REST API.
type Group struct {
	GroupID    string               `json:"group_id"`
	Name       string               `json:"name,omitempty"`
	State      pawltype.GroupState  `json:"state"`
	Open       bool                 `json:"open"`
	Counts     pawltype.GroupCounts `json:"counts"`
	CreatedAt  time.Time            `json:"created_at,omitzero"`
	EndedAt    time.Time            `json:"ended_at,omitzero"`
	KeptUntil  time.Time            `json:"kept_until,omitzero"`
	OnComplete *Follower            `json:"on_complete,omitempty"`
	OnSuccess  *Follower            `json:"on_success,omitempty"`
	OnDeath    *Follower            `json:"on_death,omitempty"`
}

// NewGroup converts a group.
func NewGroup(g *pawltype.Group) Group {
	return Group{GroupID: g.ID, Name: g.Name, State: g.State, Open: g.Open, Counts: g.Counts, CreatedAt: g.CreatedAt, EndedAt: g.EndedAt,
		KeptUntil: g.KeptUntil, OnComplete: NewFollower(g.OnComplete), OnSuccess: NewFollower(g.OnSuccess), OnDeath: NewFollower(g.OnDeath)}
}

// GroupMember is a task in a group.
type GroupMember struct {
	TaskID            string          `json:"task_id,omitempty"`
	Type              string          `json:"type"`
	Queue             string          `json:"queue"`
	State             pawltype.State  `json:"state,omitempty"`
	Refused           string          `json:"refused,omitempty"`
	Result            json.RawMessage `json:"result,omitempty"`
	ResultContentType string          `json:"result_content_type,omitempty"`
	ResultOmitted     bool            `json:"result_omitted,omitempty"`
}

// NewGroupMember converts a task in a group.
func NewGroupMember(m *pawltype.GroupMember) GroupMember {
	return GroupMember{TaskID: m.TaskID, Type: m.Type, Queue: m.Queue, State: m.State, Refused: m.Refused,
		Result: NewBytes(m.Result, m.ResultContentType), ResultContentType: m.ResultContentType, ResultOmitted: m.ResultOmitted}
}
