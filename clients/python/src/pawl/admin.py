"""The operators' calls: queues, dead letters, operations, workers, single tasks, statistics. Schedules are app.schedules.

    app.admin.queues.pause("mail", "the provider is down")

Each call has an async version: await app.admin.queues.apause(...).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

from pawl import _operate, _rpc
from pawl._convert import Seconds
from pawl._operated import (
    Breaker,
    DeadGroup,
    Depth,
    Discarded,
    EventCounts,
    Explanation,
    FailedTask,
    FailingType,
    Filter,
    KeyRules,
    Latency,
    Operation,
    OperationSpec,
    Operator,
    PriorityWeights,
    Queue,
    QueueSettings,
    Quiet,
    Rate,
    Reason,
    Replayed,
    Retention,
    RunningTask,
    Stats,
    WorkerInfo,
)
from pawl.errors import Missing
from pawl.models import TaskInfo

__all__ = [
    "Admin",
    "Breaker",
    "DeadGroup",
    "DeadLetters",
    "Depth",
    "Discarded",
    "EventCounts",
    "Explanation",
    "FailedTask",
    "FailingType",
    "Filter",
    "KeyRules",
    "Latency",
    "Missing",
    "Operation",
    "OperationSpec",
    "Operations",
    "Operator",
    "PriorityWeights",
    "Queue",
    "QueueSettings",
    "Queues",
    "Quiet",
    "Rate",
    "Reason",
    "Replayed",
    "Retention",
    "RunningTask",
    "Stats",
    "Tasks",
    "WorkerInfo",
    "Workers",
]


class _Calls:
    def __init__(self, caller: _rpc.Caller) -> None:
        self._caller = caller


class Queues(_Calls):
    """The calls about queues."""

    def list(self, pattern: str | None = None) -> Iterator[Queue]:
        """Iterates over all queues by name; missing of each says what its numbers lack. In the pattern, * matches any characters."""
        return self._caller.pages(lambda cursor: _operate.list_queues(self._caller, pattern, cursor))

    def alist(self, pattern: str | None = None) -> AsyncIterator[Queue]:
        """Async version of list, for use with async for."""
        return self._caller.apages(lambda cursor: _operate.list_queues(self._caller, pattern, cursor))

    def get(self, queue: str) -> Queue:
        """Returns a queue; NotFoundError if there is none."""
        return self._caller.run(_operate.get_queue(self._caller, queue))

    async def aget(self, queue: str) -> Queue:
        """Async version of get."""
        return await self._caller.arun(_operate.get_queue(self._caller, queue))

    def put(self, queue: str, settings: QueueSettings, *, if_version: int | None = None) -> Queue:
        """Replaces the settings of a queue, creating it if necessary. ConflictError if its settings don't have the version
        if_version."""
        return self._caller.run(_operate.put_queue(self._caller, queue, settings, if_version))

    async def aput(self, queue: str, settings: QueueSettings, *, if_version: int | None = None) -> Queue:
        """Async version of put."""
        return await self._caller.arun(_operate.put_queue(self._caller, queue, settings, if_version))

    def delete(self, queue: str) -> None:
        """Deletes a queue that has no tasks."""
        return self._caller.run(_operate.delete_queue(self._caller, queue))

    async def adelete(self, queue: str) -> None:
        """Async version of delete."""
        return await self._caller.arun(_operate.delete_queue(self._caller, queue))

    def pause(self, queue: str, reason: str = "", *, type: str | None = None, key: str | None = None) -> Queue:
        """Pauses a queue, or its tasks of one type or key. New tasks are still accepted, but none can be claimed; running tasks
        continue."""
        return self._caller.run(_operate.pause(self._caller, queue, reason, type, key))

    async def apause(self, queue: str, reason: str = "", *, type: str | None = None, key: str | None = None) -> Queue:
        """Async version of pause."""
        return await self._caller.arun(_operate.pause(self._caller, queue, reason, type, key))

    def resume(self, queue: str, reason: str = "", *, type: str | None = None, key: str | None = None) -> Queue:
        """Ends a pause."""
        return self._caller.run(_operate.resume(self._caller, queue, reason, type, key))

    async def aresume(self, queue: str, reason: str = "", *, type: str | None = None, key: str | None = None) -> Queue:
        """Async version of resume."""
        return await self._caller.arun(_operate.resume(self._caller, queue, reason, type, key))

    def purge(self, queue: str, reason: str = "") -> int:
        """Discards the waiting tasks of a queue, and returns how many there were."""
        return self._caller.run(_operate.purge(self._caller, queue, reason))

    async def apurge(self, queue: str, reason: str = "") -> int:
        """Async version of purge."""
        return await self._caller.arun(_operate.purge(self._caller, queue, reason))

    def stats(self, queue: str, window: Seconds | None = None) -> Stats:
        """Returns the statistics of the last 2 minutes, 5 minutes, hour (the default) or 24 hours."""
        return self._caller.run(_operate.queue_stats(self._caller, queue, window))

    async def astats(self, queue: str, window: Seconds | None = None) -> Stats:
        """Async version of stats."""
        return await self._caller.arun(_operate.queue_stats(self._caller, queue, window))


class DeadLetters(_Calls):
    """The calls about dead letters and poisoned tasks."""

    def groups(self, queue: str | None = None, *, poisoned: bool = False) -> Sequence[DeadGroup]:
        """Groups dead letters by their error, most frequent first."""
        return self._caller.run(_operate.groups(self._caller, queue, poisoned))

    async def agroups(self, queue: str | None = None, *, poisoned: bool = False) -> Sequence[DeadGroup]:
        """Async version of groups."""
        return await self._caller.arun(_operate.groups(self._caller, queue, poisoned))

    def list(self, filter: Filter) -> Iterator[TaskInfo]:
        """Iterates over the dead letters of a queue. The filter's queue is required."""
        return self._caller.pages(lambda cursor: _operate.list_dead(self._caller, filter, cursor))

    def alist(self, filter: Filter) -> AsyncIterator[TaskInfo]:
        """Async version of list, for use with async for."""
        return self._caller.apages(lambda cursor: _operate.list_dead(self._caller, filter, cursor))

    def replay(
        self,
        queue: str,
        *,
        task_ids: Sequence[str] = (),
        filter: Filter | None = None,
        max: int = 0,
        rate: float | str = 0.0,
        dry_run: bool = False,
        poisoned: bool = False,
        reason: str = "",
    ) -> Replayed:
        """Runs dead letters again: those in task_ids, or those that the filter selects; Filter() selects all. rate: tasks per
        second."""
        return self._caller.run(_operate.replay(self._caller, queue, task_ids, filter, max, rate, dry_run, poisoned, reason))

    async def areplay(
        self,
        queue: str,
        *,
        task_ids: Sequence[str] = (),
        filter: Filter | None = None,
        max: int = 0,
        rate: float | str = 0.0,
        dry_run: bool = False,
        poisoned: bool = False,
        reason: str = "",
    ) -> Replayed:
        """Async version of replay."""
        return await self._caller.arun(_operate.replay(self._caller, queue, task_ids, filter, max, rate, dry_run, poisoned, reason))

    def discard(
        self,
        queue: str,
        *,
        task_ids: Sequence[str] = (),
        filter: Filter | None = None,
        max: int = 0,
        dry_run: bool = False,
        poisoned: bool = False,
        reason: str = "",
    ) -> Discarded:
        """Discards dead letters after archiving them: those in task_ids, or those that the filter selects."""
        return self._caller.run(_operate.discard(self._caller, queue, task_ids, filter, max, dry_run, poisoned, reason))

    async def adiscard(
        self,
        queue: str,
        *,
        task_ids: Sequence[str] = (),
        filter: Filter | None = None,
        max: int = 0,
        dry_run: bool = False,
        poisoned: bool = False,
        reason: str = "",
    ) -> Discarded:
        """Async version of discard."""
        return await self._caller.arun(_operate.discard(self._caller, queue, task_ids, filter, max, dry_run, poisoned, reason))


class Tasks(_Calls):
    """The calls about single tasks."""

    def list(self, filter: Filter | None = None) -> Iterator[TaskInfo]:
        """Iterates over tasks, newest first, without their payloads."""
        return self._caller.pages(lambda cursor: _operate.list_tasks(self._caller, filter or Filter(), cursor))

    def alist(self, filter: Filter | None = None) -> AsyncIterator[TaskInfo]:
        """Async version of list, for use with async for."""
        return self._caller.apages(lambda cursor: _operate.list_tasks(self._caller, filter or Filter(), cursor))

    def explain(self, id: str) -> Explanation:
        """Returns why a task is not running."""
        return self._caller.run(_operate.explain(self._caller, id))

    async def aexplain(self, id: str) -> Explanation:
        """Async version of explain."""
        return await self._caller.arun(_operate.explain(self._caller, id))

    def retry(self, id: str) -> TaskInfo:
        """Runs a task again that has ended without success."""
        return self._caller.run(_operate.retry_task(self._caller, id))

    async def aretry(self, id: str) -> TaskInfo:
        """Async version of retry."""
        return await self._caller.arun(_operate.retry_task(self._caller, id))

    def run_now(self, id: str) -> TaskInfo:
        """Runs a scheduled or retrying task now."""
        return self._caller.run(_operate.run_now(self._caller, id))

    async def arun_now(self, id: str) -> TaskInfo:
        """Async version of run_now."""
        return await self._caller.arun(_operate.run_now(self._caller, id))

    def discard(self, id: str, reason: str = "") -> TaskInfo:
        """Discards a waiting task or a dead letter."""
        return self._caller.run(_operate.discard_task(self._caller, id, reason))

    async def adiscard(self, id: str, reason: str = "") -> TaskInfo:
        """Async version of discard."""
        return await self._caller.arun(_operate.discard_task(self._caller, id, reason))


class Operations(_Calls):
    """The calls about operations, each of which applies one action to many tasks in the background."""

    def start(self, spec: OperationSpec, reason: str = "", *, request_id: str | None = None) -> Operation:
        """Starts an operation. request_id: a UUID; a retry with it returns the first operation again."""
        return self._caller.run(_operate.start_operation(self._caller, spec, reason, request_id))

    async def astart(self, spec: OperationSpec, reason: str = "", *, request_id: str | None = None) -> Operation:
        """Async version of start."""
        return await self._caller.arun(_operate.start_operation(self._caller, spec, reason, request_id))

    def get(self, id: str, wait: Seconds | None = None) -> Operation:
        """Returns an operation. wait: how long to wait for it to stop running, up to 60 s."""
        return self._caller.run(_operate.get_operation(self._caller, id, wait))

    async def aget(self, id: str, wait: Seconds | None = None) -> Operation:
        """Async version of get."""
        return await self._caller.arun(_operate.get_operation(self._caller, id, wait))

    def list(self) -> Iterator[Operation]:
        """Iterates over operations, newest first."""
        return self._caller.pages(lambda cursor: _operate.list_operations(self._caller, cursor))

    def alist(self) -> AsyncIterator[Operation]:
        """Async version of list, for use with async for."""
        return self._caller.apages(lambda cursor: _operate.list_operations(self._caller, cursor))

    def pause(self, id: str, reason: str = "") -> Operation:
        """Pauses an operation."""
        return self._caller.run(_operate.pause_operation(self._caller, id, reason))

    async def apause(self, id: str, reason: str = "") -> Operation:
        """Async version of pause."""
        return await self._caller.arun(_operate.pause_operation(self._caller, id, reason))

    def resume(self, id: str, reason: str = "") -> Operation:
        """Resumes an operation."""
        return self._caller.run(_operate.resume_operation(self._caller, id, reason))

    async def aresume(self, id: str, reason: str = "") -> Operation:
        """Async version of resume."""
        return await self._caller.arun(_operate.resume_operation(self._caller, id, reason))

    def abort(self, id: str, reason: str = "") -> Operation:
        """Aborts an operation. What it has done is not undone."""
        return self._caller.run(_operate.abort_operation(self._caller, id, reason))

    async def aabort(self, id: str, reason: str = "") -> Operation:
        """Async version of abort."""
        return await self._caller.arun(_operate.abort_operation(self._caller, id, reason))


class Workers(_Calls):
    """The calls about workers."""

    def list(self, *, queue: str | None = None, type: str | None = None, lost: bool | None = None) -> Iterator[WorkerInfo]:
        """Iterates over the workers. queue, type: only workers that take its tasks; lost: only lost workers, or only others. If nodes
        don't answer, IncompleteError ends it."""
        return self._caller.pages(lambda cursor: _operate.list_workers(self._caller, queue, type, lost, cursor))

    def alist(self, *, queue: str | None = None, type: str | None = None, lost: bool | None = None) -> AsyncIterator[WorkerInfo]:
        """Async version of list, for use with async for."""
        return self._caller.apages(lambda cursor: _operate.list_workers(self._caller, queue, type, lost, cursor))

    def quiet(self, id: str, reason: str = "", span: Seconds | None = None) -> WorkerInfo:
        """Stops a worker from taking new tasks for span, from 1 min to 30 days; default 24 h."""
        return self._caller.run(_operate.quiet(self._caller, id, reason, span))

    async def aquiet(self, id: str, reason: str = "", span: Seconds | None = None) -> WorkerInfo:
        """Async version of quiet."""
        return await self._caller.arun(_operate.quiet(self._caller, id, reason, span))

    def resume(self, id: str, reason: str = "") -> WorkerInfo | None:
        """Lets a worker take tasks again. Returns None if the worker is gone."""
        return self._caller.run(_operate.resume_worker(self._caller, id, reason))

    async def aresume(self, id: str, reason: str = "") -> WorkerInfo | None:
        """Async version of resume."""
        return await self._caller.arun(_operate.resume_worker(self._caller, id, reason))


class Admin:
    """The operators' calls, by subject."""

    def __init__(self, caller: _rpc.Caller) -> None:
        self._caller = caller
        self.queues = Queues(caller)
        self.dead_letters = DeadLetters(caller)
        self.tasks = Tasks(caller)
        self.operations = Operations(caller)
        self.workers = Workers(caller)

    def with_actor(self, name: str) -> Admin:
        """Returns the same calls in the name of an actor, such as the user of your program, which the server records with what
        they change.

        A name has at most 256 ASCII characters. If the server uses tokens, the name of the token is recorded instead."""
        return Admin(self._caller.acting(name))
