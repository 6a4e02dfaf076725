package view

import (
	"maps"
	"slices"
	"time"

	"github.com/pawlq/pawl"
	"github.com/pawlq/pawl/admin"
)

// Worker is a worker for programs.
type Worker struct {
	ID          string        `json:"worker_id"`
	Name        string        `json:"worker"`
	Node        string        `json:"node,omitempty"`
	Connected   bool          `json:"connected"`
	Host        string        `json:"host,omitempty"`
	PID         int           `json:"pid,omitempty"`
	Version     string        `json:"version,omitempty"`
	Address     string        `json:"address,omitempty"`
	Queues      []Share       `json:"queues"`
	Types       []string      `json:"types,omitempty"`
	Slots       int           `json:"slots"`
	Running     int           `json:"running"`
	Tasks       []RunningTask `json:"tasks"`
	ConnectedAt time.Time     `json:"connected_at,omitzero"`
	SeenAt      time.Time     `json:"seen_at,omitzero"`
	ClaimedAt   time.Time     `json:"claimed_at,omitzero"`
	Draining    bool          `json:"draining"`
	LostAt      time.Time     `json:"lost_at,omitzero"`
	LostReason  string        `json:"lost_reason,omitempty"`
	Quiet       *Quiet        `json:"quiet,omitempty"`
}

// Share is the share of a worker's claims that a queue gets.
type Share struct {
	Queue  string `json:"queue"`
	Weight int    `json:"weight,omitempty"`
}

// RunningTask is a task that a worker is running.
type RunningTask struct {
	ID             string    `json:"task_id"`
	Type           string    `json:"type"`
	Queue          string    `json:"queue"`
	Attempt        int       `json:"attempt"`
	Since          time.Time `json:"since"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

// Quiet is a request that a worker claim nothing for a while, with who made it and why.
type Quiet struct {
	Reason string    `json:"reason,omitempty"`
	By     string    `json:"by,omitempty"`
	At     time.Time `json:"at"`
	Until  time.Time `json:"until"`
}

// NewWorker converts a worker.
func NewWorker(w *admin.Worker) Worker {
	v := Worker{ID: w.ID, Name: w.Name, Node: w.Node, Connected: w.Connected, Host: w.Host, PID: w.PID, Version: w.Version, Address: w.Address,
		Queues: []Share{}, Types: w.Types, Slots: w.Slots, Running: w.Running, Tasks: make([]RunningTask, len(w.Tasks)),
		ConnectedAt: w.ConnectedAt, SeenAt: w.SeenAt, ClaimedAt: w.ClaimedAt, Draining: w.Draining, LostAt: w.LostAt, LostReason: w.LostReason, Quiet: (*Quiet)(w.Quiet)}
	switch q := w.Queues.(type) {
	case pawl.Strict:
		for _, name := range q {
			v.Queues = append(v.Queues, Share{Queue: name})
		}
	case pawl.Weighted:
		for _, name := range slices.Sorted(maps.Keys(q)) {
			v.Queues = append(v.Queues, Share{name, q[name]})
		}
	}
	for i, t := range w.Tasks {
		v.Tasks[i] = RunningTask(t)
	}
	return v
}
