"""Ref: a reference to an enqueued task, to wait for it or cancel it."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from pawl import _convert, _hints, _rpc, errors, models
from pawl._convert import Seconds
from pawl.models import TaskInfo
from pawl.v1 import producer_pb2

R_co = TypeVar("R_co", covariant=True)

_WAIT_STEP = 30.0  # how long one call waits for the end of a task
WAIT_SLACK = 5.0  # how long after the timeout the response may come that the task has not ended


class Ref(Generic[R_co]):
    """A reference to a task that was enqueued."""

    def __init__(self, caller: _rpc.Caller, id: str, *, state: str = "", created_at: datetime | None = None, duplicate: bool = False) -> None:
        self._caller = caller
        self.id = id
        self.state = state
        """The state when it was accepted: ready or scheduled; for a duplicate, the state it was in. "" for App.ref."""
        self.created_at = created_at
        """By the broker's clock."""
        self.duplicate = duplicate
        """The idempotency key, unique key or request id already belonged to this task."""

    def __repr__(self) -> str:
        return f"Ref({self.id!r})"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _hints.missing("a Ref", _hints.REF, name)

    def __deepcopy__(self, memo: object) -> Ref[R_co]:
        return self  # unlike a pickled one, it has its connection

    def __copy__(self) -> Ref[R_co]:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.id, self.state, self.created_at, self.duplicate)

    def info(self) -> TaskInfo:
        """Returns what the broker knows about the task; NotFoundError if it is gone."""
        return self._caller.run(_info(self._caller, self.id))

    async def ainfo(self) -> TaskInfo:
        """Async version of info."""
        return await self._caller.arun(_info(self._caller, self.id))

    def wait_ended(self, timeout: Seconds | None = None) -> TaskInfo:
        """Waits until the task has ended, in whatever state. Raises TimeoutError after the timeout."""
        return self._caller.run(_wait(self._caller, self.id, timeout))

    async def await_ended(self, timeout: Seconds | None = None) -> TaskInfo:
        """Async version of wait_ended."""
        return await self._caller.arun(_wait(self._caller, self.id, timeout))

    def result(self, timeout: Seconds | None = None) -> R_co:
        """Waits for the task and returns its function's result. TaskEndedError if the task did not succeed; ValueError if the
        result is not JSON: its bytes are in TaskInfo.result."""
        return cast(R_co, _result_of(self.wait_ended(timeout)))

    async def aresult(self, timeout: Seconds | None = None) -> R_co:
        """Async version of result."""
        return cast(R_co, _result_of(await self.await_ended(timeout)))

    def cancel(self, reason: str = "") -> TaskInfo:
        """Cancels the task, and its handler if it is running. WrongStateError if it has ended in another state."""
        return self._caller.run(_cancel(self._caller, self.id, reason))

    async def acancel(self, reason: str = "") -> TaskInfo:
        """Async version of cancel."""
        return await self._caller.arun(_cancel(self._caller, self.id, reason))


class _Elsewhere:
    """The connection of a reference that was pickled."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise errors.ClientClosedError("a Ref that was pickled has no connection: use app.ref(ref.id)")


def _unpickled(id: str, state: str, created_at: datetime | None, duplicate: bool) -> Ref[Any]:
    return Ref(cast(_rpc.Caller, _Elsewhere()), id, state=state, created_at=created_at, duplicate=duplicate)


def _info(caller: _rpc.Caller, id: str) -> _rpc.Op[TaskInfo]:
    response = yield from caller.call(_rpc.GET_TASK, producer_pb2.GetTaskRequest(task_id=id))
    return models.task_info(response.task)


def _wait(caller: _rpc.Caller, id: str, limit: Seconds | None) -> _rpc.Op[TaskInfo]:
    timeout = None if limit is None else _convert.seconds("timeout", limit)
    deadline = None if timeout is None else time.monotonic() + timeout
    attempt = 0
    while True:
        start = time.monotonic()
        step = _WAIT_STEP if deadline is None else max(min(_WAIT_STEP, deadline - start), 0.0)
        request = producer_pb2.GetTaskRequest(task_id=id, wait=_convert.duration("timeout", step))
        response = yield from caller.call(_rpc.GET_TASK, request, None if deadline is None else deadline + WAIT_SLACK)
        info = models.task_info(response.task)
        if info.ended:
            return info
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise TimeoutError(f"task {id} is still {info.state} after {timeout:g} s")
        attempt = attempt + 1 if now - start < min(step, 1.0) else 0
        if attempt:  # cut short, for example by a node that is shutting down
            yield _rpc.Pause(_rpc.backoff(attempt, 0.02, 2.0))


def _result_of(info: TaskInfo) -> Any:
    if info.state != "succeeded":
        raise models.TaskEndedError(info)
    return info.decode_result()


def _cancel(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[TaskInfo]:
    response = yield from caller.call(_rpc.CANCEL_TASK, producer_pb2.CancelTaskRequest(task_id=id, reason=reason))
    return models.task_info(response.task)
