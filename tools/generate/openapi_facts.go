package main

import (
	"path"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pawlq/pawl/internal/apijson"
	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/node/datadir"
	"github.com/pawlq/pawl/internal/task"
)

// fact is what neither the contract nor the form of its JSON says about the values of fields.
type fact struct {
	about  string // Message, or Message.field; one with * stands for all fields of text that match
	schema object // is added to the schema, or replaces it if it has a type or refers to another; nil: REST does not have the field
}

var (
	nameSize = task.DefaultLimits().Name
	uuid     = object{"type": "string", "format": "uuid"}
	pattern  = object{"pattern": "^[A-Za-z0-9._:*-]+$", "minLength": 1, "maxLength": nameSize}
	notEmpty = object{"minItems": 1}
)

func upTo(size int) object         { return object{"maxLength": size} }
func listOf(items object) object   { return object{"items": items} }
func oneOf[T any](all ...T) object { return object{"enum": all} }
func among(all string) object      { return oneOf(strings.Fields(all)...) }
func named(form string, max int) object {
	return object{"pattern": form, "minLength": 1, "maxLength": max}
}

// requestFacts are those of requests only.
var requestFacts = []fact{
	{"*.type *.key", object{"minLength": 1, "maxLength": nameSize}},
	{"*.types", listOf(object{"minLength": 1, "maxLength": nameSize})},
	{"*.tag *.worker *.*_key *.content_type *.if_etag *.pattern *.cron *.time_zone *.owner *.target *.node *Group*.name", upTo(nameSize)},
	{"*.actor", upTo(task.MaxActor)},
	{"*.reason", upTo(task.MaxReason)},
	{"*.error *.q *.cursor", upTo(1 << 10)},
	{"WatchEventsRequest.cursor", upTo(16 << 10)},
	{"TaskError.type", object{"type": "string"}}, // truncated
	{"RetryTaskRequest.states DiscardTaskRequest.states", object{"maxItems": len(task.States)}},
	{"*Webhook*.url", upTo(2 << 10)},
	{"*Webhook*.queues", object{"maxItems": task.MaxPatterns}},
	{"*Webhook*.events", listOf(oneOf(append(task.NotificationKinds, "task.*", "breaker.*", "schedule.*", "queue.*")...))},
	{"AddWebhookRequest.depth_over SetWebhookRequest.depth_over", object{"minimum": 0, "maximum": 1_000_000_000}},
	{"AddTokenRequest.roles AddTokenRequest.queues AddGroupTasksRequest.tasks", notEmpty},
	{"AddTokenRequest.expires_in RotateTokenRequest.expires_in", object{"default": "2160h"}},
	{"RotateTokenRequest.overlap RotateWebhookSecretRequest.overlap", object{"default": "24h"}},
	{"GetQueueScaleRequest.slots", object{"default": 10}},
	{"SetReplicationRequest.replication", object{"type": "integer", "enum": contract.Replications}},
	{"AddShardsRequest.total", object{"maximum": datadir.MaxShards}},
	{"AuditFilter.action", object{"pattern": `^[a-z]+\.([a-z_]+|\*)$`}},
	{"Filter.payload", apijson.Ref("PayloadFields")},
	{"GroupDeadRequest.queue", nil}, // it is in the path of another route
	{"PutScheduleRequest.create_only", nil},
	{"UpdateTaskRequest CreateGroupRequest", object{"minProperties": 1}},
	{"SpreadQueueRequest", object{"anyOf": []object{{"required": []string{"parts"}}, {"required": []string{"shards"}}}}},
}

// facts are those of requests and answers.
var facts = []fact{
	{"*.queue *.to_queue", apijson.Ref("QueueName")},
	{"*.task_id *.*_task_id *.group_id *.operation_id Task.waits_for Task.moved_to Task.moved_from", apijson.Ref("TaskID")},
	{"*.request_id *.schedule_id Filter.operation *Marker*.id", uuid},
	{"*.fingerprint ReplicaHash.hash", object{"pattern": "^[0-9a-f]{16}$"}},
	{"*.claim_token", object{"minLength": 1, "maxLength": 64}},
	{"*.worker_id", object{"pattern": "^[A-Za-z0-9_-]{1,64}$"}},
	{"*.roles", listOf(apijson.Ref("Role"))},
	{"*.queues", listOf(pattern)},
	{"TypeSummary.queues GetTypeStatsResponse.queues", listOf(apijson.Ref("QueueName"))},
	{"*.certificate", object{"pattern": "^(uri|dns|email|subject):.+$", "maxLength": 512}},
	{"*.tags", object{"maxItems": task.MaxTags, "items": object{"minLength": 1, "maxLength": nameSize}}},
	{"TaskSpec.headers Task.headers ClaimedTask.headers", object{"maxProperties": task.DefaultLimits().Headers}},
	{"OperationSpec.rate", object{"description": "Tasks per second, minute or hour at most, such as 50/s. Absent: as fast " +
		"as possible without delaying other work."}},
	{"RetryPolicy.jitter", object{"minimum": 0, "maximum": 1}},
	{"Progress.percent", object{"minimum": 0, "maximum": 100}},
	{"Unique.states", object{"maxItems": len(task.States), "uniqueItems": true}},
	{"KeyRules.max_running QueueSettings.max_running Rate.limit Rate.burst Reason.Rate.limit Reason.Rate.burst",
		object{"maximum": 1_000_000}},
	{"QueueSettings.per_key", object{"not": object{"required": []string{"weight"}}}},
	{"QueueShare.weight", object{"maximum": task.MaxWeight}},
	{"CreateGroupResponse.tasks", listOf(object{"type": "object", "oneOf": []any{apijson.Ref("Enqueued"), apijson.Ref("Refused"),
		apijson.Ref("Nothing")}})},
	{"CurrentStates.states Operation.skipped_reasons", object{"additionalProperties": object{"type": "integer", "minimum": 1}}},
	{"OperationPreview.sample Operation.errors Reason.running Reason.types ExplainQueueResponse.keys ExplainQueueResponse.idle_types",
		object{"maxItems": 10}},
	{"OperationPreview", object{"properties": object{"dry_run": object{"type": "boolean", "const": true}},
		"required": []string{"dry_run", "is_lower_bound", "matched", "sample"}}},
	{"DeadGroup.trend", object{"minItems": 24, "maxItems": 24}},
	{"Schedule.coming", object{"maxItems": 4}},
	{"ExplainTaskResponse.reasons", notEmpty},

	{"Token.name *Token*.name", named("^[A-Za-z0-9._:-]+$", 64)},
	{"Namespace.name *Namespace*.name SetQuotasRequest.name WhoAmIResponse.namespace GetLimitsResponse.namespace",
		named("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", 63)},
	{"*Webhook*.name", named("^[A-Za-z0-9._:-]+$", 128)},
	{"*Webhook*.secret", object{"pattern": "^whsec_[A-Za-z0-9+/]{32,86}={0,2}$"}},
	{"*Schedule*.name", named("^[A-Za-z0-9._:-]+$", nameSize)},
	{"*Node.name *NodeRequest.node MoveReplicaRequest.*", named("^[a-z0-9-]+$", 63)},
	{"TransferLeaderRequest.to", object{"pattern": "^[a-z0-9-]*$", "maxLength": 63}},
	{"*Marker*.kind", among("deploy incident note")},
	{"*Marker*.title", object{"minLength": 1, "maxLength": 200}},
	{"*Marker*.version", upTo(100)},
	{"*Marker*.url", upTo(1000)},
	{"*Marker*.queues *Marker*.types", object{"maxItems": 16}},
	{"Marker.types", listOf(object{"minLength": 1, "maxLength": nameSize})},

	{"*.target_kind", oneOf(task.TargetKinds...)},
	{"AuditEntry.interface", among("rest grpc ui sqs node")},
	{"AuditEntry.action", object{"pattern": `^[a-z]+\.[a-z_]+$`}},
	{"AuditEntry.hash AuditEntry.previous_hash", object{"pattern": "^[0-9a-f]{64}$"}},
	{"AuditEntry.before AuditEntry.after", object{"type": "object"}},
	{"AuditEntry.seq OnceHolder.fence Event.attempt RunningTask.attempt Reason.Rate.limit Reason.Rate.burst", object{"minimum": 1}},
	{"Operator.interface", among("rest grpc ui sqs")},
	{"Attention.kind", among("dead_letters poisoned oldest_wait no_worker breaker_open queue_paused failure_rate schedule_late webhook " +
		"shard node clock disk certificate")},
	{"Attention.severity", among("critical warning")},
	{"BreakerStatus.state", among("open probing")},
	{"ClusterNode.state", among("active draining")},
	{"HeldKey.code", among("key_paused key_max_running key_rate")},
	{"PutScheduleResponse.change", among("created updated unchanged")},
	{"BeginOnceResponse.state", among("run done held")},
	{"AbandonOnceResponse.state", among("free done")},
	{"Webhook.state", among("active failing paused disabled")},
	{"Webhook.events", listOf(oneOf(task.NotificationKinds...))},
	{"WebhookDelivery.event", oneOf(append(task.NotificationKinds, task.NotifyTest)...)},
	{"WebhookDelivery.outcome", among("delivered retrying held failed dropped")},
	{"Worker.lost_reason", among("disconnected lease_lost")},
	{"Event.kind", object{"pattern": `^([a-z]+\.[a-z_]+|reset|changed)$`}},
	{"Error.code", apijson.Ref("Code")},
	{"Error.reason", among("expired reclaimed cancelled completed node_not_ready max_backlog max_backlog_bytes max_running max_queues " +
		"max_schedules max_requests_per_second max_bytes_per_second")},
}

// factsOf returns the facts of a message or a field.
func factsOf(name string, kind protoreflect.Kind, request bool) (all []object) {
	known := facts
	if request {
		known = append(requestFacts, facts...)
	}
	for _, fact := range known {
		for about := range strings.FieldsSeq(fact.about) {
			if isAbout(about, name, kind) {
				all = append(all, fact.schema)
			}
		}
	}
	return all
}

// isAbout reports whether a fact applies to a message or a field.
func isAbout(about, name string, kind protoreflect.Kind) bool {
	ok, err := path.Match(about, name)
	return ok && err == nil && (kind == protoreflect.StringKind || !strings.Contains(about, "*"))
}

// add adds a fact to a schema.
func add(to, fact object) {
	if fact["type"] != nil || fact["$ref"] != nil {
		clear(to)
	}
	for name, value := range fact {
		inner, ok := to[name].(object)
		if more, both := value.(object); ok && both {
			add(inner, more)
			continue
		}
		to[name] = value
	}
}

// required are the fields that a message of a request must have, or that one of an answer always has, besides those of
// which its form says so.
var required = map[string]string{
	"AbandonOnceRequest":          "task_id claim_token key",
	"AbandonOnceResponse":         "state",
	"AckRequest":                  "task_id claim_token",
	"AckResponse":                 "state status task_id",
	"AddGroupTasksRequest":        "tasks",
	"AddMarkerRequest":            "kind title",
	"AddNamespaceRequest":         "name",
	"AddShardsRequest":            "total",
	"AddTokenRequest":             "name queues roles",
	"AddTokenResponse":            "token",
	"AddWebhookRequest":           "name url",
	"AddWebhookResponse":          "secret webhook",
	"Attempt":                     "started_at",
	"Attention":                   "kind severity",
	"AuditEntry":                  "action at hash target_kind",
	"BeginOnceRequest":            "task_id claim_token key",
	"BeginOnceResponse":           "state",
	"BreakerStatus":               "since state type window",
	"ClaimRequest":                "queues",
	"ClaimedTask":                 "claim_token created_at lease lease_expires_at priority queue ready_at task_id type",
	"ClusterNode":                 "name state",
	"ClusterSettings":             "audit_retention",
	"Comparison":                  "after around before",
	"DeadGroup":                   "fingerprint first_at last_at type",
	"EnqueueBatchRequest":         "tasks",
	"Enqueued":                    "created_at state status task_id",
	"Error":                       "code message",
	"ExplainTaskResponse":         "task_id",
	"ExtendRequest":               "task_id claim_token",
	"ExtendResponse":              "lease_expires_at task_id",
	"FailRequest":                 "task_id claim_token",
	"FailResponse":                "state status task_id",
	"FailedTask":                  "task_id",
	"FailingType":                 "last_at queue type",
	"FinishOnceRequest":           "task_id claim_token key",
	"FinishOnceResponse":          "kept_until",
	"Follower":                    "queue state type",
	"GetClusterResponse":          "settings",
	"GetLimitsResponse":           "quotas",
	"GetQueueScaleResponse":       "queue",
	"GetQueueStatsResponse":       "queue",
	"GetServerResponse":           "now version",
	"GetStatsResponse":            "queues",
	"GetTypeStatsResponse":        "rates type",
	"Group":                       "counts created_at group_id state",
	"GroupMember":                 "queue type",
	"HeldKey":                     "code key",
	"Hold":                        "at",
	"IdleType":                    "type",
	"Limit":                       "name",
	"ListTypesResponse":           "window",
	"MapNode":                     "name",
	"Marker":                      "at created_at id kind title",
	"MoveReplicaRequest":          "from to",
	"Namespace":                   "name quotas",
	"OnceHolder":                  "task_id",
	"Operation":                   "created_at operation_id state",
	"OperationSpec":               "action filter",
	"PriorityWeights":             "high low normal",
	"PutScheduleRequest":          "task",
	"PutScheduleResponse":         "schedule",
	"Queue":                       "created_at depth queue ready_by_priority settings",
	"QueuePart":                   "depth",
	"QueueSeries":                 "start step",
	"QueueShare":                  "queue",
	"QuietWord":                   "at until",
	"Rate":                        "limit period",
	"Reason":                      "code",
	"Reason.Rate":                 "period",
	"ReleaseRequest":              "task_id claim_token",
	"ReleaseResponse":             "state status task_id",
	"ReplicaHash":                 "node",
	"ResumeWebhookResponse":       "webhook",
	"RotateTokenResponse":         "token",
	"RotateWebhookSecretResponse": "secret webhook",
	"Runner":                      "since task_id until",
	"RunningTask":                 "lease_expires_at queue since task_id type",
	"Schedule":                    "created_at schedule_id updated_at missed overlap",
	"ScheduleSpec":                "name task",
	"Searched":                    "until",
	"SetAuditRetentionRequest":    "retention",
	"SetQuotasRequest":            "quotas",
	"SetQuotasResponse":           "namespace",
	"SetReplicationRequest":       "replication",
	"SetWebhookResponse":          "webhook",
	"ShardMember":                 "node",
	"SlowRun":                     "ended_at task_id",
	"Stats":                       "run series start step totals wait window",
	"Task":                        "created_at priority queue state status task_id type",
	"TaskSpec":                    "type",
	"Tick":                        "decided_at outcome",
	"Token":                       "created_at name roles",
	"TriggerScheduleResponse":     "state status task_id",
	"TypePeriod":                  "length rates run start totals",
	"TypeSummary":                 "rates run series totals type wait",
	"Webhook":                     "changed_at created_at events name queues state url",
	"WebhookDelivery":             "at created_at event id outcome",
	"Worker":                      "worker_id",
}
