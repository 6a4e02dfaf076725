package main

// goType is a struct of package admin, generated from a message.
type goType struct {
	name string
	// messages has the message, or all that have the fields, the first of which the type can be converted to.
	messages string
	use      use
	// rules says what differs from the message, in words: NAME=Field:Type!function. Each part may be left out. The
	// function converts the field.
	//
	//	-NAME   not in the type
	//	^NAME   promoted from an embedded struct
	//	NAME-   in the type, but converted by hand
	//	:*      a pointer, which is nil if the field is absent
	//	:+      embedded
	//	:~      its fields are in the type itself; their rules begin with NAME.
	rules string
	// more are further fields, each with the expression to which a message p is converted, if there is one.
	more []more
}

type more struct{ field, from string }

// use says what a type is converted from or to.
type use int

const (
	decode use = 1 << iota // from a response
	encode                 // to a request
)

var goTypes = []goType{
	{"Identity", "WhoAmIResponse", decode, "roles:[]Role", nil},
	{"Token", "Token", decode, "roles:[]Role", nil},
	{"NewToken", "AddTokenResponse RotateTokenResponse", decode, "token:+ unconfirmed_nodes=Unconfirmed", nil},
	{"TokenSpec", "AddTokenRequest", encode, "roles:[]Role -expires_in -never_expires", []more{
		{"Life time.Duration // at most 10 years, or NeverExpires; 0: 90 days, but NeverExpires with Certificate", ""}}},
	{"Rotation", "RotateTokenRequest", encode, "-name -all_namespaces -expires_in -never_expires overlap:*", []more{
		{"Life time.Duration // from now on; at most 10 years, or NeverExpires; 0: 90 days", ""}}},
	{"TokenFilter", "ListTokensRequest", encode, "-limit -cursor", nil},

	{"Namespace", "Namespace", decode, "usage:*", nil},
	{"UpdatedNamespace", "SetQuotasResponse", decode, "namespace:+ unconfirmed_nodes=Unconfirmed", nil},
	{"Quotas", "Quotas", decode, "", nil},
	{"NamespaceUsage", "NamespaceUsage", decode, "", nil},
	{"Limits", "GetLimitsResponse", decode, "usage:*", nil},
	{"Limit", "Limit", decode, "", nil},
	{"NamespaceFilter", "ListNamespacesRequest", encode, "-limit -cursor", nil},

	{"AuditEntry", "AuditEntry", decode, "before:json.RawMessage!jsonOf after:json.RawMessage!jsonOf previous_hash=Previous", nil},
	{"AuditFilter", "AuditFilter", encode, "", nil},

	{"Breaker", "Breaker", decode | encode, "", nil},
	{"BreakerStatus", "BreakerStatus", decode, "state:BreakerState probe_task_id=Probe shard:int", nil},

	{"ClusterStatus", "GetClusterResponse", decode, "", nil},
	{"ClusterSettings", "ClusterSettings", decode, "level=FeatureLevel", nil},
	{"Node", "ClusterNode", decode, "disk_free_bytes=DiskFree disk_total_bytes=DiskTotal", nil},
	{"ShardStatus", "ClusterShard", decode, "", nil},
	{"Replica", "ShardMember", decode, "", nil},
	{"ClusterMap", "GetMapResponse", decode, "", nil},
	{"MapNode", "MapNode", decode, "", nil},
	{"MapShard", "MapShard", decode, "", nil},
	{"Verification", "VerifyShardResponse", decode, "", nil},
	{"ReplicaHash", "ReplicaHash", decode, "", nil},

	{"Event", "Event", decode, "kind:EventKind", nil},
	{"EventFilter", "WatchEventsRequest", encode, "kinds:[]EventKind cursor=After", nil},

	{"Explanation", "ExplainTaskResponse", decode, "", nil},
	{"Reason", "Reason", decode, "code:ReasonCode", nil},
	{"TaskHolder", "Runner", decode, "", nil},
	{"QueueExplanation", "ExplainQueueResponse", decode, "idle_types=UnservedTypes", nil},
	{"HeldKey", "HeldKey", decode, "code:ReasonCode", nil},
	{"UnservedType", "IdleType", decode, "", nil},

	{"Marker", "Marker", decode, "kind:MarkerKind", nil},
	{"MarkerSpec", "AddMarkerRequest", encode, "kind:MarkerKind", nil},
	{"MarkerFilter", "ListMarkersRequest", encode, "-limit -cursor kind:MarkerKind", nil},

	{"Filter", "Filter", decode | encode, "states- q=Text", []more{{"all bool // see AllTasks", ""}}},
	{"PayloadField", "PayloadField", decode | encode, "", nil},
	{"OperationSpec", "OperationSpec", decode, "filter:*Filter!selectionOf", nil},
	{"Operation", "Operation", decode, "operation_id=ID spec:+ author:* why=StopReason stopped_by:* resumed_by:* current_states:* -total " +
		"-total_is_lower_bound -matched -done -skipped -skipped_reasons -failed -errors",
		[]more{{"Reason string // given when it was started", "p.GetAuthor().GetReason()"}, {"Counts OperationCounts",
			"operationCountsOf(p)"}}},
	{"StateCounts", "CurrentStates", decode, "states:map[pawltype.State]int64!statesOf", nil},
	{"FailedTask", "FailedTask", decode, "", nil},
	{"Actor", "Operator", decode, "", nil},
	{"OperationPreview", "OperationPreview", decode, "", nil},

	{"Queue", "Queue", decode, "queue=Name holds=PausedSubsets oldest_ready_age_seconds=OldestReady rates:* drain_seconds:* workers:*int " +
		"series:*", nil},
	{"QueueSettings", "QueueSettings", decode | encode, "weights:* ^max_running ^rate per_key:QueueLimits breaker:* key_order-", []more{
		{"QueueLimits // for the queue as a whole", "queueLimitsOf(p)"}}},
	{"KeyLimits", "KeyRules", decode | encode, "^max_running ^rate", []more{{"QueueLimits", "queueLimitsOf(p)"}}},
	{"RateLimit", "Rate Reason.Rate", decode | encode, "", nil},
	{"PausedSubset", "Hold", decode, "", nil},
	{"PriorityWeights", "PriorityWeights", decode | encode, "", nil},
	{"Retention", "Retention", decode | encode, "", nil},
	{"QueuePart", "QueuePart", decode, "own=Exclusive shard:int", nil},
	{"Depth", "Depth", decode, "", nil},
	{"ReadyByPriority", "ReadyByPriority", decode, "", nil},
	{"SpreadOptions", "SpreadQueueRequest", encode, "-queue -reason shards:[]int!shardsOf own=Exclusive", nil},
	{"DeadGroups", "GroupDeadResponse", decode, "", nil},
	{"DeadGroup", "DeadGroup", decode, "", nil},
	{"Server", "GetServerResponse", decode, "", nil},
	{"ServerShard", "ShardInfo", decode, "", nil},

	{"Schedule", "Schedule", decode, "spec:~ spec.task:ScheduledTask schedule_id=ID next_planned_at=PlannedAt last:* -paused " +
		"-paused_reason -paused_at -paused_by", []more{{"Pause *Pause // nil: not paused", "pauseOf(p)"}}},
	{"ScheduledTask", "TaskSpec", decode, "-request_id -group_id delay=In run_at=At then:[]ScheduledTask retry:* retention:*", nil},
	{"ScheduleChange", "PutScheduleResponse", decode, "schedule:* before:*", nil},
	{"Tick", "Tick", decode, "", nil},

	{"NamespaceStats", "GetStatsResponse", decode, "stats:+", nil},
	{"Stats", "Stats", decode, "series:[]EventCounts!seriesOf", nil},
	{"EventCounts", "EventCounts", decode, "", nil},
	{"Latency", "Latency", decode, "", nil},
	{"QueueRates", "QueueRates", decode, "", nil},
	{"QueueSeries", "QueueSeries", decode, "", nil},
	{"QueueTotals", "QueueTotals", decode, "oldest_ready_age_seconds=OldestReady", nil},
	{"QueueScale", "GetQueueScaleResponse", decode, "-queue arrival_per_second=ArrivalsPerSecond", nil},
	{"FailingType", "FailingType", decode, "", nil},
	{"Attention", "Attention", decode, "", nil},
	{"Type", "TypeSummary", decode, "type=Name series:*", nil},
	{"TypeFilter", "ListTypesRequest", encode, "-limit -cursor order-", nil},
	{"TypeQuery", "GetTypeStatsRequest", encode, "-type", nil},
	{"TypeStats", "GetTypeStatsResponse", decode, "stats:+ comparison:*", nil},
	{"HistogramBucket", "HistogramBucket", decode, "", nil},
	{"SlowRun", "SlowRun", decode, "", nil},
	{"Comparison", "Comparison", decode, "", nil},
	{"TypePeriod", "TypePeriod", decode, "", nil},

	{"Webhook", "Webhook", decode, "events:[]WebhookEvent state:WebhookState", nil},
	{"UpdatedWebhook", "SetWebhookResponse ResumeWebhookResponse", decode, "webhook:+ unconfirmed_shards=Unconfirmed", nil},
	{"NewWebhook", "AddWebhookResponse", decode, "webhook:+ unconfirmed_shards=Unconfirmed", nil},
	{"WebhookSpec", "AddWebhookRequest", encode, "events:[]WebhookEvent", nil},
	{"WebhookChange", "SetWebhookRequest", encode, "-name events:[]WebhookEvent wait_over:*", nil},
	{"WebhookRotation", "RotateWebhookSecretRequest", encode, "-name overlap:*", nil},
	{"WebhookDelivery", "WebhookDelivery", decode, "event:WebhookEvent outcome:WebhookOutcome", nil},

	{"Worker", "Worker", decode, "worker_id=ID worker=Name queues:pawl.Queues!queuesOf quiet:*", nil},
	{"RunningTask", "RunningTask", decode, "task_id=ID", nil},
	{"Quiet", "QuietWord", decode, "", nil},
	{"WorkerFilter", "ListWorkersRequest", encode, "-limit -cursor", nil},
}

// goEnum is a type of package admin with a constant for each value of an enum but the first, the prefix before its name.
type goEnum struct{ name, prefix string }

var goEnums = []goEnum{
	{"Action", "Action"},
	{"KeyOrder", "KeyOrder"},
	{"Missed", "Missed"},
	{"OperationState", "Operation"},
	{"Overlap", "Overlap"},
	{"QueueTrait", "Queue"},
	{"TickOutcome", "Tick"},
	{"TypeOrder", "Types"},
}

// sdkType is a type that is not generated, and the function that converts a message or enum to it.
type sdkType struct{ name, from string }

// sdkTypes has the types of pawltype, and those for which Go has a type of its own.
var sdkTypes = map[string]sdkType{
	"google.protobuf.Timestamp": {"time.Time", "convert.Time"},
	"google.protobuf.Duration":  {"time.Duration", asDuration},
	"Missing":                   {"[]pawltype.Missing", "convert.Missing"},
	"Task":                      {"[]*pawltype.Task", "convert.Tasks"},
	"RetryPolicy":               {"pawltype.RetryPolicy", "convert.RetryPolicy"},
	"Unique":                    {"*pawltype.UniqueOpts", "convert.Unique"},
	"State":                     {"pawltype.State", "convert.State"},
	"Status":                    {"pawltype.Status", "convert.Status"},
	"Priority":                  {"pawltype.Priority", "convert.Priority"},
}

// goDocs has the comments of types and fields for which package admin says something else than the contract.
var goDocs = map[string]string{
	"Attention.Kind": "dead_letters, poisoned, oldest_wait, no_worker, breaker_open, queue_paused, failure_rate, " +
		"schedule_late, webhook, shard, node, clock, disk, certificate",
	"Breaker": "Breaker configures a circuit breaker, which judges the attempts of each type separately; &Breaker{} has all " +
		"defaults. It opens when at least MinAttempts attempts have ended within Window and at least FailureRate percent of them " +
		"failed: tasks of the type are then held. After Hold, it admits one task at a time as a probe. It " +
		"closes after Probes consecutive successes; " +
		"a failed probe opens it again, each time for twice as long. Failures, timeouts and lost leases count as failures; released, " +
		"snoozed, discarded, cancelled and poisoned attempts do not count at all.",
	"BreakerStatus.Probe":        "id of the task that is running as a probe; \"\": none",
	"UpdatedNamespace":           "UpdatedNamespace is a namespace after a change of its quotas.",
	"UpdatedWebhook":             "UpdatedWebhook is a webhook after a change.",
	"UpdatedWebhook.Unconfirmed": "shards that did not acknowledge it within a second; they will catch up",
	"EventFilter":                "EventFilter selects events. All fields that are set must match; resets are always sent.",
	"RateLimit": "RateLimit is a token bucket; the zero value means no limit. A task starts when the bucket has at least one token, and " +
		"takes as many as it costs (see pawl.Cost), even if that leaves a debt.",
	"WebhookChange.DepthOver": "nil: unchanged; 0: none",
	"WebhookChange.WaitOver":  "nil: unchanged; 0: none",
	"AuditEntry.Actor": "as given by the caller: see Client.WithActor; " +
		"with tokens, the token's name, after */ if it is valid in all namespaces",
	"Filter": "Filter selects tasks. All fields that are set must match. To change every task, use AllTasks: where it would change " +
		"tasks, a filter without conditions is refused, because its fields may have come from variables that are not set.",
	"MarkerSpec.RequestID": requestDoc +
		"with the same RequestID after a lost response returns the marker of the first call. " + ownRequest,
	"Node.DiskFree":        "bytes",
	"Node.DiskTotal":       "bytes; 0: not known",
	"OperationSpec.Filter": "AllTasks() means every task that the action applies to",
	"Rotation.RequestID":   "as in TokenSpec; however often the call is repeated, the secret from before the rotation stays valid",
	"Schedule.Task":        "what every tick enqueues",
	"ScheduledTask": "ScheduledTask is the task that every tick enqueues, or a follow-up task. " +
		"In, At and the idempotency key are of follow-up tasks only.",
	"ScheduledTask.In": "from the success of its parent; either this or At",
	"TokenSpec.RequestID": requestDoc +
		"with the same RequestID within 10 minutes returns a new secret, and invalidates one that was lost with its response. " +
		ownRequest,
}

const (
	requestDoc = "A UUID that identifies the call: a repeat "
	ownRequest = `"": the client generates one, for its own retries.`
)
