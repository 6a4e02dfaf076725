"""The results of calls. All of them are read-only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pawl import _convert, errors
from pawl.v1 import chain_pb2, task_pb2

_STATES = _convert.Words(task_pb2.State, "STATE_")
_STATUSES = _convert.Words(task_pb2.Status, "STATUS_")
_OUTCOMES = _convert.Words(task_pb2.Outcome, "OUTCOME_")
_FOLLOWER_STATES = _convert.Words(chain_pb2.FollowerState, "FOLLOWER_STATE_")
_PRIORITIES = _convert.Words(task_pb2.Priority, "PRIORITY_")

ENDED = frozenset({"succeeded", "discarded", "dead", "poisoned", "cancelled"})
"""The states in which a task has ended."""


@dataclass(frozen=True)
class Failure:
    """The error that a handler reported."""

    message: str
    type: str
    stack: str


@dataclass(frozen=True)
class Progress:
    """The progress that a handler reported."""

    percent: float
    message: str


@dataclass(frozen=True)
class Attempt:
    """One claim of a task, and how it ended."""

    attempt: int
    fence: int
    worker: str
    started_at: datetime | None
    ended_at: datetime | None
    """None while running."""
    outcome: str
    """succeeded, failed, dead, discarded, poisoned, lease_lost, timed_out, released, snoozed, cancelled or leaderless; "" while running."""
    error: Failure | None
    waited: float
    """Seconds from ready to claimed."""
    next_run_at: datetime | None


@dataclass(frozen=True)
class Parent:
    """The task or group that a follow-up task follows."""

    task_id: str
    """Either this or group_id."""
    group_id: str
    result: bytes = field(repr=False)
    """The task's result, or the group's counts as JSON."""
    content_type: str
    result_omitted: bool
    """The result was too large to be included: read it from the task."""


@dataclass(frozen=True)
class Follower:
    """A follow-up task of a task or group, and its state."""

    type: str
    queue: str
    state: str
    """waiting, sent, created, duplicate, refused or dropped."""
    task_id: str
    """Set once it is created; for a duplicate, the other task."""
    reason: str
    """The error code of the refusal, or the state in which its parent ended."""


@dataclass(frozen=True)
class TaskInfo:
    """What the broker knows about a task. Times are in UTC, and None if they have not been reached or never will be."""

    id: str
    type: str
    queue: str
    status: str
    """queued, processing, completed, failed or cancelled."""
    state: str
    """scheduled, ready, claimed, retrying, succeeded, discarded, dead, poisoned or cancelled."""
    reason: str
    """Why the task is in its end state."""
    priority: str
    payload: bytes = field(repr=False)
    content_type: str
    result: bytes = field(repr=False)
    result_content_type: str
    attempts: int
    max_attempts: int
    failures: int
    crashes: int
    releases: int
    snoozes: int
    fence: int
    attempt_log: Sequence[Attempt] = field(repr=False)
    progress: Progress
    checkpoint: bytes = field(repr=False)
    """The handler's checkpoint, with the results of its steps."""
    worker: str
    created_at: datetime | None
    run_at: datetime | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    ended_at: datetime | None
    expires_at: datetime | None
    kept_until: datetime | None
    idempotency_key: str
    key: str
    tags: Sequence[str]
    headers: Mapping[str, str]
    cost: int
    waits_for: str
    """The id of the running task that holds its unique key."""
    group_id: str
    parent: Parent | None
    """The task or group that it follows."""
    then: Sequence[Follower]
    """Its follow-up tasks."""

    @property
    def ended(self) -> bool:
        """Reports whether the task is in one of its end states."""
        return self.state in ENDED

    @property
    def last_failure(self) -> Failure | None:
        """The error of the last attempt that failed with one."""
        return next((a.error for a in reversed(self.attempt_log) if a.error is not None), None)

    def decode_payload(self) -> Any:
        """Decodes the payload from JSON; ValueError if it is something else."""
        return _convert.decode_as(f"the payload of task {self.id}", self.payload, self.content_type)

    def decode_result(self) -> Any:
        """Decodes the result from JSON. Returns None if there is none; ValueError if it is something else."""
        return _convert.decode_as(f"the result of task {self.id}", self.result, self.result_content_type)


class TaskEndedError(errors.PawlError):
    """The task ended without success: it is dead, poisoned, discarded or cancelled. task has the details."""

    code = "task_ended"

    def __init__(self, task: TaskInfo) -> None:
        failure = task.last_failure
        reason = f" ({task.reason})" if task.reason else ""
        why = f": {failure.message}" if failure and failure.message else ""
        super().__init__(f"task {task.id} is {task.state}{reason}{why}", state=task.state)
        self.task = task

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.task,)


def task_info(p: task_pb2.Task) -> TaskInfo:
    """Converts a task from the API."""
    return TaskInfo(
        id=p.task_id,
        type=p.type,
        queue=p.queue,
        status=_STATUSES.word(p.status),
        state=_STATES.word(p.state),
        reason=p.reason,
        priority=_PRIORITIES.word(p.priority),
        payload=p.payload,
        content_type=p.content_type,
        result=p.result,
        result_content_type=p.result_content_type,
        attempts=p.attempts,
        max_attempts=p.max_attempts,
        failures=p.failures,
        crashes=p.crashes,
        releases=p.releases,
        snoozes=p.snoozes,
        fence=p.fence,
        attempt_log=tuple(_attempt(a) for a in p.attempt_log),
        progress=Progress(p.progress.percent, p.progress.message),
        checkpoint=p.checkpoint,
        worker=p.worker,
        created_at=_convert.time_of(p.created_at),
        run_at=_convert.time_of(p.run_at),
        claimed_at=_convert.time_of(p.claimed_at),
        lease_expires_at=_convert.time_of(p.lease_expires_at),
        ended_at=_convert.time_of(p.ended_at),
        expires_at=_convert.time_of(p.expires_at),
        kept_until=_convert.time_of(p.kept_until),
        idempotency_key=p.idempotency_key,
        key=p.key,
        tags=tuple(p.tags),
        headers=dict(p.headers),
        cost=p.cost,
        waits_for=p.waits_for,
        group_id=p.group_id,
        parent=parent(p.parent) if p.HasField("parent") else None,
        then=tuple(follower(f) for f in p.then),
    )


def parent(p: chain_pb2.Parent) -> Parent:
    """Converts the parent of a task."""
    return Parent(p.task_id, p.group_id, p.result, p.content_type, p.result_omitted)


def follower(p: chain_pb2.Follower) -> Follower:
    """Converts a follow-up task."""
    return Follower(p.type, p.queue, _FOLLOWER_STATES.word(p.state), p.task_id, p.reason)


def _attempt(p: task_pb2.Attempt) -> Attempt:
    return Attempt(
        attempt=p.attempt,
        fence=p.fence,
        worker=p.worker,
        started_at=_convert.time_of(p.started_at),
        ended_at=_convert.time_of(p.ended_at),
        outcome=_OUTCOMES.word(p.outcome),
        error=Failure(p.error.message, p.error.type, p.error.stack) if p.HasField("error") else None,
        waited=_convert.seconds_of(p.waited),
        next_run_at=_convert.time_of(p.next_run_at),
    )


def state_word(state: int) -> str:
    """Returns the word of a state."""
    return _STATES.word(state)


def priority_word(priority: int) -> str:
    """Returns the word of a priority."""
    return _PRIORITIES.word(priority)
