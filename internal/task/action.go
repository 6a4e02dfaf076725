package task

import (
	"slices"
	"strings"
)

// Action is an operator's action. The names are part of the public contract; the part before the dot is the kind of target.
type Action string

// The actions.
const (
	QueueCreated  Action = "queue.create"
	QueuePut      Action = "queue.put"
	QueueDeleted  Action = "queue.delete"
	QueuePaused   Action = "queue.pause" // or a type or key of it
	QueueResumed  Action = "queue.resume"
	QueueSpread   Action = "queue.spread"
	QueuePurged   Action = "queue.purge"
	BreakerClosed Action = "queue.close_breaker"

	TaskCancelled Action = "task.cancel"
	TaskRetried   Action = "task.retry"
	TaskRunNow    Action = "task.run_now"
	TaskDiscarded Action = "task.discard"
	TaskEdited    Action = "task.edit"

	GroupCancelled Action = "group.cancel" // and its members

	OperationStarted Action = "operation.start"
	OperationPaused  Action = "operation.pause"
	OperationResumed Action = "operation.resume"
	OperationAborted Action = "operation.abort"

	SchedulePut       Action = "schedule.put"
	ScheduleDeleted   Action = "schedule.delete"
	SchedulePaused    Action = "schedule.pause"
	ScheduleResumed   Action = "schedule.resume"
	ScheduleTriggered Action = "schedule.trigger"

	WorkerQuieted Action = "worker.quiet"
	WorkerResumed Action = "worker.resume"

	NodeJoined        Action = "cluster.join"
	NodeDrained       Action = "cluster.drain"
	NodeUndrained     Action = "cluster.undrain"
	NodeRemoved       Action = "cluster.remove"
	ReplicaMoved      Action = "cluster.move"
	LeaderTransferred Action = "cluster.lead"
	ShardsAdded       Action = "cluster.add_shards"
	ReplicationSet    Action = "cluster.replication"
	AuditRetentionSet Action = "cluster.audit_retention"
	LevelRaised       Action = "cluster.raise_level"
	BackupTaken       Action = "cluster.backup"
	TokensRequired    Action = "cluster.require_tokens"
	CallersRefused    Action = "access.refused" // by a node, at most once a minute, for all requests refused since the last one

	TokenAdded       Action = "token.add"
	TokenRotated     Action = "token.rotate"
	TokenRevoked     Action = "token.revoke"
	NamespaceAdded   Action = "namespace.add"
	NamespaceRemoved Action = "namespace.remove"
	QuotasSet        Action = "namespace.set"

	WebhookAdded    Action = "webhook.add"
	WebhookSet      Action = "webhook.set"
	WebhookRemoved  Action = "webhook.remove"
	WebhookPaused   Action = "webhook.pause"
	WebhookResumed  Action = "webhook.resume"
	WebhookRotated  Action = "webhook.rotate"
	WebhookTested   Action = "webhook.test"
	WebhookDisabled Action = "webhook.disable" // automatically: its receiver answered that it is gone

	MarkerAdded   Action = "marker.add"
	MarkerEnded   Action = "marker.end"
	MarkerRemoved Action = "marker.remove"
)

// Actions lists all of them.
var Actions = []Action{QueueCreated, QueuePut, QueueDeleted, QueuePaused, QueueResumed, QueueSpread, QueuePurged, BreakerClosed,
	TaskCancelled, TaskRetried, TaskRunNow, TaskDiscarded, TaskEdited, GroupCancelled,
	OperationStarted, OperationPaused, OperationResumed, OperationAborted,
	SchedulePut, ScheduleDeleted, SchedulePaused, ScheduleResumed, ScheduleTriggered,
	WorkerQuieted, WorkerResumed, NodeJoined, NodeDrained, NodeUndrained, NodeRemoved, ReplicaMoved, LeaderTransferred, ShardsAdded,
	ReplicationSet, AuditRetentionSet, LevelRaised, BackupTaken, TokensRequired, CallersRefused, TokenAdded, TokenRotated, TokenRevoked,
	NamespaceAdded, NamespaceRemoved, QuotasSet, WebhookAdded, WebhookSet, WebhookRemoved, WebhookPaused, WebhookResumed, WebhookRotated,
	WebhookTested, WebhookDisabled, MarkerAdded, MarkerEnded, MarkerRemoved}

// Target is the object of an action.
type Target struct {
	Kind TargetKind `json:"kind"`
	Name string     `json:"name"` // a task's or worker's id, a shard's number, "" for the cluster
}

// TargetKind is a kind of object. The names are part of the public contract.
type TargetKind string

// The kinds of targets.
const (
	OnQueue     TargetKind = "queue"
	OnTask      TargetKind = "task"
	OnSchedule  TargetKind = "schedule"
	OnOperation TargetKind = "operation"
	OnGroup     TargetKind = "group"
	OnWorker    TargetKind = "worker"
	OnNode      TargetKind = "node"
	OnShard     TargetKind = "shard"
	OnCluster   TargetKind = "cluster"
	OnToken     TargetKind = "token"
	OnNamespace TargetKind = "namespace"
	OnWebhook   TargetKind = "webhook"
	OnMarker    TargetKind = "marker"
)

// TargetKinds lists all of them.
var TargetKinds = []TargetKind{OnQueue, OnTask, OnGroup, OnOperation, OnSchedule, OnWorker, OnNode, OnShard, OnCluster, OnToken,
	OnNamespace, OnWebhook, OnMarker}

// CheckActions refuses anything other than an action or a group such as "queue.*"; "" matches all.
func CheckActions(words string) error {
	kind, all := strings.CutSuffix(words, ".*")
	for _, a := range Actions {
		if words == "" || words == string(a) || all && strings.HasPrefix(string(a), kind+".") {
			return nil
		}
	}
	return Invalid("action", "%q is not an action: see the table in docs/audit.md, or use a kind, such as queue.*", clip(words))
}

// CheckTargetKind refuses an unknown kind of target; "" matches all.
func CheckTargetKind(kind string) error {
	if kind == "" || slices.Contains(TargetKinds, TargetKind(kind)) {
		return nil
	}
	return NoneOf("target_kind", kind, TargetKinds)
}
