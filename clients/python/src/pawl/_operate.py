"""The operators' calls, each as an operation that admin.py runs in a thread or on an event loop."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pawl import _convert, _messages, _rpc
from pawl._convert import Seconds
from pawl._operated import DeadGroup, Discarded, Explanation, Filter, Operation, OperationSpec, Queue, QueueSettings, Replayed, Stats, WorkerInfo
from pawl.models import TaskInfo, task_info
from pawl.v1 import explain_pb2, operation_pb2, operator_pb2, producer_pb2, worker_registry_pb2, stats_pb2, task_pb2

_GET_QUEUE = _rpc.Method("/pawl.v1.OperatorService/GetQueue", operator_pb2.GetQueueResponse)
_LIST_QUEUES = _rpc.Method("/pawl.v1.OperatorService/ListQueues", operator_pb2.ListQueuesResponse)
_PUT_QUEUE = _rpc.Method("/pawl.v1.OperatorService/PutQueue", operator_pb2.PutQueueResponse)
_DELETE_QUEUE = _rpc.Method("/pawl.v1.OperatorService/DeleteQueue", operator_pb2.DeleteQueueResponse)
_PAUSE_QUEUE = _rpc.Method("/pawl.v1.OperatorService/PauseQueue", operator_pb2.PauseQueueResponse)
_RESUME_QUEUE = _rpc.Method("/pawl.v1.OperatorService/ResumeQueue", operator_pb2.ResumeQueueResponse)
_PURGE_QUEUE = _rpc.Method("/pawl.v1.OperatorService/PurgeQueue", operator_pb2.PurgeQueueResponse)
_GROUP_DEAD = _rpc.Method("/pawl.v1.OperatorService/GroupDead", operator_pb2.GroupDeadResponse)
_LIST_DEAD = _rpc.Method("/pawl.v1.OperatorService/ListDead", operator_pb2.ListDeadResponse)
_REPLAY_DEAD = _rpc.Method("/pawl.v1.OperatorService/ReplayDead", operator_pb2.ReplayDeadResponse)
_DISCARD_DEAD = _rpc.Method("/pawl.v1.OperatorService/DiscardDead", operator_pb2.DiscardDeadResponse)
_RETRY_TASK = _rpc.Method("/pawl.v1.OperatorService/RetryTask", operator_pb2.RetryTaskResponse)
_RUN_NOW = _rpc.Method("/pawl.v1.OperatorService/RunTaskNow", operator_pb2.RunTaskNowResponse)
_DISCARD_TASK = _rpc.Method("/pawl.v1.OperatorService/DiscardTask", operator_pb2.DiscardTaskResponse)
_EXPLAIN_TASK = _rpc.Method("/pawl.v1.ProducerService/ExplainTask", explain_pb2.ExplainTaskResponse)
_LIST_TASKS = _rpc.Method("/pawl.v1.ProducerService/ListTasks", producer_pb2.ListTasksResponse)
_START_OPERATION = _rpc.Method("/pawl.v1.OperationService/StartOperation", operation_pb2.StartOperationResponse)
_GET_OPERATION = _rpc.Method("/pawl.v1.OperationService/GetOperation", operation_pb2.GetOperationResponse)
_LIST_OPERATIONS = _rpc.Method("/pawl.v1.OperationService/ListOperations", operation_pb2.ListOperationsResponse)
_PAUSE_OPERATION = _rpc.Method("/pawl.v1.OperationService/PauseOperation", operation_pb2.PauseOperationResponse)
_RESUME_OPERATION = _rpc.Method("/pawl.v1.OperationService/ResumeOperation", operation_pb2.ResumeOperationResponse)
_ABORT_OPERATION = _rpc.Method("/pawl.v1.OperationService/AbortOperation", operation_pb2.AbortOperationResponse)
_LIST_WORKERS = _rpc.Method("/pawl.v1.WorkerRegistryService/ListWorkers", worker_registry_pb2.ListWorkersResponse)
_QUIET_WORKER = _rpc.Method("/pawl.v1.WorkerRegistryService/QuietWorker", worker_registry_pb2.QuietWorkerResponse)
_RESUME_WORKER = _rpc.Method("/pawl.v1.WorkerRegistryService/ResumeWorker", worker_registry_pb2.ResumeWorkerResponse)
_QUEUE_STATS = _rpc.Method("/pawl.v1.StatsService/GetQueueStats", stats_pb2.GetQueueStatsResponse)


def _queue(p: operator_pb2.Queue) -> Queue:
    return _messages.read(Queue, p)


def list_queues(caller: _rpc.Caller, pattern: str | None, cursor: str) -> _rpc.Op[_rpc.Listed[Queue]]:
    """Lists queues by name."""
    got = yield from caller.call(_LIST_QUEUES, operator_pb2.ListQueuesRequest(pattern=pattern, cursor=cursor))
    return _rpc.Listed([_queue(p) for p in got.items], got.next_cursor)


def get_queue(caller: _rpc.Caller, queue: str) -> _rpc.Op[Queue]:
    """Gets a queue."""
    got = yield from caller.call(_GET_QUEUE, operator_pb2.GetQueueRequest(queue=queue))
    return _queue(got.queue)


def put_queue(caller: _rpc.Caller, queue: str, settings: QueueSettings, if_version: int | None) -> _rpc.Op[Queue]:
    """Sets the settings of a queue."""
    request = operator_pb2.PutQueueRequest(queue=queue, if_version=if_version)
    request.settings.SetInParent()
    _messages.write(settings, request.settings, "settings.")
    got = yield from caller.call(_PUT_QUEUE, request, repeat=if_version is None)
    return _queue(got.queue)


def delete_queue(caller: _rpc.Caller, queue: str) -> _rpc.Op[None]:
    """Deletes a queue."""
    yield from caller.call(_DELETE_QUEUE, operator_pb2.DeleteQueueRequest(queue=queue), repeat=False)


def pause(caller: _rpc.Caller, queue: str, reason: str, type: str | None, key: str | None) -> _rpc.Op[Queue]:
    """Pauses a queue, or one of its types or keys."""
    got = yield from caller.call(_PAUSE_QUEUE, operator_pb2.PauseQueueRequest(queue=queue, reason=reason, type=type, key=key))
    return _queue(got.queue)


def resume(caller: _rpc.Caller, queue: str, reason: str, type: str | None, key: str | None) -> _rpc.Op[Queue]:
    """Ends a pause of a queue, or of one of its types or keys."""
    got = yield from caller.call(_RESUME_QUEUE, operator_pb2.ResumeQueueRequest(queue=queue, reason=reason, type=type, key=key))
    return _queue(got.queue)


def purge(caller: _rpc.Caller, queue: str, reason: str) -> _rpc.Op[int]:
    """Discards the waiting tasks of a queue."""
    got = yield from caller.call(_PURGE_QUEUE, operator_pb2.PurgeQueueRequest(queue=queue, reason=reason), repeat=False)
    return got.discarded


def queue_stats(caller: _rpc.Caller, queue: str, window: Seconds | None) -> _rpc.Op[Stats]:
    """Gets the statistics of a queue."""
    request = stats_pb2.GetQueueStatsRequest(queue=queue)
    _messages.optional_duration(request, "window", window)
    got = yield from caller.call(_QUEUE_STATS, request)
    return _messages.read(Stats, got.stats)


def _filter(given: Filter) -> task_pb2.Filter:
    out = task_pb2.Filter()
    _messages.write(given, out, "filter.")
    return out


def groups(caller: _rpc.Caller, queue: str | None, poisoned: bool) -> _rpc.Op[Sequence[DeadGroup]]:
    """Groups dead letters by their error."""
    got = yield from caller.call(_GROUP_DEAD, operator_pb2.GroupDeadRequest(queue=queue, poisoned=poisoned))
    return [_messages.read(DeadGroup, p) for p in got.groups]


def list_dead(caller: _rpc.Caller, filter: Filter, cursor: str) -> _rpc.Op[_rpc.Listed[TaskInfo]]:
    """Lists the dead letters of a queue."""
    got = yield from caller.call(_LIST_DEAD, operator_pb2.ListDeadRequest(filter=_filter(filter), cursor=cursor))
    return _rpc.Listed([task_info(p) for p in got.items], got.next_cursor, got.missing)


def replay(
    caller: _rpc.Caller,
    queue: str,
    task_ids: Sequence[str],
    filter: Filter | None,
    max: int,
    rate: float | str,
    dry_run: bool,
    poisoned: bool,
    reason: str,
) -> _rpc.Op[Replayed]:
    """Runs dead letters again."""
    request = operator_pb2.ReplayDeadRequest(
        queue=queue, task_ids=task_ids, max=max, rate=_convert.per_second("rate", rate), dry_run=dry_run, poisoned=poisoned, reason=reason
    )
    if filter is not None:
        request.filter.CopyFrom(_filter(filter))
    got = yield from caller.call(_REPLAY_DEAD, request, repeat=dry_run)
    return _messages.read(Replayed, got)


def discard(
    caller: _rpc.Caller, queue: str, task_ids: Sequence[str], filter: Filter | None, max: int, dry_run: bool, poisoned: bool, reason: str
) -> _rpc.Op[Discarded]:
    """Discards dead letters."""
    request = operator_pb2.DiscardDeadRequest(queue=queue, task_ids=task_ids, max=max, dry_run=dry_run, poisoned=poisoned, reason=reason)
    if filter is not None:
        request.filter.CopyFrom(_filter(filter))
    got = yield from caller.call(_DISCARD_DEAD, request, repeat=dry_run)
    return _messages.read(Discarded, got)


def list_tasks(caller: _rpc.Caller, filter: Filter, cursor: str) -> _rpc.Op[_rpc.Listed[TaskInfo]]:
    """Lists tasks."""
    got = yield from caller.call(_LIST_TASKS, producer_pb2.ListTasksRequest(filter=_filter(filter), cursor=cursor))
    return _rpc.Listed([task_info(p) for p in got.items], got.next_cursor, got.missing)


def explain(caller: _rpc.Caller, id: str) -> _rpc.Op[Explanation]:
    """Returns why a task is not running."""
    got = yield from caller.call(_EXPLAIN_TASK, explain_pb2.ExplainTaskRequest(task_id=id))
    return _messages.read(Explanation, got)


def retry_task(caller: _rpc.Caller, id: str) -> _rpc.Op[TaskInfo]:
    """Runs an ended task again."""
    got = yield from caller.call(_RETRY_TASK, operator_pb2.RetryTaskRequest(task_id=id), repeat=False)
    return task_info(got.task)


def run_now(caller: _rpc.Caller, id: str) -> _rpc.Op[TaskInfo]:
    """Runs a waiting task now."""
    got = yield from caller.call(_RUN_NOW, operator_pb2.RunTaskNowRequest(task_id=id), repeat=False)
    return task_info(got.task)


def discard_task(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[TaskInfo]:
    """Discards a task."""
    got = yield from caller.call(_DISCARD_TASK, operator_pb2.DiscardTaskRequest(task_id=id, reason=reason), repeat=False)
    return task_info(got.task)


def _operation(p: operation_pb2.Operation) -> Operation:
    return _messages.read(Operation, p)


def start_operation(caller: _rpc.Caller, spec: OperationSpec, reason: str, request_id: str | None) -> _rpc.Op[Operation]:
    """Starts an operation."""
    request = operation_pb2.StartOperationRequest(reason=reason, request_id=str(uuid.uuid4()) if request_id is None else request_id)
    _messages.write(spec, request.spec, "spec.")
    request.spec.filter.SetInParent()
    got = yield from caller.call(_START_OPERATION, request)
    return _operation(got.operation)


def get_operation(caller: _rpc.Caller, id: str, wait: Seconds | None) -> _rpc.Op[Operation]:
    """Gets an operation."""
    request = operation_pb2.GetOperationRequest(operation_id=id)
    _messages.optional_duration(request, "wait", wait)
    got = yield from caller.call(_GET_OPERATION, request)
    return _operation(got.operation)


def list_operations(caller: _rpc.Caller, cursor: str) -> _rpc.Op[_rpc.Listed[Operation]]:
    """Lists operations."""
    got = yield from caller.call(_LIST_OPERATIONS, operation_pb2.ListOperationsRequest(cursor=cursor))
    return _rpc.Listed([_operation(p) for p in got.items], got.next_cursor)


def pause_operation(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[Operation]:
    """Pauses an operation."""
    got = yield from caller.call(_PAUSE_OPERATION, operation_pb2.PauseOperationRequest(operation_id=id, reason=reason))
    return _operation(got.operation)


def resume_operation(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[Operation]:
    """Resumes an operation."""
    got = yield from caller.call(_RESUME_OPERATION, operation_pb2.ResumeOperationRequest(operation_id=id, reason=reason))
    return _operation(got.operation)


def abort_operation(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[Operation]:
    """Aborts an operation."""
    got = yield from caller.call(_ABORT_OPERATION, operation_pb2.AbortOperationRequest(operation_id=id, reason=reason))
    return _operation(got.operation)


def list_workers(
    caller: _rpc.Caller, queue: str | None, type: str | None, lost: bool | None, cursor: str
) -> _rpc.Op[_rpc.Listed[WorkerInfo]]:
    """Lists workers."""
    got = yield from caller.call(_LIST_WORKERS, worker_registry_pb2.ListWorkersRequest(queue=queue, type=type, lost=lost, cursor=cursor))
    return _rpc.Listed([_messages.read(WorkerInfo, p) for p in got.items], got.next_cursor, got.missing)


def quiet(caller: _rpc.Caller, id: str, reason: str, span: Seconds | None) -> _rpc.Op[WorkerInfo]:
    """Stops a worker from taking new tasks."""
    request = worker_registry_pb2.QuietWorkerRequest(worker_id=id, reason=reason)
    _messages.optional_duration(request, "for", span)
    got = yield from caller.call(_QUIET_WORKER, request)
    return _messages.read(WorkerInfo, got.worker)


def resume_worker(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[WorkerInfo | None]:
    """Lets a worker take tasks again."""
    got = yield from caller.call(_RESUME_WORKER, worker_registry_pb2.ResumeWorkerRequest(worker_id=id, reason=reason))
    return _messages.read(WorkerInfo, got.worker) if got.HasField("worker") else None
