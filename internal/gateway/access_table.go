package gateway

import (
	"github.com/pawlq/pawl/internal/auth"
)

// What a call wants of its caller stands here and nowhere else, for each rpc; a route of REST says beside its handler for which rpc it
// stands. A call
// without a row is refused to everybody, and a test fails. After a change run `go test ./internal/gateway -run TestAccessTable -update`,
// which writes the table of docs/access.md.

// reach is what a call is about, which the caller's token must be good for.
type reach uint8

const (
	// public calls want no token.
	public reach = 1 + iota
	// anyone's calls want a token, and tell nothing of tasks or queues. The node answers them by itself.
	anyone
	// anyoneAsking is for such calls for which shards are asked.
	anyoneAsking
	// ofClaims is for calls of a worker about what it has claimed: it sees the queues of its token only.
	ofClaims
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

// countsAsRequest says whether a call of a visitor takes of its namespace's requests per second. Those of a worker about what it has
// claimed do not, since a refusal would cost an attempt, or have the work done again: what was accepted goes on. Whether there is such a
// claim only its shard knows. Nor do calls that this node answers from what it has in memory, by which clients find their way, nor those about
// more than a namespace, or an operator could not help.
func (n need) countsAsRequest(v visitor) bool {
	switch n.reach {
	case ofQueues, ofNamespace:
		return true
	case anyoneAsking:
		return !v.InAll()
	}
	return false
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
	"ProducerService/Produce":      {ofQueues, produce, true},
	"ProducerService/GetTask":      {ofQueues, produce | consume | observe, true},
	"ProducerService/CancelTask":   {ofQueues, operate, false},
	"ProducerService/ListTasks":    {ofQueues, observe, false},
	"ProducerService/UpdateTask":   {ofQueues, operate, false},
	"ProducerService/ExplainTask":  {ofQueues, produce | consume | observe, false},

	"WorkerService/Claim":       {ofQueues, consume, true},
	"WorkerService/Ack":         {ofClaims, consume, false},
	"WorkerService/Fail":        {ofClaims, consume, false},
	"WorkerService/Extend":      {ofClaims, consume, false},
	"WorkerService/Release":     {ofClaims, consume, false},
	"WorkerService/Settle":      {ofClaims, consume, false},
	"WorkerService/BeginOnce":   {ofClaims, consume, false},
	"WorkerService/FinishOnce":  {ofClaims, consume, false},
	"WorkerService/AbandonOnce": {ofClaims, consume, false},
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
	"OperatorService/GetServer":      {anyoneAsking, 0, false},

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
	"AccessService/ListNamespaces":  {anyoneAsking, 0, false}, // those that the caller may go to
	"AccessService/GetNamespace":    {anyoneAsking, 0, false},
	"AccessService/AddNamespace":    {ofCluster, admin, false},
	"AccessService/SetQuotas":       {ofCluster, admin, false},
	"AccessService/GetLimits":       {anyoneAsking, 0, false},
	"AccessService/RemoveNamespace": {ofCluster, admin, false},

	"WebhookService/ListWebhooks":          {ofNamespace, observe, false},
	"WebhookService/GetWebhook":            {ofNamespace, observe, false},
	"WebhookService/ListWebhookDeliveries": {ofNamespace, observe, false},
	"WebhookService/PauseWebhook":          {ofNamespace, operate, false},
	"WebhookService/ResumeWebhook":         {ofNamespace, operate, false},
	"WebhookService/TestWebhook":           {ofNamespace, operate, false},
	"WebhookService/AddWebhook":            {ofNamespace, admin, false},
	"WebhookService/SetWebhook":            {ofNamespace, admin, false},
	"WebhookService/RemoveWebhook":         {ofNamespace, admin, false},
	"WebhookService/RotateWebhookSecret":   {ofNamespace, admin, false},

	"AuditService/ListAudit": {ofNamespace, operate, false},

	"RosterService/ListWorkers":  {ofQueues, observe, false},
	"RosterService/GetWorker":    {ofQueues, observe, false},
	"RosterService/QuietWorker":  {ofQueues, operate, false},
	"RosterService/ResumeWorker": {ofQueues, operate, false},

	"EventService/WatchEvents": {ofQueues, observe, true},

	"StatsService/GetStats":      {ofNamespace, observe, false},
	"StatsService/GetQueueStats": {ofQueues, observe, false},
	"StatsService/GetQueueScale": {ofQueues, observe, false},

	"ClusterService/GetMap":            {anyone, 0, false},
	"ClusterService/GetCluster":        {ofCluster, observe, false},
	"ClusterService/DrainNode":         {ofCluster, admin, false},
	"ClusterService/RemoveNode":        {ofCluster, admin, false},
	"ClusterService/MoveReplica":       {ofCluster, admin, false},
	"ClusterService/TransferLeader":    {ofCluster, admin, false},
	"ClusterService/AddShards":         {ofCluster, admin, false},
	"ClusterService/SetReplication":    {ofCluster, admin, false},
	"ClusterService/SetAuditRetention": {ofCluster, admin, false},
	"ClusterService/RaiseLevel":        {ofCluster, admin, false},
	"ClusterService/VerifyShard":       {ofCluster, admin, false},
	"ClusterService/Backup":            {ofCluster, admin, true},
}

// ownRoutes stand for no rpc, and want something all the same.
var ownRoutes = map[string]need{
	"GET /metrics": {ofCluster, observe, false}, // of all namespaces
}

// publicRoutes say nothing that is anybody's; "other" is a path that there is not.
var publicRoutes = []string{"other", "GET /api/v1/openapi.json", "GET /healthz", "GET /readyz"}

// foreignServices are those whose protocol is another program's.
var foreignServices = map[string]need{"externalscaler.ExternalScaler": {ofQueues, observe, true}}

// publicServices are those of gRPC itself: whether the server lives, and what this program's protocol is.
var publicServices = []string{"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
