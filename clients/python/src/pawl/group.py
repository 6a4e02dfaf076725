"""Groups: tasks that are counted together, and the tasks enqueued when all have ended."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Union

from pawl import _convert, _data, _enqueue, _rpc, _telemetry, errors
from pawl._convert import Seconds
from pawl._data import GroupCounts as GroupCounts
from pawl._data import GroupInfo as GroupInfo
from pawl._data import GroupMember as GroupMember
from pawl.call import Call
from pawl.ref import WAIT_SLACK, Ref
from pawl.v1 import group_pb2, producer_pb2

Made = Union[Ref[Any], errors.PawlError, None]


class Group:
    """A reference to a group."""

    def __init__(self, caller: _rpc.Caller, id: str, *, tasks: Sequence[Made] = (), duplicate: bool = False) -> None:
        self._caller = caller
        self.id = id
        self.tasks = tasks
        """For a group that was just created, in the order of its tasks: a Ref, or the error if a queue refused the task, or None if
        it is on its way to its queue."""
        self.duplicate = duplicate
        """An earlier call with the same request id created the group."""

    def __repr__(self) -> str:
        return f"Group({self.id!r})"

    def info(self) -> GroupInfo:
        """Returns what the broker knows about the group; NotFoundError if it is gone."""
        return self._caller.run(_info(self._caller, self.id))

    async def ainfo(self) -> GroupInfo:
        """Async version of info."""
        return await self._caller.arun(_info(self._caller, self.id))

    def wait_ended(self, timeout: Seconds | None = None) -> GroupInfo:
        """Waits until the group has ended: it is complete, or it was cancelled and all its members have ended. Raises TimeoutError after
        the timeout. It asks the broker repeatedly."""
        return self._caller.run(_wait(self._caller, self.id, timeout))

    async def await_ended(self, timeout: Seconds | None = None) -> GroupInfo:
        """Async version of wait_ended."""
        return await self._caller.arun(_wait(self._caller, self.id, timeout))

    def add(self, calls: Iterable[Call[Any]]) -> Sequence[Made]:
        """Enqueues up to 1,000 further members, as long as the group is not complete. If some are refused, the others still
        become members, and BatchError has the result for each."""
        return self._caller.run(_add(self._caller, self.id, calls))

    async def aadd(self, calls: Iterable[Call[Any]]) -> Sequence[Made]:
        """Async version of add."""
        return await self._caller.arun(_add(self._caller, self.id, calls))

    def close(self) -> GroupInfo:
        """Closes an open group, which is then complete when all its members have ended. It is safe to retry."""
        return self._caller.run(_close(self._caller, self.id))

    async def aclose(self) -> GroupInfo:
        """Async version of close."""
        return await self._caller.arun(_close(self._caller, self.id))

    def cancel(self, reason: str = "") -> GroupInfo:
        """Cancels the group and all its members, and drops the tasks it would have enqueued. It is safe to retry. WrongStateError
        if the group is complete."""
        return self._caller.run(_cancel(self._caller, self.id, reason))

    async def acancel(self, reason: str = "") -> GroupInfo:
        """Async version of cancel."""
        return await self._caller.arun(_cancel(self._caller, self.id, reason))

    def members(self) -> Iterator[GroupMember]:
        """Iterates over the members, with their results, in the order in which the group was created; members that were added later
        and follow-up tasks of members come after them."""
        return self._caller.pages(lambda cursor: _members(self._caller, self.id, cursor))

    def amembers(self) -> AsyncIterator[GroupMember]:
        """Async version of members: async for member in group.amembers()."""
        return self._caller.apages(lambda cursor: _members(self._caller, self.id, cursor))


def create(caller: _rpc.Caller, request: group_pb2.CreateGroupRequest) -> _rpc.Op[Group]:
    """Creates a group."""
    spans = _telemetry.Batch(request.tasks, caller.connection.server)
    try:
        response = yield from caller.call(_rpc.CREATE_GROUP, request)
    except errors.PawlError as err:
        spans.failed(err)
        raise
    made = tuple(_made(caller, result) for result in response.tasks)
    spans.answered(made)
    return Group(caller, response.group.group_id, tasks=made, duplicate=response.duplicate)


def _made(caller: _rpc.Caller, p: producer_pb2.EnqueueResult) -> Made:
    if p.HasField("error"):
        return errors.of_proto(p.error)
    return _enqueue.ref_of(caller, p.task) if p.task.task_id else None


def _info(caller: _rpc.Caller, id: str, deadline: float | None = None) -> _rpc.Op[GroupInfo]:
    response = yield from caller.call(_rpc.GET_GROUP, group_pb2.GetGroupRequest(group_id=id), deadline)
    return _data.group_info(response.group)


def _wait(caller: _rpc.Caller, id: str, limit: Seconds | None) -> _rpc.Op[GroupInfo]:
    timeout = math.inf if limit is None else _convert.seconds("timeout", limit)
    deadline = time.monotonic() + timeout
    for attempt in itertools.count():
        info = yield from _info(caller, id, deadline + WAIT_SLACK)
        if info.ended_at is not None:
            return info
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"group {id} has not ended after {timeout:g} s: {info.counts.pending} tasks are pending")
        yield _rpc.Pause(min(_rpc.backoff(attempt, 0.05, 1.0), left))
    raise AssertionError("unreachable")


def _add(caller: _rpc.Caller, id: str, calls: Iterable[Call[Any]]) -> _rpc.Op[Sequence[Made]]:
    request = group_pb2.AddGroupTasksRequest(group_id=id, tasks=[_enqueue.named(call._spec()) for call in calls])
    made = yield from _enqueue.traced(caller, request.tasks, _send_members(caller, request))
    if any(isinstance(each, errors.PawlError) for each in made):
        raise errors.BatchError(made)
    return made


def _send_members(caller: _rpc.Caller, request: group_pb2.AddGroupTasksRequest) -> _rpc.Op[list[Made]]:
    response = yield from caller.call(_rpc.ADD_GROUP_TASKS, request)
    return [_made(caller, result) for result in response.results]


def _close(caller: _rpc.Caller, id: str) -> _rpc.Op[GroupInfo]:
    response = yield from caller.call(_rpc.CLOSE_GROUP, group_pb2.CloseGroupRequest(group_id=id))
    return _data.group_info(response.group)


def _cancel(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[GroupInfo]:
    response = yield from caller.call(_rpc.CANCEL_GROUP, group_pb2.CancelGroupRequest(group_id=id, reason=reason))
    return _data.group_info(response.group)


def _members(caller: _rpc.Caller, id: str, cursor: str) -> _rpc.Op[_rpc.Listed[GroupMember]]:
    request = group_pb2.ListGroupMembersRequest(group_id=id, cursor=cursor)
    response = yield from caller.call(_rpc.LIST_GROUP_MEMBERS, request)
    return _rpc.Listed([_data.group_member(p) for p in response.items], response.next_cursor)
