package gateway

import (
	"github.com/pawlq/pawl/internal/auth"
)

// What a call wants of its caller stands here and nowhere else, for each rpc; a route of REST names the rpc that it stands for. A call
// without a row is refused to everybody, and a test fails. After a change run `go test ./internal/gateway -run TestAccessTable -update`,
// which writes the table of docs/access.md.

// reach is what a call is about, which the caller's token must be good for.
type reach uint8

const (
	// public calls want no token.
	public reach = 1 + iota
	// anyone's calls want a token, and tell nothing of tasks or queues.
	anyone
	// ofQueues is for calls about queues and what lies in them: they see the queues of the token only. What names a queue is checked
	// by mayUse and scopedQueues, what has an id where it is read (task.Scope).
	ofQueues
	// ofNamespace is for calls about a namespace as a whole: a token that is limited to some queues is refused.
	ofNamespace
	// ofCluster is for calls about all namespaces: a token that is limited to one is refused.
	ofCluster
)

// need is what a call wants.
type need struct {
	reach reach
	roles auth.Roles // one of them is enough; 0: whichever
	lasts bool       // it may go on for long, and ends when its token does
}

// countsAsRequest says whether the call takes of its namespace's requests per second. What ends or keeps a claim does not, since the task
// would run again; nor do calls about more than a namespace, or an operator could not help.
func (n need) countsAsRequest() bool {
	settles := n.roles == consume && !n.lasts
	return (n.reach == ofQueues || n.reach == ofNamespace) && !settles
}

const (
	produce = auth.Produce
	consume = auth.Consume
	observe = auth.Observe
	operate = auth.Operate
	admin   = auth.Admin
)

// rpcNeeds has a row for each rpc, by service and method.
var rpcNeeds = map[string]need{
	"ProducerService/Enqueue":      {ofQueues, produce, false},
	"ProducerService/EnqueueBatch": {ofQueues, produce, false},
	"ProducerService/GetTask":      {ofQueues, produce | consume | observe, true},
	"ProducerService/CancelTask":   {ofQueues, operate, false},
	"ProducerService/ListTasks":    {ofQueues, observe, false},
	"ProducerService/UpdateTask":   {ofQueues, operate, false},
	"ProducerService/ExplainTask":  {ofQueues, produce | consume | observe, false},

	"WorkerService/Claim":       {ofQueues, consume, true},
	"WorkerService/Ack":         {ofQueues, consume, false},
	"WorkerService/Fail":        {ofQueues, consume, false},
	"WorkerService/Extend":      {ofQueues, consume, false},
	"WorkerService/Release":     {ofQueues, consume, false},
	"WorkerService/Settle":      {ofQueues, consume, false},
	"WorkerService/BeginOnce":   {ofQueues, consume, false},
	"WorkerService/FinishOnce":  {ofQueues, consume, false},
	"WorkerService/AbandonOnce": {ofQueues, consume, false},
	"WorkerService/Work":        {ofQueues, consume, true},

	"OperatorService/ListQueues":     {ofQueues, observe, false},
	"OperatorService/GetQueue":       {ofQueues, observe, false},
	"OperatorService/PutQueue":       {ofQueues, operate, false},
	"OperatorService/DeleteQueue":    {ofQueues, operate, false},
	"OperatorService/PauseQueue":     {ofQueues, operate, false},
	"OperatorService/ResumeQueue":    {ofQueues, operate, false},
	"OperatorService/SpreadQueue":    {ofQueues, operate, false},
	"OperatorService/CloseBreaker":   {ofQueues, operate, false},
	"OperatorService/PurgeQueue":     {ofQueues, operate, false},
	"OperatorService/ExplainQueue":   {ofQueues, observe, false},
	"OperatorService/ListDead":       {ofQueues, observe, false},
	"OperatorService/ListPoisoned":   {ofQueues, observe, false},
	"OperatorService/GroupDead":      {ofQueues, observe, false},
	"OperatorService/ReplayDead":     {ofQueues, operate, false},
	"OperatorService/DiscardDead":    {ofQueues, operate, false},
	"OperatorService/ListArchive":    {ofQueues, observe, false},
	"OperatorService/RestoreArchive": {ofQueues, operate, false},
	"OperatorService/RetryTask":      {ofQueues, operate, false},
	"OperatorService/RunTaskNow":     {ofQueues, operate, false},
	"OperatorService/DiscardTask":    {ofQueues, operate, false},
	"OperatorService/GetServer":      {anyone, 0, false},

	"ScheduleService/ListSchedules":       {ofQueues, observe, false},
	"ScheduleService/GetSchedule":         {ofQueues, observe, false},
	"ScheduleService/PutSchedule":         {ofQueues, operate, false},
	"ScheduleService/DeleteSchedule":      {ofQueues, operate, false},
	"ScheduleService/PauseSchedule":       {ofQueues, operate, false},
	"ScheduleService/ResumeSchedule":      {ofQueues, operate, false},
	"ScheduleService/TriggerSchedule":     {ofQueues, operate, false},
	"ScheduleService/ListScheduleHistory": {ofQueues, observe, false},

	"GroupService/CreateGroup":      {ofQueues, produce, false},
	"GroupService/AddGroupTasks":    {ofQueues, produce, false},
	"GroupService/CloseGroup":       {ofQueues, produce, false},
	"GroupService/GetGroup":         {ofQueues, produce | observe, false},
	"GroupService/ListGroups":       {ofQueues, observe, false},
	"GroupService/ListGroupMembers": {ofQueues, produce | observe, false},
	"GroupService/CancelGroup":      {ofQueues, operate, false},

	"OperationService/StartOperation":  {ofQueues, operate, false},
	"OperationService/GetOperation":    {ofQueues, observe, true},
	"OperationService/ListOperations":  {ofQueues, observe, false},
	"OperationService/PauseOperation":  {ofQueues, operate, false},
	"OperationService/ResumeOperation": {ofQueues, operate, false},
	"OperationService/AbortOperation":  {ofQueues, operate, false},

	"AccessService/WhoAmI":          {anyone, 0, false},
	"AccessService/ListTokens":      {ofQueues, admin, false}, // those that the caller's rights cover
	"AccessService/GetToken":        {ofQueues, admin, false},
	"AccessService/AddToken":        {ofQueues, admin, false},
	"AccessService/RotateToken":     {ofQueues, admin, false},
	"AccessService/RevokeToken":     {ofQueues, admin, false},
	"AccessService/ListNamespaces":  {anyone, 0, false}, // those that the caller may go to
	"AccessService/GetNamespace":    {anyone, 0, false},
	"AccessService/AddNamespace":    {ofCluster, admin, false},
	"AccessService/SetQuotas":       {ofCluster, admin, false},
	"AccessService/GetLimits":       {anyone, 0, false},
	"AccessService/RemoveNamespace": {ofCluster, admin, false},

	"AuditService/ListAudit": {ofNamespace, operate, false},

	"RosterService/ListWorkers":  {ofQueues, observe, false},
	"RosterService/GetWorker":    {ofQueues, observe, false},
	"RosterService/QuietWorker":  {ofQueues, operate, false},
	"RosterService/ResumeWorker": {ofQueues, operate, false},

	"EventService/WatchEvents": {ofQueues, observe, true},

	"StatsService/GetStats":      {ofNamespace, observe, false},
	"StatsService/GetQueueStats": {ofQueues, observe, false},
	"StatsService/GetQueueScale": {ofQueues, observe, false},

	"ClusterService/GetMap":         {anyone, 0, false},
	"ClusterService/GetCluster":     {ofCluster, observe, false},
	"ClusterService/DrainNode":      {ofCluster, admin, false},
	"ClusterService/RemoveNode":     {ofCluster, admin, false},
	"ClusterService/MoveReplica":    {ofCluster, admin, false},
	"ClusterService/TransferLeader": {ofCluster, admin, false},
	"ClusterService/AddShards":      {ofCluster, admin, false},
	"ClusterService/SetReplication": {ofCluster, admin, false},
	"ClusterService/RaiseLevel":     {ofCluster, admin, false},
	"ClusterService/VerifyShard":    {ofCluster, admin, false},
	"ClusterService/Backup":         {ofCluster, admin, true},
}

// restRPCs names the rpc that a route stands for. Those that stand for none are in ownRoutes, or public.
var restRPCs = map[string]string{
	"POST /api/v1/tasks":              "ProducerService/Enqueue",
	"POST /api/v1/tasks/batch":        "ProducerService/EnqueueBatch",
	"GET /api/v1/tasks":               "ProducerService/ListTasks",
	"GET /api/v1/tasks/{id}":          "ProducerService/GetTask",
	"DELETE /api/v1/tasks/{id}":       "ProducerService/CancelTask",
	"PATCH /api/v1/tasks/{id}":        "ProducerService/UpdateTask",
	"GET /api/v1/tasks/{id}/explain":  "ProducerService/ExplainTask",
	"POST /api/v1/tasks/{id}/retry":   "OperatorService/RetryTask",
	"POST /api/v1/tasks/{id}/run_now": "OperatorService/RunTaskNow",
	"POST /api/v1/tasks/{id}/discard": "OperatorService/DiscardTask",

	"POST /api/v1/claim":                   "WorkerService/Claim",
	"POST /api/v1/tasks/{id}/ack":          "WorkerService/Ack",
	"POST /api/v1/tasks/{id}/fail":         "WorkerService/Fail",
	"POST /api/v1/tasks/{id}/extend":       "WorkerService/Extend",
	"POST /api/v1/tasks/{id}/release":      "WorkerService/Release",
	"POST /api/v1/tasks/ack":               "WorkerService/Settle",
	"POST /api/v1/tasks/fail":              "WorkerService/Settle",
	"POST /api/v1/tasks/extend":            "WorkerService/Settle",
	"POST /api/v1/tasks/release":           "WorkerService/Settle",
	"POST /api/v1/tasks/{id}/once/begin":   "WorkerService/BeginOnce",
	"POST /api/v1/tasks/{id}/once/finish":  "WorkerService/FinishOnce",
	"POST /api/v1/tasks/{id}/once/abandon": "WorkerService/AbandonOnce",

	"GET /api/v1/queues":                           "OperatorService/ListQueues",
	"GET /api/v1/queues/{queue}":                   "OperatorService/GetQueue",
	"PUT /api/v1/queues/{queue}":                   "OperatorService/PutQueue",
	"DELETE /api/v1/queues/{queue}":                "OperatorService/DeleteQueue",
	"POST /api/v1/queues/{queue}/pause":            "OperatorService/PauseQueue",
	"POST /api/v1/queues/{queue}/resume":           "OperatorService/ResumeQueue",
	"POST /api/v1/queues/{queue}/purge":            "OperatorService/PurgeQueue",
	"POST /api/v1/queues/{queue}/breakers/close":   "OperatorService/CloseBreaker",
	"POST /api/v1/queues/{queue}/spread":           "OperatorService/SpreadQueue",
	"GET /api/v1/queues/{queue}/explain":           "OperatorService/ExplainQueue",
	"GET /api/v1/queues/{queue}/dead":              "OperatorService/ListDead",
	"GET /api/v1/queues/{queue}/poisoned":          "OperatorService/ListPoisoned",
	"POST /api/v1/queues/{queue}/dead/replay":      "OperatorService/ReplayDead",
	"POST /api/v1/queues/{queue}/poisoned/replay":  "OperatorService/ReplayDead",
	"POST /api/v1/queues/{queue}/dead/discard":     "OperatorService/DiscardDead",
	"POST /api/v1/queues/{queue}/poisoned/discard": "OperatorService/DiscardDead",
	"GET /api/v1/archive":                          "OperatorService/ListArchive",
	"POST /api/v1/archive/restore":                 "OperatorService/RestoreArchive",

	"GET /api/v1/schedules":                 "ScheduleService/ListSchedules",
	"POST /api/v1/schedules":                "ScheduleService/PutSchedule",
	"GET /api/v1/schedules/{name}":          "ScheduleService/GetSchedule",
	"PUT /api/v1/schedules/{name}":          "ScheduleService/PutSchedule",
	"DELETE /api/v1/schedules/{name}":       "ScheduleService/DeleteSchedule",
	"POST /api/v1/schedules/{name}/pause":   "ScheduleService/PauseSchedule",
	"POST /api/v1/schedules/{name}/resume":  "ScheduleService/ResumeSchedule",
	"POST /api/v1/schedules/{name}/trigger": "ScheduleService/TriggerSchedule",
	"GET /api/v1/schedules/{name}/history":  "ScheduleService/ListScheduleHistory",

	"GET /api/v1/groups":              "GroupService/ListGroups",
	"POST /api/v1/groups":             "GroupService/CreateGroup",
	"GET /api/v1/groups/{id}":         "GroupService/GetGroup",
	"POST /api/v1/groups/{id}/tasks":  "GroupService/AddGroupTasks",
	"GET /api/v1/groups/{id}/members": "GroupService/ListGroupMembers",
	"POST /api/v1/groups/{id}/close":  "GroupService/CloseGroup",
	"POST /api/v1/groups/{id}/cancel": "GroupService/CancelGroup",

	"GET /api/v1/operations":              "OperationService/ListOperations",
	"POST /api/v1/operations":             "OperationService/StartOperation",
	"GET /api/v1/operations/{id}":         "OperationService/GetOperation",
	"POST /api/v1/operations/{id}/pause":  "OperationService/PauseOperation",
	"POST /api/v1/operations/{id}/resume": "OperationService/ResumeOperation",
	"POST /api/v1/operations/{id}/abort":  "OperationService/AbortOperation",

	"GET /api/v1/me":                    "AccessService/WhoAmI",
	"GET /api/v1/tokens":                "AccessService/ListTokens",
	"POST /api/v1/tokens":               "AccessService/AddToken",
	"GET /api/v1/tokens/{name}":         "AccessService/GetToken",
	"DELETE /api/v1/tokens/{name}":      "AccessService/RevokeToken",
	"POST /api/v1/tokens/{name}/rotate": "AccessService/RotateToken",
	"GET /api/v1/namespaces":            "AccessService/ListNamespaces",
	"POST /api/v1/namespaces":           "AccessService/AddNamespace",
	"DELETE /api/v1/namespaces/{name}":  "AccessService/RemoveNamespace",
	"GET /api/v1/namespaces/{name}":     "AccessService/GetNamespace",
	"PATCH /api/v1/namespaces/{name}":   "AccessService/SetQuotas",
	"GET /api/v1/limits":                "AccessService/GetLimits",

	"GET /api/v1/audit": "AuditService/ListAudit",

	"GET /api/v1/workers":                  "RosterService/ListWorkers",
	"GET /api/v1/workers/{worker}":         "RosterService/GetWorker",
	"POST /api/v1/workers/{worker}/quiet":  "RosterService/QuietWorker",
	"POST /api/v1/workers/{worker}/resume": "RosterService/ResumeWorker",

	"GET /api/v1/events": "EventService/WatchEvents",

	"GET /api/v1/stats":                "StatsService/GetStats",
	"GET /api/v1/queues/{queue}/stats": "StatsService/GetQueueStats",
	"GET /api/v1/queues/{queue}/scale": "StatsService/GetQueueScale",

	"GET /api/v1/cluster":                          "ClusterService/GetCluster",
	"GET /api/v1/cluster/nodes":                    "ClusterService/GetCluster",
	"GET /api/v1/cluster/shards":                   "ClusterService/GetCluster",
	"GET /api/v1/cluster/map":                      "ClusterService/GetMap",
	"POST /api/v1/cluster/nodes/{node}/drain":      "ClusterService/DrainNode",
	"POST /api/v1/cluster/nodes/{node}/undrain":    "ClusterService/DrainNode",
	"POST /api/v1/cluster/nodes/{node}/remove":     "ClusterService/RemoveNode",
	"POST /api/v1/cluster/shards/{shard}/move":     "ClusterService/MoveReplica",
	"POST /api/v1/cluster/shards/{shard}/transfer": "ClusterService/TransferLeader",
	"POST /api/v1/cluster/shards/{shard}/verify":   "ClusterService/VerifyShard",
	"POST /api/v1/cluster/shards":                  "ClusterService/AddShards",
	"PUT /api/v1/cluster/replication":              "ClusterService/SetReplication",
	"POST /api/v1/cluster/raise-level":             "ClusterService/RaiseLevel",

	"GET /api/v1/server": "OperatorService/GetServer",
}

// ownRoutes stand for no rpc, and want something all the same.
var ownRoutes = map[string]need{
	"GET /metrics": {ofCluster, observe, false}, // of all namespaces
}

// publicRoutes say nothing that is anybody's.
var publicRoutes = []string{"GET /api/v1/openapi.json", "GET /healthz", "GET /readyz"}

// foreignServices are those whose protocol is another program's.
var foreignServices = map[string]need{"externalscaler.ExternalScaler": {ofQueues, observe, true}}

// publicServices are those of gRPC itself: whether the server lives, and what this program's protocol is.
var publicServices = []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
