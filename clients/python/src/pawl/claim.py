"""Claim: a task that a handler is running."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Callable, Protocol, TypeVar, cast

from pawl import _convert, _ending, _rpc, _steps, errors, keyring, models
from pawl._claimed import Holder, State
from pawl._convert import Seconds
from pawl._kept import WRAPPED, kept_of
from pawl._limits import MAX_PROGRESS_TEXT
from pawl.outcome import DeadLetter, Interrupted, Poison
from pawl.v1 import task_pb2, worker_pb2

R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Claim:
    """A task that a handler is running, under a lease. Its fields are read-only."""

    id: str
    type: str
    queue: str
    payload: bytes
    content_type: str
    priority: str
    attempt: int
    """1 for the first attempt. Failures and lost leases count; releases and snoozes do not."""
    max_attempts: int
    """If the attempt with this number fails, the task is not retried."""
    token: str
    fence: int
    """Grows with every claim of the task. Use it to guard your own writes."""
    lease: float
    """The length of the lease in seconds. The worker extends it."""
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
    """The task or group that the task follows."""
    _holder: Holder = field(repr=False)
    _state: State = field(repr=False)

    def decode_payload(self) -> Any:
        """Decodes the payload from JSON. Raises Poison if it is not JSON."""
        try:
            return _convert.decode_as(f"payload of type {self.type!r}", self.payload, self.content_type)
        except ValueError as err:
            raise Poison(str(err)) from None

    def parent_result(self) -> Any:
        """Decodes the parent's result from JSON. For a task it is None if there is no result; for a group it has the counts, as
        {"group_id", "name", "members", "pending", "succeeded", "dead", ...}. LookupError if the task has no parent, or if the result
        was too large to be included; ValueError if it is not JSON."""
        parent = self.parent
        if parent is None:
            raise LookupError(f"task {self.id} has no parent")
        if parent.result_omitted:
            raise LookupError(f"the result of task {parent.task_id} was too large to be passed along: read it with Ref.result")
        return _convert.decode_as(f"the result of task {parent.task_id}", parent.result, parent.content_type)

    @property
    def interrupted(self) -> Interrupted | None:
        """Why the handler should stop, or None. The handler may still return a result, but the broker may no longer accept it."""
        return self._holder.cause()

    def check(self) -> None:
        """Raises the reason if the handler should stop. Call it in long loops: a thread cannot be stopped from outside."""
        cause = self.interrupted
        if cause is not None:
            raise cause

    def progress(self, percent: float, message: str = "") -> None:
        """Reports progress, from 0 to 100 percent. It does not wait: the worker sends the newest report at most once a second, and
        the task may end before the last one is sent. Raises the reason if the handler should stop."""
        self.check()
        text = _convert.cut(message, MAX_PROGRESS_TEXT)
        self._holder.set_progress(task_pb2.Progress(percent=min(max(percent, 0.0), 100.0), message=text))

    def set_raw_result(self, data: bytes, content_type: str) -> None:
        """Sets a result that is not JSON. It is used if the handler returns None."""
        if not isinstance(data, bytes):
            raise errors.invalid("result", f"is a {type(data).__name__}, want bytes")
        if not isinstance(content_type, str):
            raise errors.invalid("content_type", f"is a {type(content_type).__name__}, want str")
        self._state.result = _ending.Result(data, content_type)

    def checkpoint(self, value: Any) -> None:
        """Stores a value, as at most 64 KiB of JSON, for the next attempt, which reads it with last_checkpoint. When it returns, the
        checkpoint is on stable storage and the lease has been extended. Raises the reason if the handler should stop."""
        self._holder.caller.run(self._checkpoint(value))

    async def acheckpoint(self, value: Any) -> None:
        """Async version of checkpoint."""
        await self._holder.caller.arun(self._checkpoint(value))

    def last_checkpoint(self, default: Any = None) -> Any:
        """Decodes the newest checkpoint, of this or an earlier attempt, from JSON. Returns default if there is none."""
        own = self._state.kept.own
        return _convert.decode(own) if own else default

    def step(self, name: str, fn: Callable[[], R]) -> R:
        """Runs fn once in the life of the task: charge = claim.step("charge", lambda: pay(order)).

        Its result is recorded as JSON under the name before step returns. When the handler gets here again, in this attempt or a later
        one, even after a replay, it gets this result and fn does not run. An exception from fn is raised, and nothing is recorded. A
        result that cannot be recorded, because it is not JSON or too large, raises DeadLetter: fn has run, and a retry would run it
        again.

        All results and the checkpoint together take at most 64 KiB, a name at most 256 bytes. Threads may run steps concurrently;
        steps of the same name wait for each other. After a crash between the effect of fn and its recording, fn runs again.
        """
        return cast(R, self._holder.caller.run(_steps.step(self, name, fn)))

    async def astep(self, name: str, fn: Callable[[], Awaitable[R]]) -> R:
        """Async version of step: await claim.astep("charge", lambda: pay(order)), where pay is a coroutine function."""
        return cast(R, await self._holder.caller.arun(_steps.step(self, name, fn)))

    def once(self, key: str, fn: Callable[[], R], *, ttl: Seconds | None = None) -> R:
        """Runs fn once among all tasks of the queue. The first task to use the key runs it; later ones, and replays, get its result,
        at most 64 KiB of JSON, for ttl: 1 s to 365 days, by default 24 h.

        While fn runs, the claim holds the key; it releases the key when it ends, in whatever way. Another task that wants the effect
        waits for half a lease, at most 10 s, and then raises OnceHeld, which snoozes it. An exception from fn is raised, nothing is
        recorded, and the key is released. After a crash between the effect and its recording, fn runs again: see docs/idempotency.md for
        remedies.
        """
        return cast(R, self._holder.caller.run(_steps.once(self, key, fn, ttl)))

    async def aonce(self, key: str, fn: Callable[[], Awaitable[R]], *, ttl: Seconds | None = None) -> R:
        """Async version of once."""
        return cast(R, await self._holder.caller.arun(_steps.once(self, key, fn, ttl)))

    def _checkpoint(self, value: Any) -> _rpc.Op[None]:
        data = _convert.encode("checkpoint", value)
        self.check()
        yield from _steps.save(self, lambda kept: kept.with_own(data))


_current: contextvars.ContextVar[Claim] = contextvars.ContextVar("pawl.current")


def current() -> Claim:
    """Returns the claim of the running handler. Raises LookupError outside of handlers."""
    return _current.get()


def begin(claim: Claim) -> None:
    """Prepares for running a handler. A task that cannot be decrypted fails, because workers with its key may be able to run it;
    a forged one is poisoned."""
    _current.set(claim)
    unreadable = claim._state.unreadable
    if isinstance(unreadable, keyring.Forged):
        raise Poison(str(unreadable))
    if unreadable is not None:
        raise unreadable
    key = keyring.encrypted_with(claim.content_type)
    if key is not None:
        raise keyring.Unreadable(f"payload: it is encrypted with key {key!r}, and the app has no keyring")


def encode_result(claim: Claim, value: Any) -> _ending.Result:
    """Encodes a handler's result. If it is not JSON, the task becomes a dead letter, because another run would only return it
    again."""
    if value is None:
        return claim._state.result
    try:
        return _ending.Result(_convert.encode("result", value), _convert.JSON)
    except errors.InvalidArgumentError as err:
        raise DeadLetter(f"the handler has run, but its result cannot be kept: {err}") from err


def claim_of(p: worker_pb2.ClaimedTask, holder: Holder) -> Claim:
    """Converts a claimed task from the API, and decrypts it."""
    encryption = holder.caller.encryption
    unreadable: keyring.Unreadable | None = None
    if encryption is not None:
        unreadable = encryption.open_claimed(p)
    elif p.checkpoint.startswith(WRAPPED):
        unreadable = keyring.Unreadable("checkpoint: it is encrypted, and the app has no keyring")
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
        _holder=holder,
        _state=State(kept_of(p.checkpoint), unreadable=unreadable),
    )
