"""A claim held by a worker, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from dataclasses import dataclass, field
from typing import Any

from pawl import _ending, _telemetry, claim, outcome
from pawl.v1 import task_pb2, worker_pb2


class _Log(logging.LoggerAdapter):  # type: ignore[type-arg]  # Python 3.10 has no LoggerAdapter[...]
    """The log of workers. What a program plugs into logging, such as a filter, may raise, which must not end a worker."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Logs, as the methods for each level do. It runs the program's code, so no lock may be held."""
        kwargs["stacklevel"] = 2  # the caller's place, not this one
        with contextlib.suppress(Exception):
            super().log(level, msg, *args, **kwargs)


log = _Log(logging.getLogger("pawl.worker"), None)


class Phase(enum.Enum):
    """The phase of a claim."""

    RUNNING = 1
    LAPSED = 2  # its handler runs; its lease has expired unconfirmed, so the token may no longer be valid
    LOST = 3  # its handler runs; the broker reported the claim lost
    ENDED = 4  # its handler has ended; the broker has not confirmed it


@dataclass(eq=False)
class Held:
    """A claim, from its push to the response that ends it. The lock of its Run guards the mutable fields."""

    task: worker_pb2.ClaimedTask
    name: _ending.Name
    claim: claim.Claim
    lease: float
    lease_end: float
    due: float  # running: of the next extension; ended: of the next try after a refusal, 0 if it was not refused
    deadline: float  # when the timeout expires; infinity if there is none
    phase: Phase = Phase.RUNNING
    cause: outcome.Interrupted | None = None
    aio: asyncio.Task[None] | None = None
    ending: _ending.Request | None = None
    extended: float = 0.0  # when the last extension was sent
    unanswered: list[float] = field(default_factory=list)  # when those were sent that have no answer: those that succeed have it in this order
    progress: task_pb2.Progress | None = None
    tries: int = 0
    is_fallback: bool = False
    span: _telemetry.Span = field(default_factory=_telemetry.Span)  # of the run
    ended: int = 0  # when the run ended, in nanoseconds of the epoch


def verdict(held: Held, result: _ending.Result | None, err: BaseException | None) -> _ending.Request:
    """Returns how a claim ends. A result or outcome of the handler counts, even if the handler was told to stop."""
    if err is None:
        return _ending.ack(held.name, result or _ending.Result())
    if not isinstance(err, outcome.Outcome):
        if held.phase is Phase.LAPSED or isinstance(held.cause, outcome.Draining):
            return _ending.release(held.name)  # not the task's fault: uses no attempt
        if isinstance(held.cause, outcome.TimedOut):
            return _ending.fail(held.name, held.cause if _is_stop(err) else err, "timeout")
    return _ending.of_error(held.name, err)


def outcome_of(held: Held, err: BaseException | None) -> tuple[str, bool]:
    """Returns the outcome of a run, in the terms of docs/tracing.md, and whether it failed. held.phase must still be that before
    the end."""
    if held.phase is Phase.LOST:
        return "cancelled" if isinstance(held.cause, outcome.Cancelled) else "lease_lost", False
    if err is None:
        return "succeeded", False
    for cls, word, failed in _WORDS:
        if isinstance(err, cls):
            return word, failed
    if held.phase is Phase.LAPSED:
        return "lease_lost", False
    return ("released", False) if isinstance(held.cause, outcome.Draining) else ("failed", True)


_WORDS = (
    (outcome.Snooze, "snoozed", False),
    (outcome.Discard, "discarded", False),
    (outcome.DeadLetter, "dead", True),
    (outcome.Poison, "poisoned", True),
)


def _is_stop(err: BaseException) -> bool:
    return isinstance(err, (outcome.Interrupted, asyncio.CancelledError))


def extension(held: Held, now: float) -> worker_pb2.ExtendRequest:
    """Returns the request for an extension, with the newest progress."""
    held.extended = now
    held.unanswered.append(now)
    out = worker_pb2.ExtendRequest(task_id=held.name.task_id, claim_token=held.name.token, lease=held.task.lease)
    if held.progress is not None:
        out.progress.CopyFrom(held.progress)
        held.progress = None
    return out


def loss(reason: str) -> outcome.Interrupted:
    """Returns why a handler should stop whose claim was lost."""
    if reason == "cancelled":
        return outcome.Cancelled("the task was cancelled")
    return outcome.LeaseLost(f"the claim is no longer valid: {reason}")


def title(held: Held) -> str:
    """Returns the name of a task in the log."""
    return f"task {held.name.task_id} ({held.task.type}, attempt {held.task.attempt})"


def _shown(delay: object) -> object:
    return f"{delay:g} s" if isinstance(delay, (int, float)) else delay


def log_end(held: Held, phase: Phase, err: BaseException | None) -> None:
    """Logs how a handler ended. phase is the claim's phase before that."""
    if err is None:
        log.debug("%s: succeeded", title(held))
    elif isinstance(err, (outcome.Snooze, outcome.Discard)):
        log.info("%s: %s: %s", title(held), type(err).__name__, err)
    elif phase is Phase.RUNNING and not isinstance(held.cause, outcome.Draining):
        if isinstance(err, outcome.RetryIn):  # as it was meant: without a stack, unless it has a cause
            log.warning("%s: failed, next attempt in %s: %s", title(held), _shown(err.delay), _ending.text(err), exc_info=err.__cause__ or (None if err.__suppress_context__ else err.__context__))
            return
        said = held.cause if isinstance(held.cause, outcome.TimedOut) and _is_stop(err) else err
        log.warning("%s: failed: %s", title(held), _ending.text(said), exc_info=err)
    else:
        log.info("%s: stopped: %s", title(held), held.cause or "its lease had ended")
