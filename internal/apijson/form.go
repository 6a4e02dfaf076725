package apijson

import (
	"math"
	"strconv"

	"github.com/pawlq/pawl/internal/contract"
	"github.com/pawlq/pawl/internal/task"
)

// form describes how JSON represents a field, where that does not follow from its type.
//
// What follows from its type: a field has its name in the proto file. Durations are strings such as "1h30m", times RFC 3339
// strings, bytes base64, enum values words, maps objects. An answer omits strings, bytes, enums, messages, maps and lists of
// strings that are not set. Numbers, booleans and other lists are always present.
type form struct {
	name     string // in JSON; "": the name in the proto file
	always   bool   // present in an answer even if it is empty
	above    int64  // a number is in an answer only if it is greater than this
	nonzero  bool   // absent from an answer if it is 0, false or empty
	with     string // in an answer only if this other field is set
	unless   string // in an answer only if this other field is not set
	hidden   bool   // not in JSON
	inline   bool   // the message's fields are written among those of the message that holds it
	object   bool   // a list of pairs, which is an object in JSON
	json     bool   // bytes or a string that is JSON, and is written verbatim
	typed    string // bytes that are JSON or not, according to the content type in this other field
	min      int64  // bounds of a number in a request; both 0: those of its type, and not below 0
	max      int64
	negative bool   // whether decoding accepts a number below 0
	items    int    // how many items a request may have; 0: MaxListed
	needed   string // required in a request: the hint if it is missing
	empty    bool   // a list in a request that may be empty; others may only be left out
	full     string // the hint if a list or an optional string is empty; "": leave it out
	rate     bool   // a number of tasks per second, written "50/s" in JSON
	any      bool   // a single item may be written without its list
	colon    bool   // a list of pairs of strings, each written "path:value" in JSON
	shares   bool   // queues: a list of names, or an object of names and weights
}

// forms are the forms of fields, by Message.field or by the name of the field alone.
var forms = map[string]form{
	"next_cursor":        {always: true},
	"tags":               {empty: true}, // a task has none, as it has no follow-ups
	"unconfirmed_shards": {nonzero: true},
	"idempotency_key":    {full: "leave it out for none"},
	"request_id":         {full: "leave it out for none"},
	"limit":              {min: 1, max: contract.MaxPage},

	"AckRequest.result":                 {typed: "content_type"},
	"AddShardsRequest.total":            {min: 1, max: math.MaxInt32},
	"AddGroupTasksRequest.tasks":        {empty: true}, // the call says that some are required, as it does of other lists here
	"AddTokenRequest.queues":            {items: task.MaxPatterns, empty: true},
	"AddTokenRequest.roles":             {empty: true},
	"AddWebhookRequest.depth_over":      {negative: true},
	"AddWebhookRequest.events":          {items: maxEvents},
	"Attempt.worker":                    {always: true},
	"Attention.detail":                  {always: true},
	"AuditEntry.actor":                  {always: true},
	"AuditEntry.after":                  {json: true},
	"AuditEntry.before":                 {json: true},
	"AuditEntry.interface":              {always: true},
	"AuditEntry.previous_hash":          {always: true},
	"AuditEntry.tasks":                  {nonzero: true},
	"CurrentStates.states":              {object: true},
	"BeginOnceResponse.result":          {json: true},
	"Breaker.failure_rate":              {min: 1, max: 100, unless: "off"},
	"Breaker.hold":                      {unless: "off"},
	"Breaker.max_hold":                  {unless: "off"},
	"Breaker.min_attempts":              {min: 1, max: task.MaxBreakerAttempts, unless: "off"},
	"Breaker.off":                       {nonzero: true},
	"Breaker.probes":                    {min: 1, max: task.MaxBreakerProbes, unless: "off"},
	"Breaker.window":                    {unless: "off"},
	"BreakerStatus.reason":              {always: true},
	"BreakerStatus.shard":               {nonzero: true},
	"ClaimedTask.payload":               {typed: "content_type"},
	"ClaimRequest.max":                  {min: 1, max: task.MaxClaim},
	"ClaimRequest.max_bytes":            {min: 1, max: contract.MaxClaimBytes},
	"ClaimRequest.queues":               {shares: true, empty: true},
	"ClaimRequest.types":                {items: task.MaxClaimTypes},
	"ClaimResponse.quiet":               {nonzero: true},
	"ClusterNode.clock_offset_seconds":  {with: "reported"},
	"ClusterNode.disk_free_bytes":       {with: "disk_total_bytes"},
	"ClusterNode.disk_total_bytes":      {nonzero: true},
	"ClusterShard.applied":              {with: "leader"},
	"ClusterShard.term":                 {with: "leader"},
	"CreateGroupRequest.tasks":          {empty: true},
	"CreateGroupResponse.group":         {inline: true},
	"DeadGroup.message":                 {always: true},
	"DeadGroup.queue":                   {always: true},
	"DeadGroup.sample_task_id":          {always: true},
	"EnqueueRequest.task":               {inline: true},
	"EnqueueResult.task":                {inline: true},
	"Event.attempt":                     {nonzero: true},
	"Event.count":                       {nonzero: true},
	"Event.cursor":                      {hidden: true},
	"ExplainQueueResponse.queue":        {always: true},
	"FailedTask.message":                {always: true},
	"Filter.payload":                    {colon: true, nonzero: true, items: maxConditions},
	"Filter.states":                     {name: "state", any: true, items: len(task.States)},
	"FinishOnceRequest.result":          {json: true},
	"GetLimitsResponse.namespace":       {always: true},
	"GetMapResponse.cluster_id":         {always: true},
	"GetMapResponse.node":               {always: true},
	"GetQueueScaleRequest.slots":        {min: 1, max: contract.MaxScaleSlots},
	"GetQueueStatsResponse.stats":       {inline: true},
	"GetServerResponse.cluster_id":      {always: true},
	"GetServerResponse.node":            {always: true},
	"GetStatsResponse.stats":            {inline: true},
	"GetTypeStatsResponse.stats":        {inline: true},
	"HistogramBucket.up_to_seconds":     {nonzero: true},
	"SlowRun.worker":                    {always: true},
	"GroupMember.result":                {typed: "result_content_type"},
	"GroupMember.result_omitted":        {nonzero: true},
	"KeyRules.max_running":              {max: math.MaxInt32},
	"KeyRules.weight":                   {min: 1, max: task.MaxWeight, nonzero: true},
	"Limit.unit":                        {always: true},
	"ListAuditRequest.filter":           {inline: true},
	"ListDeadRequest.filter":            {inline: true},
	"ListPoisonedRequest.filter":        {inline: true},
	"ListTasksRequest.filter":           {inline: true},
	"ExplainQueueResponse.missing":      {nonzero: true},
	"GetLimitsResponse.missing":         {nonzero: true},
	"GetQueueScaleResponse.missing":     {nonzero: true},
	"GroupDeadResponse.missing":         {nonzero: true},
	"ListAuditResponse.missing":         {nonzero: true},
	"ListDeadResponse.missing":          {nonzero: true},
	"ListGroupsResponse.missing":        {nonzero: true},
	"ListPoisonedResponse.missing":      {nonzero: true},
	"ListQueuesResponse.missing":        {nonzero: true},
	"ListSchedulesResponse.missing":     {nonzero: true},
	"ListTasksResponse.missing":         {nonzero: true},
	"ListTypesResponse.missing":         {nonzero: true},
	"ListWorkersResponse.missing":       {nonzero: true},
	"Namespace.missing":                 {nonzero: true},
	"Queue.missing":                     {nonzero: true},
	"Stats.missing":                     {nonzero: true},
	"Missing.reason":                    {always: true},
	"Missing.shard":                     {unless: "node"},
	"ListTasksRequest.with_payload":     {hidden: true},
	"Operation.skipped_reasons":         {object: true},
	"Operation.spec":                    {inline: true},
	"OperationSpec.canary":              {min: 1, max: math.MaxInt64, nonzero: true},
	"OperationSpec.max":                 {min: 1, max: math.MaxInt64, nonzero: true},
	"OperationSpec.rate":                {rate: true},
	"Parent.result":                     {typed: "content_type"},
	"Parent.result_omitted":             {nonzero: true},
	"PriorityWeights.high":              {min: 1, max: task.MaxWeight},
	"PriorityWeights.low":               {min: 1, max: task.MaxWeight},
	"PriorityWeights.normal":            {min: 1, max: task.MaxWeight},
	"PutQueueRequest.settings":          {needed: "{} means the defaults"},
	"PutScheduleRequest.spec":           {inline: true},
	"PutScheduleResponse.change":        {always: true},
	"Queue.breakers":                    {nonzero: true},
	"Queue.breakers_open":               {nonzero: true},
	"Queue.holds":                       {nonzero: true},
	"Queue.parts":                       {nonzero: true},
	"QueueSettings.max_attempts":        {min: 1, max: contract.MaxAttempts},
	"QueueShare.weight":                 {nonzero: true},
	"Quotas.max_backlog":                {max: task.MaxQuota},
	"Quotas.max_backlog_bytes":          {max: task.MaxQuota},
	"Quotas.max_bytes_per_second":       {max: task.MaxQuota},
	"Quotas.max_queues":                 {max: task.MaxQuota},
	"Quotas.max_requests_per_second":    {max: task.MaxQuota},
	"Quotas.max_running":                {max: task.MaxQuota},
	"Quotas.max_schedules":              {max: task.MaxQuota},
	"Rate.burst":                        {min: 1, max: math.MaxInt32},
	"Rate.limit":                        {min: 1, max: math.MaxInt32},
	"Reason.change":                     {always: true},
	"Reason.count":                      {nonzero: true},
	"Reason.detail":                     {always: true},
	"Reason.limit":                      {nonzero: true},
	"Reason.more":                       {nonzero: true},
	"Reason.running":                    {nonzero: true},
	"Reason.shard":                      {nonzero: true},
	"RetryPolicy.factor":                {min: 1, max: 100, nonzero: true},
	"Runner.worker":                     {always: true},
	"Schedule.coming":                   {nonzero: true},
	"Schedule.spec":                     {inline: true},
	"SetReplicationRequest.replication": {min: 1, max: int64(contract.Replications[len(contract.Replications)-1])},
	"Settled.claim_token":               {hidden: true},
	"SetWebhookRequest.depth_over":      {negative: true},
	"SetWebhookRequest.events":          {items: maxEvents},
	"SpreadQueueRequest.parts":          {min: 1, max: contract.MaxParts},
	"SpreadQueueRequest.shards":         {min: 1, max: task.MaxShard, items: task.SlotCount},
	"StartOperationRequest.spec":        {inline: true},
	"Task.cost":                         {above: 1},
	"Task.payload":                      {typed: "content_type"},
	"Task.result":                       {typed: "result_content_type"},
	"Task.then":                         {nonzero: true},
	"TaskError.message":                 {always: true},
	"TaskSpec.cost":                     {min: 1, max: task.MaxCost, above: 1},
	"TaskSpec.max_attempts":             {min: 1, max: contract.MaxAttempts, nonzero: true},
	"TaskSpec.payload":                  {typed: "content_type"},
	"TaskSpec.queue":                    {full: "leave it out for " + strconv.Quote(task.DefaultQueue)},
	"TaskSpec.then":                     {nonzero: true, empty: true, items: task.MaxThen},
	"Token.namespace":                   {always: true},
	"Unique.key":                        {full: "leave it out for one made from type and payload"},
	"Unique.states":                     {full: "leave it out for " + task.Unfinished.String()},
	"UpdateTaskRequest.max_attempts":    {min: 1, max: contract.MaxAttempts},
	"UpdateTaskRequest.payload":         {json: true}, // its meaning depends on the task's content type
	"WatchEventsRequest.kinds":          {name: "kind", any: true},
	"WatchEventsRequest.task_id":        {name: "task"},
	"Webhook.depth_over":                {nonzero: true},
	"Webhook.last_status":               {nonzero: true},
	"WebhookDelivery.count":             {nonzero: true},
	"WebhookDelivery.status":            {nonzero: true},
	"WhoAmIResponse.namespace":          {always: true},
	"Worker.pid":                        {nonzero: true},
	"Worker.worker":                     {always: true},
}

const (
	// maxConditions is more than the conditions that a filter may have on fields of the payload: the gateway refuses the ninth.
	maxConditions = 9
	// MaxListed bounds the items of a list in a request. Limits specific to a field are lower.
	MaxListed = 1000
	// maxEvents bounds a webhook's list of event kinds: more than there are.
	maxEvents = 32
)
