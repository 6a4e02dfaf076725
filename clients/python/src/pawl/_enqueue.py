"""Enqueues tasks: one, or many in as few requests as they fit in."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, Union, cast

from pawl import _convert, _rpc, _telemetry, errors, models
from pawl.ref import Ref
from pawl.v1 import producer_pb2, task_pb2

_MAX_BATCH_TASKS = 1000
_MAX_BATCH_BYTES = 4 << 20

Answer = Union[Ref[Any], errors.PawlError]
Answers = TypeVar("Answers", bound=Sequence[Any])


def request_id() -> str:
    """Names a request, so that its repeats are known."""
    return str(uuid.uuid4())


def named(task: task_pb2.TaskSpec) -> task_pb2.TaskSpec:
    """Returns a task a request id unless it has one, so that repeats never make a second task."""
    task.request_id = task.request_id or request_id()
    return task


def ref_of(caller: _rpc.Caller, p: producer_pb2.Enqueued) -> Ref[Any]:
    """Refers to a task that was accepted."""
    return Ref(caller, p.task_id, state=models.state_word(p.state), created_at=_convert.time_of(p.created_at), duplicate=p.duplicate)


def enqueue(caller: _rpc.Caller, task: task_pb2.TaskSpec) -> _rpc.Op[Ref[Any]]:
    """Enqueues one task."""
    span = _telemetry.sending(task, caller.connection.server)
    try:
        response = yield from caller.call(_rpc.ENQUEUE, producer_pb2.EnqueueRequest(task=named(task)))
    except errors.PawlError as err:
        span.end(err)
        raise
    span.answered(response.task.task_id)
    return ref_of(caller, response.task)


def enqueue_many(caller: _rpc.Caller, tasks: Sequence[task_pb2.TaskSpec]) -> _rpc.Op[list[Ref[Any]]]:
    """Enqueues tasks. If some are refused, the others are enqueued nevertheless, and BatchError has the answer for each."""
    answers: list[Answer] = []
    for chunk in _chunks([named(task) for task in tasks]):
        last = answers[-1] if answers else None
        if isinstance(last, errors.UnavailableError):  # the broker is gone: what follows would only wait as long again
            answers.extend([last] * len(chunk))
        else:
            answers.extend((yield from traced(caller, chunk, _enqueue_chunk(caller, chunk))))
    if any(isinstance(answer, errors.PawlError) for answer in answers):
        raise errors.BatchError(answers)
    return cast("list[Ref[Any]]", answers)


def traced(caller: _rpc.Caller, tasks: Sequence[task_pb2.TaskSpec], send: _rpc.Op[Answers]) -> _rpc.Op[Answers]:
    """Makes the spans of tasks that go together. send returns what became of each, and is not begun before they are in its tasks."""
    spans = _telemetry.Batch(tasks, caller.connection.server)
    try:
        answers = yield from send
    except errors.PawlError as err:
        spans.failed(err)
        raise
    spans.answered(answers)
    return answers


def _chunks(specs: list[task_pb2.TaskSpec]) -> Iterator[list[task_pb2.TaskSpec]]:
    chunk: list[task_pb2.TaskSpec] = []
    size = 0
    for each in specs:
        n = each.ByteSize()
        if chunk and (len(chunk) == _MAX_BATCH_TASKS or size + n > _MAX_BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += n
    if chunk:
        yield chunk


def _enqueue_chunk(caller: _rpc.Caller, chunk: list[task_pb2.TaskSpec]) -> _rpc.Op[list[Answer]]:
    """Enqueues what fits in one request. Tasks whose shard is unavailable are sent again, with the same request ids."""
    answers: list[Answer] = [errors.UnavailableError("not sent")] * len(chunk)
    pending = list(range(len(chunk)))
    start = time.monotonic()
    attempt = 0
    while pending:
        request = producer_pb2.EnqueueBatchRequest(tasks=[chunk[at] for at in pending])
        try:
            response = yield from caller.call(_rpc.ENQUEUE_BATCH, request)
        except errors.PawlError as err:
            for at in pending:
                answers[at] = err
            return answers
        if len(response.results) != len(pending):
            raise errors.InternalError(f"a batch of {len(pending)} tasks got {len(response.results)} answers")
        for at, result in zip(pending, response.results):
            answers[at] = errors.of_proto(result.error) if result.HasField("error") else ref_of(caller, result.task)
        pending = [at for at in pending if isinstance(answers[at], errors.UnavailableError)]
        if not pending or time.monotonic() - start >= caller.retry_for:
            return answers
        yield _rpc.Pause(caller.pause(attempt, cast(errors.PawlError, answers[pending[-1]])))
        attempt += 1
    return answers
