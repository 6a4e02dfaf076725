"""Groups: tasks that are counted together, and the tasks enqueued when all have ended."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Union

from pawl import _convert, _enqueue, _rpc, _telemetry, errors, models
from pawl._convert import Seconds
from pawl.call import Call
from pawl.models import Follower
from pawl.ref import WAIT_SLACK, Ref
from pawl.v1 import group_pb2, producer_pb2

_STATES = _convert.Words(group_pb2.GroupState, "GROUP_STATE_")

Made = Union[Ref[Any], errors.PawlError, None]


@dataclass(frozen=True)
class GroupCounts:
    """The number of members of a group by state."""

    members: int
    pending: int
    """Members that have not ended."""
    succeeded: int
    dead: int
    poisoned: int
    discarded: int
    cancelled: int
    refused: int
    """Members that their queues refused."""


@dataclass(frozen=True)
class GroupInfo:
    """What the broker knows about a group. Times are in UTC, and None if they have not been reached or never will be."""

    id: str
    name: str
    state: str
    """running, complete or cancelled."""
    open: bool
    """The group can't be complete until it is closed."""
    counts: GroupCounts
    created_at: datetime | None
    ended_at: datetime | None
    """When it became complete; if cancelled, when all members had ended."""
    kept_until: datetime | None
    on_complete: Follower | None
    on_success: Follower | None
    on_death: Follower | None


@dataclass(frozen=True)
class GroupMember:
    """A member of a group, as recorded by the group."""

    task_id: str
    """"" while it is on its way to its queue, or if it was refused."""
    type: str
    queue: str
    state: str
    """Its end state; "" until it has ended."""
    refused: str
    """Why its queue refused it: an error code, or duplicate."""
    result: bytes = field(repr=False)
    """Up to 16 KiB."""
    result_content_type: str
    result_omitted: bool
    """It is larger, or the group already keeps 64 MiB of results: read it from the task."""

    def decode_result(self) -> Any:
        """Decodes the result from JSON. Returns None if there is none; ValueError if it is something else."""
        return _convert.decode_as(f"the result of task {self.task_id}", self.result, self.result_content_type)


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
    return _group(response.group)


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
    return _group(response.group)


def _cancel(caller: _rpc.Caller, id: str, reason: str) -> _rpc.Op[GroupInfo]:
    response = yield from caller.call(_rpc.CANCEL_GROUP, group_pb2.CancelGroupRequest(group_id=id, reason=reason))
    return _group(response.group)


def _members(caller: _rpc.Caller, id: str, cursor: str) -> _rpc.Op[_rpc.Listed[GroupMember]]:
    request = group_pb2.ListGroupMembersRequest(group_id=id, cursor=cursor)
    response = yield from caller.call(_rpc.LIST_GROUP_MEMBERS, request)
    return _rpc.Listed([_member(p) for p in response.items], response.next_cursor)


def _group(p: group_pb2.Group) -> GroupInfo:
    counts = p.counts
    return GroupInfo(
        id=p.group_id,
        name=p.name,
        state=_STATES.word(p.state),
        open=p.open,
        counts=GroupCounts(
            members=counts.members,
            pending=counts.pending,
            succeeded=counts.succeeded,
            dead=counts.dead,
            poisoned=counts.poisoned,
            discarded=counts.discarded,
            cancelled=counts.cancelled,
            refused=counts.refused,
        ),
        created_at=_convert.time_of(p.created_at),
        ended_at=_convert.time_of(p.ended_at),
        kept_until=_convert.time_of(p.kept_until),
        on_complete=models.follower(p.on_complete) if p.HasField("on_complete") else None,
        on_success=models.follower(p.on_success) if p.HasField("on_success") else None,
        on_death=models.follower(p.on_death) if p.HasField("on_death") else None,
    )


def _member(p: group_pb2.GroupMember) -> GroupMember:
    return GroupMember(
        task_id=p.task_id,
        type=p.type,
        queue=p.queue,
        state=models.state_word(p.state),
        refused=p.refused,
        result=p.result,
        result_content_type=p.result_content_type,
        result_omitted=p.result_omitted,
    )
