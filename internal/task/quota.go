package task

import (
	"math"
)

// Quotas are what a namespace may use; 0: as much as it likes. Each has the name by which callers and refusals call it.
type Quotas struct {
	Backlog      int64 `json:"max_backlog,omitempty"`       // tasks that have not ended
	BacklogBytes int64 `json:"max_backlog_bytes,omitempty"` // of their payloads, and of those of what is to follow them
	Running      int64 `json:"max_running,omitempty"`       // tasks that are claimed
	Queues       int64 `json:"max_queues,omitempty"`
	Schedules    int64 `json:"max_schedules,omitempty"`
	Requests     int64 `json:"max_requests_per_second,omitempty"` // on each node
	Bytes        int64 `json:"max_bytes_per_second,omitempty"`    // of payloads enqueued, on each node
}

// Quota is one of them.
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

// AllQuotas lists them as they are shown.
var AllQuotas = []Quota{QuotaBacklog, QuotaBacklogBytes, QuotaRunning, QuotaQueues, QuotaSchedules, QuotaRequests, QuotaBytes}

// Of is where the quotas keep one of them.
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

// DefaultQuotas are those of a namespace that is made without a word about them: whoever shares a cluster with others can't fill it,
// by mistake or on purpose. Of queues and schedules they are a tenth of what a cluster has.
func DefaultQuotas() Quotas {
	return Quotas{Backlog: 1_000_000, BacklogBytes: 1 << 30, Queues: 1000, Schedules: 100_000}
}

// MaxQuota bounds each quota: sums of them stay numbers.
const MaxQuota = 1 << 50

// Check refuses what is no quota, by its name.
func (q Quotas) Check() error {
	for _, name := range AllQuotas {
		if v := *q.Of(name); v < 0 || v > MaxQuota {
			return Invalid("quotas."+string(name), "%d is not between 0 (no limit) and %d", v, int64(MaxQuota))
		}
	}
	return nil
}

// Tasks says whether any of the quotas is about tasks, so that the shards must know it.
func (q Quotas) Tasks() bool { return q.Backlog > 0 || q.BacklogBytes > 0 || q.Running > 0 }

// QuotaChange is new values for some of the quotas; nil: as it is.
type QuotaChange map[Quota]int64

// Change gives the quotas as they are with the new values.
func (q Quotas) Change(to QuotaChange) Quotas {
	for name, v := range to {
		*q.Of(name) = v
	}
	return q
}

// NoLimit is a share without a bound.
const NoLimit = math.MaxInt64

// Share is the part of a namespace's quotas that one shard may use. The parts of all shards are never more than the whole.
type Share struct {
	Version uint64 `json:"version"` // a newer one replaces it
	Amounts
}

// Amounts are what tasks of a namespace use, or may use.
type Amounts struct {
	Backlog int64 `json:"backlog"`
	Bytes   int64 `json:"bytes"`
	Running int64 `json:"running"`
}

// Unlimited is a share of no quota.
var Unlimited = Amounts{NoLimit, NoLimit, NoLimit}

// Whole are the amounts of all shards together by the quotas.
func (q Quotas) Whole() Amounts {
	bound := func(v int64) int64 {
		if v == 0 {
			return NoLimit
		}
		return v
	}
	return Amounts{bound(q.Backlog), bound(q.BacklogBytes), bound(q.Running)}
}

// Each gives the fields in their order, for what is done to all of them.
func (a *Amounts) Each() [3]*int64 { return [3]*int64{&a.Backlog, &a.Bytes, &a.Running} }

// ShareQuotas names the quotas in the order of Each.
var ShareQuotas = [3]Quota{QuotaBacklog, QuotaBacklogBytes, QuotaRunning}

// Space is what a namespace uses of one shard.
type Space struct {
	Namespace string
	Share     Share
	Use       Amounts
	Ready     int64 // tasks that could run, but for limits
	Queues    int   // that the shard has a part of
	// Refused counts, in this term of the shard's leader, the tasks that were refused by each of ShareQuotas; of running, how often a
	// claim found that the namespace runs all that it may.
	Refused [3]uint64
}

// Size is what counts of a task's bytes: its payload, and those of what is to follow it.
func (s *Spec) Size() int64 {
	n := int64(len(s.Payload))
	for i := range s.Then {
		n += s.Then[i].Size()
	}
	return n
}
