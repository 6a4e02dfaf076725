package task

import (
	"math"
)

// Quotas limit a namespace; 0: no limit. JSON names are the names that callers and refusals use.
type Quotas struct {
	Backlog      int64 `json:"max_backlog,omitempty"`       // tasks that have not ended
	BacklogBytes int64 `json:"max_backlog_bytes,omitempty"` // of their payloads, and those of the tasks that will follow them
	Running      int64 `json:"max_running,omitempty"`       // tasks that are claimed
	Queues       int64 `json:"max_queues,omitempty"`
	Schedules    int64 `json:"max_schedules,omitempty"`
	Requests     int64 `json:"max_requests_per_second,omitempty"` // on each node
	Bytes        int64 `json:"max_bytes_per_second,omitempty"`    // of payloads enqueued, on each node
}

// Quota is the name of a quota.
type Quota string

// The quotas.
const (
	QuotaBacklog      Quota = "max_backlog"
	QuotaBacklogBytes Quota = "max_backlog_bytes"
	QuotaRunning      Quota = "max_running"
	QuotaQueues       Quota = "max_queues"
	QuotaSchedules    Quota = "max_schedules"
	QuotaRequests     Quota = "max_requests_per_second"
	QuotaBytes        Quota = "max_bytes_per_second"
)

// AllQuotas lists the quotas in the order in which they are shown.
var AllQuotas = []Quota{QuotaBacklog, QuotaBacklogBytes, QuotaRunning, QuotaQueues, QuotaSchedules, QuotaRequests, QuotaBytes}

// Of returns a pointer to the value of a quota.
func (q *Quotas) Of(name Quota) *int64 {
	switch name {
	case QuotaBacklog:
		return &q.Backlog
	case QuotaBacklogBytes:
		return &q.BacklogBytes
	case QuotaRunning:
		return &q.Running
	case QuotaQueues:
		return &q.Queues
	case QuotaSchedules:
		return &q.Schedules
	case QuotaRequests:
		return &q.Requests
	case QuotaBytes:
		return &q.Bytes
	}
	panic("no such quota: " + string(name))
}

// DefaultQuotas returns the quotas of a namespace that is created without any: a tenant of a shared cluster can't fill it, by mistake
// or on purpose. The limits on queues and schedules are a tenth of the cluster's.
func DefaultQuotas() Quotas {
	return Quotas{Backlog: 1_000_000, BacklogBytes: 1 << 30, Queues: 1000, Schedules: 100_000}
}

// MaxQuota bounds every quota, so that sums don't overflow.
const MaxQuota = 1 << 50

// Check refuses quotas that are out of bounds.
func (q Quotas) Check() error {
	for _, name := range AllQuotas {
		if v := *q.Of(name); v < 0 || v > MaxQuota {
			return Invalid("quotas."+string(name), "%d is not between 0 (no limit) and %d", v, int64(MaxQuota))
		}
	}
	return nil
}

// Tasks reports whether any of the quotas limits tasks, so that the shards must know it.
func (q Quotas) Tasks() bool { return q.Backlog > 0 || q.BacklogBytes > 0 || q.Running > 0 }

// QuotaChange holds new values for some of the quotas.
type QuotaChange map[Quota]int64

// Change returns the quotas with the new values.
func (q Quotas) Change(to QuotaChange) Quotas {
	for name, v := range to {
		*q.Of(name) = v
	}
	return q
}

// NoLimit is an amount without a bound.
const NoLimit = math.MaxInt64

// SpaceName names what has limits that are divided among shards: a namespace, or a queue that is spread over several.
type SpaceName struct {
	Namespace string
	Queue     string // "": the namespace as a whole
}

// SpacesOf names namespaces.
func SpacesOf(namespaces ...string) []SpaceName {
	names := make([]SpaceName, len(namespaces))
	for i, ns := range namespaces {
		names[i].Namespace = ns
	}
	return names
}

// Share is the part of a namespace's quotas, or of a queue's limits, that one shard may use. The shares of all shards
// never exceed the whole.
type Share struct {
	Version uint64 `json:"version"` // a newer one replaces it
	// Moved is that of the queue, as whoever divides knew it: see QueueConfig. It is not stored with the share.
	Moved uint64 `json:"moved,omitempty"`
	Amounts
}

// Amounts is what tasks of a namespace or a queue use, or may use. For a queue, the backlog is its waiting tasks: see Settings.MaxLength.
type Amounts struct {
	Backlog int64 `json:"backlog"`
	Bytes   int64 `json:"bytes"`
	Running int64 `json:"running"`
}

// Unlimited is the share of a namespace without quotas.
var Unlimited = Amounts{NoLimit, NoLimit, NoLimit}

// Whole returns what the quotas allow in all shards together.
func (q Quotas) Whole() Amounts {
	bound := func(v int64) int64 {
		if v == 0 {
			return NoLimit
		}
		return v
	}
	return Amounts{bound(q.Backlog), bound(q.BacklogBytes), bound(q.Running)}
}

// Each returns pointers to the fields in order, for operations on all of them.
func (a *Amounts) Each() [3]*int64 { return [3]*int64{&a.Backlog, &a.Bytes, &a.Running} }

// ShareQuotas names the quotas in the order of Each.
var ShareQuotas = [3]Quota{QuotaBacklog, QuotaBacklogBytes, QuotaRunning}

// Space is what a namespace or a queue uses in one shard.
type Space struct {
	Namespace string
	Copy      uint64 // the version of the shard's copy of a queue
	Share     Share
	Use       Amounts
	Ready     int64 // tasks that could run, except for limits; of a queue, except for those that are divided
	Queues    int   // that have a partition in the shard
	// Refused counts the tasks refused because of each of ShareQuotas, in this term of the shard's leader; for max_running, the claims that
	// found the namespace at its limit.
	Refused [3]uint64
}

// Size returns the bytes that count towards quotas: the task's payload, and those of the tasks that will follow it.
func (s *Spec) Size() int64 {
	n := int64(len(s.Payload))
	for i := range s.Then {
		n += s.Then[i].Size()
	}
	return n
}
