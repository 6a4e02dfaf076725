package task

import (
	"slices"
	"strings"
)

// Action is what an operator did. The words are part of the public contract; what stands before the dot is what it was done to.
type Action string

// The actions.
const (
	QueueCreated  Action = "queue.create"
	QueuePut      Action = "queue.put"
	QueueDeleted  Action = "queue.delete"
	QueuePaused   Action = "queue.pause" // or a type or key in it
	QueueResumed  Action = "queue.resume"
	QueueSpread   Action = "queue.spread"
	QueuePurged   Action = "queue.purge"
	BreakerClosed Action = "queue.close_breaker"

	TaskCancelled Action = "task.cancel"
	TaskRetried   Action = "task.retry"
	TaskRunNow    Action = "task.run_now"
	TaskDiscarded Action = "task.discard"
	TaskEdited    Action = "task.edit"

	DeadReplayed    Action = "dead.replay" // poisoned tasks, too
	DeadDiscarded   Action = "dead.discard"
	ArchiveRestored Action = "archive.restore"

	GroupCancelled Action = "group.cancel" // its members with it

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
	CallersRefused    Action = "access.refused" // by a node, at most once a minute, for all that it did not let in since then

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
	WebhookDisabled Action = "webhook.disable" // by its receiver: it answered that it is gone

	MarkerAdded   Action = "marker.add"
	MarkerEnded   Action = "marker.end"
	MarkerRemoved Action = "marker.remove"
)

// Actions lists all of them.
var Actions = []Action{QueueCreated, QueuePut, QueueDeleted, QueuePaused, QueueResumed, QueueSpread, QueuePurged, BreakerClosed,
	TaskCancelled, TaskRetried, TaskRunNow, TaskDiscarded, TaskEdited, DeadReplayed, DeadDiscarded, ArchiveRestored,
	GroupCancelled, OperationStarted, OperationPaused, OperationResumed, OperationAborted,
	SchedulePut, ScheduleDeleted, SchedulePaused, ScheduleResumed, ScheduleTriggered,
	WorkerQuieted, WorkerResumed, NodeJoined, NodeDrained, NodeUndrained, NodeRemoved, ReplicaMoved, LeaderTransferred, ShardsAdded, ReplicationSet, AuditRetentionSet, LevelRaised, BackupTaken,
	TokensRequired, CallersRefused, TokenAdded, TokenRotated, TokenRevoked, NamespaceAdded, NamespaceRemoved, QuotasSet,
	WebhookAdded, WebhookSet, WebhookRemoved, WebhookPaused, WebhookResumed, WebhookRotated, WebhookTested, WebhookDisabled,
	MarkerAdded, MarkerEnded, MarkerRemoved}

// Target is what an action was done to.
type Target struct {
	Kind TargetKind `json:"kind"`
	Name string     `json:"name"` // of a task or a worker its id, of a shard its number, of the cluster ""
}

// TargetKind is a kind of things. The words are part of the public contract.
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
var TargetKinds = []TargetKind{OnQueue, OnTask, OnGroup, OnOperation, OnSchedule, OnWorker, OnNode, OnShard, OnCluster, OnToken, OnNamespace, OnWebhook, OnMarker}

// CheckActions refuses what names no action: a word, or "queue.*" and its like; "" is any.
func CheckActions(words string) error {
	kind, all := strings.CutSuffix(words, ".*")
	for _, a := range Actions {
		if words == "" || words == string(a) || all && strings.HasPrefix(string(a), kind+".") {
			return nil
		}
	}
	return Invalid("action", "%q is no action: see the table in docs/audit.md, or all of a kind, as queue.*", clip(words))
}

// CheckTargetKind refuses what is no kind of targets; "" is any.
func CheckTargetKind(kind string) error {
	if kind == "" || slices.Contains(TargetKinds, TargetKind(kind)) {
		return nil
	}
	return NoneOf("target_kind", kind, TargetKinds)
}
