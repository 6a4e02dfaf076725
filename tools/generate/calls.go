package main

// subject is what a group of calls is about: a class of each SDK.
type subject struct {
	name, doc string
	calls     []call
}

// call is an operator's call.
type call struct {
	name string // of the method
	op   string // of the operation; "": the same
	rpc  string // in the contract
	// args are fields of the request in the order of the arguments: name or name=field. ?: it may be left out.
	// !: it is no argument, but true. Those after * are named.
	args    string
	returns string // the type of the result; of a list, of its items
	gives   string // the field of the response that has it; "": the response itself
	repeat  repeating
	doc     string
	// typescriptOwn are the arguments in TypeScript, where they differ: name:TYPE is an object of several fields, or has this type.
	typescriptOwn string
}

// repeating says whether a call may be retried: not if the retry would fail after the first call was done, or would do more.
type repeating int

const (
	always repeating = iota
	never
	withoutVersion // if the call names no version
)

func (c *call) operationName() string {
	if c.op != "" {
		return c.op
	}
	return c.name
}

var subjects = []subject{
	{"Queues", "The calls about queues.", []call{
		{"list", "list_queues", "OperatorService.ListQueues", "pattern?", "Queue", "", always,
			"Iterates over all queues by name; missing of each says what its numbers lack. In the pattern, * matches any characters.", ""},
		{"get", "get_queue", "OperatorService.GetQueue", "queue", "Queue", "queue", always,
			"Returns a queue; NotFoundError if there is none.", ""},
		{"put", "put_queue", "OperatorService.PutQueue", "queue settings * if_version?", "Queue", "queue", withoutVersion,
			"Replaces the settings of a queue, creating it if necessary. ConflictError if its settings don't have the version if_version.",
			"queue settings options:{ifVersion?:number}?"},
		{"delete", "delete_queue", "OperatorService.DeleteQueue", "queue", "None", "", never, "Deletes a queue that has no tasks.", ""},
		{"pause", "", "OperatorService.PauseQueue", "queue reason? * type? key?", "Queue", "queue", always,
			"Pauses a queue, or its tasks of one type or key. New tasks are still accepted, but none can be claimed; running " +
				"tasks continue.",
			"queue reason? of:PausedSubset?"},
		{"resume", "", "OperatorService.ResumeQueue", "queue reason? * type? key?", "Queue", "queue", always, "Ends a pause.",
			"queue reason? of:PausedSubset?"},
		{"purge", "", "OperatorService.PurgeQueue", "queue reason?", "int", "discarded", never,
			"Discards the waiting tasks of a queue, and returns how many there were.", ""},
		{"stats", "queue_stats", "StatsService.GetQueueStats", "queue window?", "Stats", "stats", always,
			"Returns the statistics of the last 2 minutes, 5 minutes, hour (the default) or 24 hours.", ""},
	}},
	{"DeadLetters", "The calls about dead letters and poisoned tasks.", []call{
		{"groups", "", "OperatorService.GroupDead", "queue? * poisoned?", "Sequence[DeadGroup]", "groups", always,
			"Groups dead letters by their error, most frequent first.", "queue? options:{poisoned?:boolean}?"},
		{"list", "list_dead", "OperatorService.ListDead", "filter", "TaskInfo", "", always,
			"Iterates over the dead letters of a queue. The filter's queue is required.", "filter:Filter&{queue:string}"},
	}},
	{"Tasks", "The calls about single tasks.", []call{
		{"list", "list_tasks", "ProducerService.ListTasks", "filter?", "TaskInfo", "", always,
			"Iterates over tasks, newest first, without their payloads.", ""},
		{"explain", "", "ProducerService.ExplainTask", "id=task_id", "Explanation", "", always, "Returns why a task is not running.", ""},
		{"retry", "retry_task", "OperatorService.RetryTask", "id=task_id * states?", "TaskInfo", "task", never,
			"Runs a task again that has ended without success. states: those it may be in; in another one the call is refused.",
			"id=task_id options:{states?:State[]}?"},
		{"run_now", "", "OperatorService.RunTaskNow", "id=task_id", "TaskInfo", "task", never, "Runs a scheduled or retrying task now.",
			""},
		{"discard", "discard_task", "OperatorService.DiscardTask", "id=task_id reason? * states?", "TaskInfo", "task", never,
			"Discards a waiting task or a dead letter. states: those it may be in; in another one the call is refused.",
			"id=task_id reason? options:{states?:State[]}?"},
	}},
	{"Operations", "The calls about operations, each of which applies one action to many tasks in the background.", []call{
		{"start", "start_operation", "OperationService.StartOperation", "spec reason? * request_id?", "Operation", "operation", always,
			"Starts an operation. request_id: a UUID; a retry with it returns the first operation again.",
			"spec reason? options:{requestId?:string}?"},
		{"preview", "preview_operation", "OperationService.StartOperation", "spec dry_run!", "OperationPreview", "preview", always,
			"Returns how many tasks an operation would affect, and changes nothing.", ""},
		{"get", "get_operation", "OperationService.GetOperation", "id=operation_id wait?", "Operation", "operation", always,
			"Returns an operation. wait: how long to wait for it to stop running, up to 60 s.",
			"id=operation_id options:{wait?:Duration}?"},
		{"list", "list_operations", "OperationService.ListOperations", "", "Operation", "", always,
			"Iterates over operations, newest first.", ""},
		{"pause", "pause_operation", "OperationService.PauseOperation", "id=operation_id reason?", "Operation", "operation", always,
			"Pauses an operation.", ""},
		{"resume", "resume_operation", "OperationService.ResumeOperation", "id=operation_id reason?", "Operation", "operation", always,
			"Resumes an operation.", ""},
		{"abort", "abort_operation", "OperationService.AbortOperation", "id=operation_id reason?", "Operation", "operation", always,
			"Aborts an operation. What it has done is not undone.", ""},
	}},
	{"Workers", "The calls about workers.", []call{
		{"list", "list_workers", "WorkerRegistryService.ListWorkers", "* queue? type? lost?", "WorkerInfo", "", always,
			"Iterates over the workers. queue, type: only workers that take its tasks; lost: only lost workers, or only others. If " +
				"nodes don't answer, IncompleteError ends it.", "of:{queue?:string;type?:string;lost?:boolean}?"},
		{"quiet", "", "WorkerRegistryService.QuietWorker", "id=worker_id reason? span=for?", "WorkerInfo", "worker", always,
			"Stops a worker from taking new tasks, for 1 min to 30 days; default 24 h.", "id=worker_id reason? options:{for?:Duration}?"},
		{"resume", "resume_worker", "WorkerRegistryService.ResumeWorker", "id=worker_id reason?", "WorkerInfo | None", "worker", always,
			"Lets a worker take tasks again. Returns None if the worker is gone.", ""},
	}},
}
