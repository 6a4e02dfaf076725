"""The Python SDK of Pawl, a distributed task queue.

    app = pawl.App("127.0.0.1:7295")

    @app.task("mail.welcome", queue="mail")
    def welcome(to: str) -> str: ...

    welcome.enqueue(to="a@example.com").result()
"""

from typing import TYPE_CHECKING

from pawl import _hints
from pawl._connection import TLS
from pawl.app import App, AsyncTask, Task
from pawl.call import Call
from pawl.claim import Claim, current
from pawl.errors import (
    BatchError,
    BatchTimeoutError,
    ClientClosedError,
    ConflictError,
    IncompleteError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PawlError,
    PayloadTooLargeError,
    PermissionDeniedError,
    QueueFullError,
    RateLimitedError,
    StaleClaimError,
    UnauthenticatedError,
    UnavailableError,
    WrongStateError,
)
from pawl.group import Group, GroupCounts, GroupInfo, GroupMember
from pawl.models import Attempt, Failure, Follower, Parent, Progress, TaskEndedError, TaskInfo
from pawl.options import Options, Retry, Unique
from pawl.outcome import Cancelled, DeadLetter, Discard, Draining, Interrupted, LeaseLost, OnceHeld, Outcome, Poison, RetryIn, Snooze, TimedOut
from pawl.ref import Ref
from pawl.schedule import Schedule, ScheduleChange, ScheduledTask, SchedulePause, Schedules, Tick
from pawl.worker import Worker

__all__ = [
    "App",
    "AsyncTask",
    "Attempt",
    "BatchError",
    "BatchTimeoutError",
    "Call",
    "Cancelled",
    "Claim",
    "ClientClosedError",
    "ConflictError",
    "DeadLetter",
    "Discard",
    "Draining",
    "Failure",
    "Follower",
    "Group",
    "GroupCounts",
    "GroupInfo",
    "GroupMember",
    "IncompleteError",
    "InternalError",
    "Interrupted",
    "InvalidArgumentError",
    "LeaseLost",
    "NotFoundError",
    "OnceHeld",
    "Options",
    "Outcome",
    "Parent",
    "PawlError",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "Poison",
    "Progress",
    "QueueFullError",
    "RateLimitedError",
    "Ref",
    "Retry",
    "RetryIn",
    "Schedule",
    "ScheduleChange",
    "SchedulePause",
    "ScheduledTask",
    "Schedules",
    "Snooze",
    "StaleClaimError",
    "TLS",
    "Task",
    "TaskEndedError",
    "TaskInfo",
    "Tick",
    "TimedOut",
    "UnauthenticatedError",
    "UnavailableError",
    "Unique",
    "Worker",
    "WrongStateError",
    "current",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        raise _hints.missing("pawl", _hints.MODULE, name)
