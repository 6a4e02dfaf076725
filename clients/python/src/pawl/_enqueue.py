"""Enqueues tasks: one, or many in as few requests as possible."""

from __future__ import annotations

import copy
import itertools
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, Union, cast

from pawl import _convert, _gather, _rpc, _telemetry, errors, models
from pawl.ref import Ref
from pawl.v1 import producer_pb2, task_pb2

Answer = Union[Ref[Any], errors.PawlError, TimeoutError]
Answers = TypeVar("Answers", bound=Sequence[Any])


def request_id() -> str:
    """Returns a new request id, by which the broker recognizes retries."""
    return str(uuid.uuid4())


def named(task: task_pb2.TaskSpec) -> task_pb2.TaskSpec:
    """Gives a task a request id unless it has one, so that retries never create a second task."""
    if not task.HasField("request_id"):
        task.request_id = request_id()
    return task


def ref_of(caller: _rpc.Caller, p: producer_pb2.Enqueued) -> Ref[Any]:
    """Returns a reference to a task that was accepted."""
    return Ref(caller, p.task_id, state=models.state_word(p.state), created_at=_convert.time_of(p.created_at), duplicate=p.duplicate)


def enqueue(caller: _rpc.Caller, task: task_pb2.TaskSpec) -> _rpc.Op[Ref[Any]]:
    """Enqueues one task, in one request with other tasks that are enqueued at the same time."""
    span = _telemetry.sending(task, caller.connection.server)
    try:
        answer = yield from _gathered(caller, named(task))
    except BaseException as err:  # also a cancellation
        span.end(err)
        raise
    span.answered(answer.task_id)
    return ref_of(caller, answer)


def _gathered(caller: _rpc.Caller, task: task_pb2.TaskSpec) -> _rpc.Op[producer_pb2.Enqueued]:
    """Enqueues a task, and retries while its shard or the broker is unavailable."""
    start = time.monotonic()
    sealed = yield from caller.sealed(task)  # separately, so that a task that can't be encrypted does not fail the others
    for attempt in itertools.count():
        one = _gather.Waiting(sealed)
        yield from _take_turn(caller, one)
        if one.error is None:
            return cast(producer_pb2.Enqueued, one.answer)
        if not isinstance(one.error, errors.UnavailableError) or time.monotonic() - start >= caller.retry_for:
            raise copy.copy(one.error)  # others may raise it too
        yield _rpc.Pause(caller.pause(attempt, one.error), after=one.error)
    raise AssertionError("unreachable")


def _take_turn(caller: _rpc.Caller, one: _gather.Waiting) -> _rpc.Op[None]:
    """Waits until another operation has sent the task, or until it is this one's turn to send it along with the other waiting
    tasks."""
    caller.gatherer.join(one)
    if one.turn is not None:
        try:
            yield _rpc.Wait(one.turn)
        except BaseException:
            caller.gatherer.leave(one)
            raise
        if one.done:
            return
    tasks = caller.gatherer.take(one)
    try:
        yield from _send(caller, tasks)
    except TimeoutError:  # of this caller
        raise
    except Exception as err:
        for each in tasks:
            if not each.done:
                each.end(None, err)
    finally:
        caller.gatherer.end(one, tasks[1:])  # if the caller gave up, others send these


def _send(caller: _rpc.Caller, tasks: Sequence[_gather.Waiting]) -> _rpc.Op[None]:
    """Sends tasks in one request, without retrying."""
    response = yield from caller.attempt(_rpc.ENQUEUE_BATCH, producer_pb2.EnqueueBatchRequest(tasks=[each.task for each in tasks]))
    if len(response.results) != len(tasks):
        raise errors.InternalError(f"a batch of {len(tasks)} tasks got {len(response.results)} answers")
    for each, result in zip(tasks, response.results):
        if result.HasField("error"):
            each.end(None, errors.of_proto(result.error))
        else:
            each.end(result.task)


def enqueue_many(caller: _rpc.Caller, tasks: Sequence[task_pb2.TaskSpec]) -> _rpc.Op[list[Ref[Any]]]:
    """Enqueues tasks. If some are refused, the others are still enqueued, and BatchError has the result for each. If the caller's time
    is up, BatchTimeoutError has it."""
    answers: list[Answer] = []
    late: TimeoutError | None = None
    for chunk in _chunks([named(task) for task in tasks]):
        last = late or (answers[-1] if answers else None)
        if isinstance(last, (errors.UnavailableError, TimeoutError)):  # the broker is gone: the rest would only wait as long again
            answers.extend([last] * len(chunk))
            continue
        answers.extend((yield from traced(caller, chunk, _enqueue_chunk(caller, chunk))))
        late = next((answer for answer in answers if isinstance(answer, TimeoutError)), None)
    if late is not None:
        raise errors.BatchTimeoutError(answers)
    if any(isinstance(answer, Exception) for answer in answers):
        raise errors.BatchError(answers)
    return cast("list[Ref[Any]]", answers)


def traced(caller: _rpc.Caller, tasks: Sequence[task_pb2.TaskSpec], send: _rpc.Op[Answers]) -> _rpc.Op[Answers]:
    """Creates the spans of tasks that are sent together. send returns the result for each; it starts only after the spans are in
    its tasks."""
    spans = _telemetry.Batch(tasks, caller.connection.server)
    try:
        answers = yield from send
    except BaseException as err:
        spans.failed(err)
        raise
    spans.answered(answers)
    return answers


def _chunks(specs: list[task_pb2.TaskSpec]) -> Iterator[list[task_pb2.TaskSpec]]:
    chunk: list[task_pb2.TaskSpec] = []
    size = 0
    for each in specs:
        n = each.ByteSize()
        if chunk and (len(chunk) == _gather.MAX_TASKS or size + n > _gather.MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += n
    if chunk:
        yield chunk


def _enqueue_chunk(caller: _rpc.Caller, chunk: list[task_pb2.TaskSpec]) -> _rpc.Op[list[Answer]]:
    """Enqueues the tasks of one request. While their shard or the broker is unavailable, they are sent again, with the same request
    ids."""
    start = time.monotonic()
    try:
        sealed = yield from caller.sealed(producer_pb2.EnqueueBatchRequest(tasks=chunk))
    except (errors.PawlError, TimeoutError) as err:
        return [err] * len(chunk)
    tasks = pending = [_gather.Waiting(task) for task in sealed.tasks]
    for attempt in itertools.count():
        try:
            if attempt > 0:
                last = cast(errors.PawlError, pending[-1].error)
                yield _rpc.Pause(caller.pause(attempt - 1, last), after=last)
            yield from _send(caller, pending)
        except (errors.PawlError, TimeoutError) as err:
            for each in pending:
                each.end(None, err)
        pending = [each for each in pending if isinstance(each.error, errors.UnavailableError)]
        if not pending or time.monotonic() - start >= caller.retry_for:
            break
    return [ref_of(caller, each.answer) if each.answer is not None else cast(errors.PawlError, each.error) for each in tasks]
