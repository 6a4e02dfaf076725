"""The Python SDK of Pawl, a distributed task queue.

    app = pawl.App("127.0.0.1:7295")

    @app.task("mail.welcome", queue="mail")
    def welcome(to: str) -> str: ...

    welcome.enqueue(to="a@example.com").result()
"""

from pawl._connection import TLS
from pawl.app import App, AsyncTask, Call, Ref, Task
from pawl.errors import (
    BatchError,
    ClientClosedError,
    ConflictError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PawlError,
    PayloadTooLargeError,
    PermissionDeniedError,
    QueueFullError,
    RateLimitedError,
    StaleClaimError,
    TaskEndedError,
    UnauthenticatedError,
    UnavailableError,
    WrongStateError,
)
from pawl.models import Attempt, Failure, Progress, TaskInfo
from pawl.options import Options, Retry, Unique

__all__ = [
    "TLS",
    "App",
    "AsyncTask",
    "Attempt",
    "BatchError",
    "Call",
    "ClientClosedError",
    "ConflictError",
    "Failure",
    "InternalError",
    "InvalidArgumentError",
    "NotFoundError",
    "Options",
    "PawlError",
    "PayloadTooLargeError",
    "PermissionDeniedError",
    "Progress",
    "QueueFullError",
    "RateLimitedError",
    "Ref",
    "Retry",
    "StaleClaimError",
    "Task",
    "TaskEndedError",
    "TaskInfo",
    "UnauthenticatedError",
    "UnavailableError",
    "Unique",
    "WrongStateError",
]
