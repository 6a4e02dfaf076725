"""Schedules, which enqueue tasks repeatedly, at clock times or at an interval."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pawl import _convert, _enqueue, _rpc, errors, models
from pawl._convert import Seconds
from pawl._data import Tick as Tick
from pawl._data import tick
from pawl.call import Call
from pawl.options import Options, options_of
from pawl.ref import Ref
from pawl.v1 import schedule_pb2, task_pb2

_MISSED = _convert.Words(schedule_pb2.Missed, "MISSED_")
_OVERLAPS = _convert.Words(schedule_pb2.Overlap, "OVERLAP_")


@dataclass(frozen=True)
class ScheduledTask:
    """The task that every tick enqueues."""

    type: str
    payload: bytes
    content_type: str
    options: Options
    then: Sequence[ScheduledTask]
    """Its follow-up tasks."""

    def decode_payload(self) -> Any:
        """Decodes the payload from JSON; ValueError if it is something else."""
        return _convert.decode_as(f"the payload of type {self.type!r}", self.payload, self.content_type)


@dataclass(frozen=True)
class SchedulePause:
    """Since when a schedule is paused, and why."""

    at: datetime | None
    reason: str
    by: str
    """As given by the caller; "" if unknown."""


@dataclass(frozen=True)
class Schedule:
    """What the broker knows about a schedule. Durations are in seconds, times in UTC."""

    id: str
    """Changes if the schedule is deleted and created again."""
    name: str
    cron: str
    time_zone: str
    every: float
    jitter: float
    missed: str
    overlap: str
    owner: str
    task: ScheduledTask
    created_at: datetime | None
    updated_at: datetime | None
    next_run_at: datetime | None
    """None while paused."""
    planned_at: datetime | None
    """next_run_at without its jitter."""
    coming: Sequence[datetime]
    """Up to four ticks after planned_at; not in lists, nor while paused."""
    pause: SchedulePause | None
    last: Tick | None
    """The newest history entry."""
    etag: str
    """Changes with whatever put can change."""


@dataclass(frozen=True)
class ScheduleChange:
    """The result of putting a schedule."""

    change: str
    """created, updated or unchanged."""
    schedule: Schedule
    before: Schedule | None
    """None if it did not exist."""


class Schedules:
    """The schedules of a broker. Methods for a single schedule raise NotFoundError if there is none of that name."""

    def __init__(self, caller: _rpc.Caller) -> None:
        self._caller = caller

    def with_actor(self, name: str) -> Schedules:
        """Returns the same calls in the name of an actor, which the server records with what they change. See
        pawl.admin.Admin.with_actor."""
        return Schedules(self._caller.acting(name))

    def put(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        time_zone: str | None = None,
        every: Seconds | None = None,
        jitter: Seconds | None = None,
        missed: str = "",
        overlap: str = "",
        owner: str | None = None,
        create_only: bool = False,
        dry_run: bool = False,
        if_etag: str | None = None,
    ) -> ScheduleChange:
        """Creates a schedule, or updates it to match the arguments. If nothing differs, nothing changes, and a schedule whose times
        don't change keeps its next tick, so a program can call this whenever it starts.

        call: what each tick enqueues; it can't have a delay, run_at, idempotency key or request id. cron: five fields, six with seconds
        first, or a shorthand such as @daily, evaluated in time_zone, an IANA name, by default UTC. every: an interval in whole seconds,
        instead of cron. jitter: each tick is delayed by a random part of it. missed: what happens to ticks that could not fire in time:
        once (one task for all of them, the default), skip or all. overlap: what happens to a tick while the task of an earlier one has
        not ended: allow (the default) or skip. owner: where the schedule comes from.

        create_only: ConflictError if a different schedule of this name exists. dry_run: returns what would change, without changing
        anything. if_etag: ConflictError unless the schedule exists and still has this etag, or already matches.
        """
        request = schedule_pb2.PutScheduleRequest(
            spec=_spec(name, call, cron, time_zone, every, jitter, missed, overlap, owner), create_only=create_only, dry_run=dry_run
        )
        if if_etag is not None:
            _convert.set_field(request, "if_etag", if_etag)
        return self._caller.run(_put(self._caller, request))

    async def aput(
        self,
        name: str,
        call: Call[Any],
        *,
        cron: str | None = None,
        time_zone: str | None = None,
        every: Seconds | None = None,
        jitter: Seconds | None = None,
        missed: str = "",
        overlap: str = "",
        owner: str | None = None,
        create_only: bool = False,
        dry_run: bool = False,
        if_etag: str | None = None,
    ) -> ScheduleChange:
        """Async version of put."""
        request = schedule_pb2.PutScheduleRequest(
            spec=_spec(name, call, cron, time_zone, every, jitter, missed, overlap, owner), create_only=create_only, dry_run=dry_run
        )
        if if_etag is not None:
            _convert.set_field(request, "if_etag", if_etag)
        return await self._caller.arun(_put(self._caller, request))

    def get(self, name: str) -> Schedule:
        """Returns a schedule."""
        return self._caller.run(_get(self._caller, name))

    async def aget(self, name: str) -> Schedule:
        """Async version of get."""
        return await self._caller.arun(_get(self._caller, name))

    def list(self) -> Iterator[Schedule]:
        """Iterates over all schedules, by name."""
        return self._caller.pages(lambda cursor: _list(self._caller, cursor))

    def alist(self) -> AsyncIterator[Schedule]:
        """Async version of list: async for schedule in app.schedules.alist()."""
        return self._caller.apages(lambda cursor: _list(self._caller, cursor))

    def delete(self, name: str) -> None:
        """Removes a schedule and its history. Tasks that its ticks enqueued are kept."""
        self._caller.run(_delete(self._caller, name))

    async def adelete(self, name: str) -> None:
        """Async version of delete."""
        await self._caller.arun(_delete(self._caller, name))

    def pause(self, name: str, reason: str = "") -> Schedule:
        """Lets ticks pass without enqueueing tasks. They are recorded in the history when the schedule is resumed."""
        return self._caller.run(_pause(self._caller, name, reason))

    async def apause(self, name: str, reason: str = "") -> Schedule:
        """Async version of pause."""
        return await self._caller.arun(_pause(self._caller, name, reason))

    def resume(self, name: str) -> Schedule:
        """Ends the pause of a schedule. It is not an error if the schedule is not paused."""
        return self._caller.run(_resume(self._caller, name))

    async def aresume(self, name: str) -> Schedule:
        """Async version of resume."""
        return await self._caller.arun(_resume(self._caller, name))

    def trigger(self, name: str) -> Ref[Any]:
        """Enqueues the task of a schedule now, in addition to its ticks. It also works while the schedule is paused."""
        return self._caller.run(_trigger(self._caller, name))

    async def atrigger(self, name: str) -> Ref[Any]:
        """Async version of trigger."""
        return await self._caller.arun(_trigger(self._caller, name))

    def history(self, name: str) -> Iterator[Tick]:
        """Iterates over the history of a schedule, newest first. The last 1,000 entries are kept."""
        return self._caller.pages(lambda cursor: _history(self._caller, name, cursor))

    def ahistory(self, name: str) -> AsyncIterator[Tick]:
        """Async version of history: async for tick in app.schedules.ahistory(name)."""
        return self._caller.apages(lambda cursor: _history(self._caller, name, cursor))


def _spec(
    name: str,
    call: Call[Any],
    cron: str | None,
    time_zone: str | None,
    every: Seconds | None,
    jitter: Seconds | None,
    missed: str,
    overlap: str,
    owner: str | None,
) -> schedule_pb2.ScheduleSpec:
    out = schedule_pb2.ScheduleSpec()
    for field, value in (("name", name), ("cron", cron), ("time_zone", time_zone), ("owner", owner)):
        if value is not None:
            _convert.set_field(out, field, value)
    if every is not None:
        out.every.CopyFrom(_convert.duration("every", every))
    if jitter is not None:
        out.jitter.CopyFrom(_convert.duration("jitter", jitter))
    if missed:
        out.missed = _MISSED.number("missed", missed)
    if overlap:
        out.overlap = _OVERLAPS.number("overlap", overlap)
    with errors.inside("task"):
        out.task.CopyFrom(call._spec())
    return out


def _put(caller: _rpc.Caller, request: schedule_pb2.PutScheduleRequest) -> _rpc.Op[ScheduleChange]:
    response = yield from caller.call(_rpc.PUT_SCHEDULE, request)
    before = _schedule(response.before) if response.HasField("before") else None
    return ScheduleChange(response.change, _schedule(response.schedule), before)


def _get(caller: _rpc.Caller, name: str) -> _rpc.Op[Schedule]:
    response = yield from caller.call(_rpc.GET_SCHEDULE, schedule_pb2.GetScheduleRequest(name=name))
    return _schedule(response.schedule)


def _list(caller: _rpc.Caller, cursor: str) -> _rpc.Op[_rpc.Listed[Schedule]]:
    response = yield from caller.call(_rpc.LIST_SCHEDULES, schedule_pb2.ListSchedulesRequest(cursor=cursor))
    return _rpc.Listed([_schedule(p) for p in response.items], response.next_cursor, response.missing)


def _delete(caller: _rpc.Caller, name: str) -> _rpc.Op[None]:
    yield from caller.once(_rpc.DELETE_SCHEDULE, schedule_pb2.DeleteScheduleRequest(name=name))


def _pause(caller: _rpc.Caller, name: str, reason: str) -> _rpc.Op[Schedule]:
    response = yield from caller.call(_rpc.PAUSE_SCHEDULE, schedule_pb2.PauseScheduleRequest(name=name, reason=reason))
    return _schedule(response.schedule)


def _resume(caller: _rpc.Caller, name: str) -> _rpc.Op[Schedule]:
    response = yield from caller.call(_rpc.RESUME_SCHEDULE, schedule_pb2.ResumeScheduleRequest(name=name))
    return _schedule(response.schedule)


def _trigger(caller: _rpc.Caller, name: str) -> _rpc.Op[Ref[Any]]:
    request = schedule_pb2.TriggerScheduleRequest(name=name, request_id=_enqueue.request_id())
    response = yield from caller.call(_rpc.TRIGGER_SCHEDULE, request)
    return Ref(caller, response.task_id, state=models.state_word(response.state))


def _history(caller: _rpc.Caller, name: str, cursor: str) -> _rpc.Op[_rpc.Listed[Tick]]:
    request = schedule_pb2.ListScheduleHistoryRequest(name=name, cursor=cursor)
    response = yield from caller.call(_rpc.LIST_SCHEDULE_HISTORY, request)
    return _rpc.Listed([tick(p) for p in response.items], response.next_cursor)


def _schedule(p: schedule_pb2.Schedule) -> Schedule:
    spec = p.spec
    return Schedule(
        id=p.schedule_id,
        name=spec.name,
        cron=spec.cron,
        time_zone=spec.time_zone,
        every=_convert.seconds_of(spec.every),
        jitter=_convert.seconds_of(spec.jitter),
        missed=_MISSED.word(spec.missed),
        overlap=_OVERLAPS.word(spec.overlap),
        owner=spec.owner,
        task=_task(spec.task),
        created_at=_convert.time_of(p.created_at),
        updated_at=_convert.time_of(p.updated_at),
        next_run_at=_convert.time_of(p.next_run_at),
        planned_at=_convert.time_of(p.next_planned_at),
        coming=tuple(at for each in p.coming if (at := _convert.time_of(each)) is not None),
        pause=SchedulePause(_convert.time_of(p.paused_at), p.paused_reason, p.paused_by) if p.paused else None,
        last=tick(p.last) if p.HasField("last") else None,
        etag=p.etag,
    )


def _task(p: task_pb2.TaskSpec) -> ScheduledTask:
    return ScheduledTask(p.type, p.payload, p.content_type, options_of(p), tuple(_task(each) for each in p.then))
