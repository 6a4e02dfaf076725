package view

import (
	"encoding/json"
	"time"
)

// Audit is an audit entry for programs.
type Audit struct {
	Shard      uint32          `json:"shard"`
	Seq        uint64          `json:"seq"`
	At         time.Time       `json:"at"`
	Actor      string          `json:"actor"`
	Address    string          `json:"address,omitempty"`
	Interface  string          `json:"interface"`
	Reason     string          `json:"reason,omitempty"`
	Action     string          `json:"action"`
	TargetKind string          `json:"target_kind"`
	Target     string          `json:"target,omitempty"`
	Queue      string          `json:"queue,omitempty"`
	Tasks      int64           `json:"tasks,omitempty"`
	Before     json.RawMessage `json:"before,omitempty"`
	After      json.RawMessage `json:"after,omitempty"`
	Hash       string          `json:"hash"`
	Previous   string          `json:"previous_hash"`
}
