"""Claim: a task in the hands of its handler."""

from __future__ import annotations

import contextvars
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from pawl import _convert, _ending, errors, models
from pawl.outcome import DeadLetter, Interrupted, Poison
from pawl.v1 import task_pb2, worker_pb2

_MAX_PROGRESS_TEXT = 1 << 10


class Holder(Protocol):
    """The worker's run, as a claim sees it."""

    def cause(self) -> Interrupted | None:
        """Says why the handler is to stop."""

    def set_progress(self, progress: task_pb2.Progress) -> None:
        """Has the broker told soon."""


@dataclass
class _State:
    """What changes of a claim."""

    holder: Holder | None = None
    result: _ending.Result | None = None


@dataclass(frozen=True, eq=False)
class Claim:
    """A task in the hands of its handler, under a lease. Its fields are for reading."""

    id: str
    type: str
    queue: str
    payload: bytes
    content_type: str
    priority: str
    attempt: int
    """1 for the first. Failures and lost leases count, releases and snoozes do not."""
    max_attempts: int
    """A failure of this attempt is the last."""
    token: str
    fence: int
    """Grows with each claim of the task: guard your own writes with it."""
    lease: float
    """Its length in seconds. The worker extends it."""
    timeout: float
    """The time limit of this run in seconds; 0 if there is none."""
    headers: Mapping[str, str]
    key: str
    tags: Sequence[str]
    idempotency_key: str
    created_at: datetime | None
    ready_at: datetime | None
    group_id: str
    """The group that the task is a member of; "" if none."""
    parent: models.Parent | None
    """What the task follows."""
    _state: _State = field(default_factory=_State, repr=False)

    def decode_payload(self) -> Any:
        """Decodes the payload from JSON. One that is not JSON raises Poison."""
        if self.content_type not in ("", _convert.JSON):
            raise Poison(f"payload of type {self.type!r} is {self.content_type!r}, not JSON")
        try:
            return _convert.decode(self.payload)
        except ValueError as err:
            raise Poison(f"payload of type {self.type!r}: {err}") from None

    def parent_result(self) -> Any:
        """Decodes the result of what the task follows from JSON: of a task None if it has none, of a group its counts, as {"group_id",
        "name", "members", "pending", "succeeded", "dead", ...}. LookupError if the task follows nothing, or if the result was too large
        to take along; ValueError if it is not JSON."""
        parent = self.parent
        if parent is None:
            raise LookupError(f"task {self.id} follows no other")
        if parent.result_omitted:
            raise LookupError(f"the result of task {parent.task_id} was too large to take along: Ref.result has it")
        if parent.content_type not in ("", _convert.JSON):
            raise ValueError(f"the result of task {parent.task_id} is {parent.content_type!r}, not JSON")
        return _convert.decode(parent.result)

    @property
    def interrupted(self) -> Interrupted | None:
        """Why the handler is to stop, or None. It may go on and return a result, but it may be in vain."""
        holder = self._state.holder
        return holder.cause() if holder is not None else None

    def check(self) -> None:
        """Raises the reason if the handler is to stop. Call it in long loops: a thread cannot be stopped from outside."""
        cause = self.interrupted
        if cause is not None:
            raise cause

    def progress(self, percent: float, message: str = "") -> None:
        """Tells how far the handler is, from 0 to 100. It does not wait: the newest is sent at most once a second, and the last
        one may be passed over by the end of the task. It raises the reason if the handler is to stop."""
        self.check()
        holder = self._state.holder
        if holder is not None:
            text = _convert.cut(message, _MAX_PROGRESS_TEXT)
            holder.set_progress(task_pb2.Progress(percent=min(max(percent, 0.0), 100.0), message=text))

    def set_raw_result(self, data: bytes, content_type: str) -> None:
        """Gives the task a result that is not JSON. It is kept if the handler returns None."""
        self._state.result = _ending.Result(data, content_type)

    def _attach(self, holder: Holder) -> None:
        self._state.holder = holder


_current: contextvars.ContextVar[Claim] = contextvars.ContextVar("pawl.current")


def current() -> Claim:
    """Gives the claim of the handler that runs. Outside of handlers it raises LookupError."""
    return _current.get()


def set_current(claim: Claim) -> None:
    """Begins a handler."""
    _current.set(claim)


def encode_result(claim: Claim, value: Any) -> _ending.Result:
    """Encodes what a handler returned. What is not JSON makes a dead letter: another run would only return it again."""
    if value is None:
        return claim._state.result or _ending.Result()
    try:
        return _ending.Result(_convert.encode("result", value), _convert.JSON)
    except errors.InvalidArgumentError as err:
        raise DeadLetter(f"the handler has run, but its result cannot be kept: {err}") from err


def claim_of(p: worker_pb2.ClaimedTask) -> Claim:
    """Converts a claimed task from the API."""
    return Claim(
        id=p.task_id,
        type=p.type,
        queue=p.queue,
        payload=p.payload,
        content_type=p.content_type,
        priority=models.priority_word(p.priority),
        attempt=p.attempt,
        max_attempts=p.max_attempts,
        token=p.claim_token,
        fence=p.fence,
        lease=_convert.seconds_of(p.lease),
        timeout=_convert.seconds_of(p.timeout),
        headers=dict(p.headers),
        key=p.key,
        tags=tuple(p.tags),
        idempotency_key=p.idempotency_key,
        created_at=_convert.time_of(p.created_at),
        ready_at=_convert.time_of(p.ready_at),
        group_id=p.group_id,
        parent=models.parent(p.parent) if p.HasField("parent") else None,
    )
