"""The exceptions of this package, one class for each error code of the API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable

import grpc

from pawl.v1 import task_pb2


class PawlError(Exception):
    """A call was refused by the broker or by this client. Each error code of the API has a subclass."""

    code = ""

    def __init__(
        self,
        message: str = "",
        *,
        code: str = "",
        reason: str = "",
        field: str = "",
        holder: str = "",
        state: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        if code:
            self.code = code
        self.message = message
        self.reason = reason
        """For StaleClaimError: expired, reclaimed, cancelled or completed. For UnavailableError: node_not_ready, or ""."""
        self.field = field
        """For InvalidArgumentError: the name of the field in the API."""
        self.holder = holder
        """For StaleClaimError with the reason reclaimed: the worker that holds the task now."""
        self.state = state
        """For WrongStateError: the state of the task."""
        self.retry_after = retry_after
        """Seconds after which a retry may succeed; 0 if unknown."""

    def __str__(self) -> str:
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.code}{reason}: {self.message}" if self.message else f"{self.code}{reason}"


class InvalidArgumentError(PawlError, ValueError):
    """A value is invalid. field names it."""

    code = "invalid_argument"


class UnauthenticatedError(PawlError):
    """The token is missing, unknown, expired or revoked."""

    code = "unauthenticated"


class PermissionDeniedError(PawlError):
    """The token does not allow this."""

    code = "permission_denied"


class NotFoundError(PawlError, LookupError):
    """There is no such task, group or schedule."""

    code = "not_found"


class ConflictError(PawlError):
    """The idempotency key or request id belongs to a task with another type or payload, or the unique key to another task."""

    code = "conflict"


class StaleClaimError(PawlError):
    """The claim is no longer valid; reason says why."""

    code = "stale_claim"


class WrongStateError(PawlError):
    """The task's state does not allow this; state has it."""

    code = "wrong_state"


class PayloadTooLargeError(PawlError):
    """The payload or result exceeds the broker's limit."""

    code = "payload_too_large"


class QueueFullError(PawlError):
    """The queue holds as many tasks as its settings allow."""

    code = "queue_full"


class RateLimitedError(PawlError):
    """The namespace exceeded its rate limit."""

    code = "rate_limited"


class UnavailableError(PawlError, ConnectionError):
    """There was no response, even after the client retried the call. The call may or may not have taken effect."""

    code = "unavailable"


@dataclass(frozen=True)
class Missing:
    """A shard or a node that did not answer in time."""

    node: str
    """Its name; "": it is a shard."""
    shard: int
    reason: str
    """What it did instead, such as: did not answer in time."""


class IncompleteError(UnavailableError):
    """Ends an iterator over a list, after all items that it has, if some of them may be missing."""

    def __init__(self, missing: Sequence[Missing]) -> None:
        first, more = missing[0], len(missing) - 1
        who = f"node {first.node}" if first.node else f"shard {first.shard}"
        super().__init__(f"the list is incomplete: {who} {first.reason}" + (f", and {more} more" if more else ""))
        self.missing = missing
        """The shards and nodes that did not answer in time."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.missing,)


class InternalError(PawlError):
    """The broker failed. Its log has the reason."""

    code = "internal"


class ClientClosedError(PawlError):
    """The client was closed."""

    code = "client_closed"


class BatchError(PawlError):
    """Some tasks of a batch were refused. results has a Ref or a PawlError for each task, in order."""

    def __init__(self, results: Sequence[Any]) -> None:
        bad = [(at, result) for at, result in enumerate(results) if isinstance(result, Exception)]
        at, first = bad[0]
        code = first.code if isinstance(first, PawlError) else "timeout"
        super().__init__(f"{len(bad)} of {len(results)} tasks were not enqueued; item {at}: {first}", code=code)
        self.results = list(results)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.results,)


class BatchTimeoutError(BatchError, TimeoutError):
    """The limit of within was up before all tasks of a batch were answered. results has a Ref or a PawlError for each that was, and a
    TimeoutError for each other one, which may have been enqueued."""


_BY_CODE: dict[str, Callable[..., PawlError]] = {
    c.code: c
    for c in (
        InvalidArgumentError,
        UnauthenticatedError,
        PermissionDeniedError,
        NotFoundError,
        ConflictError,
        StaleClaimError,
        WrongStateError,
        PayloadTooLargeError,
        QueueFullError,
        RateLimitedError,
        UnavailableError,
        InternalError,
    )
}

# For errors without details, which come from gRPC itself or from a proxy.
_BY_STATUS: dict[str, Callable[..., PawlError]] = {
    "INVALID_ARGUMENT": InvalidArgumentError,
    "OUT_OF_RANGE": InvalidArgumentError,
    "UNIMPLEMENTED": InvalidArgumentError,
    "UNAUTHENTICATED": UnauthenticatedError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": ConflictError,
    "FAILED_PRECONDITION": WrongStateError,
    "RESOURCE_EXHAUSTED": RateLimitedError,
    "UNAVAILABLE": UnavailableError,
    "CANCELLED": UnavailableError,  # by the other side: this client does not cancel
    "DEADLINE_EXCEEDED": UnavailableError,
    "ABORTED": UnavailableError,
}


def invalid(field: str, rule: str) -> InvalidArgumentError:
    """Returns the error for a value that this client checks itself."""
    return InvalidArgumentError(f"{field}: {rule}", field=field)


@contextlib.contextmanager
def inside(path: str) -> Iterator[None]:
    """Prefixes the field of an error with a path, as the broker does: delay of tasks[3] is tasks[3].delay."""
    try:
        yield
    except InvalidArgumentError as err:
        raise InvalidArgumentError(f"{path}.{err.message}", field=f"{path}.{err.field}") from err.__cause__


def of_proto(p: task_pb2.Error) -> PawlError:
    """Returns the exception for an error from the broker."""
    return _BY_CODE.get(p.code, PawlError)(
        p.message,
        code=p.code,
        reason=p.reason,
        field=p.field,
        holder=p.holder,
        state=task_pb2.State.Name(p.state)[len("STATE_") :].lower() if p.state else "",
        retry_after=p.retry_after.seconds + p.retry_after.nanos / 1e9,
    )


_DETAILS = "grpc-status-details-bin"


def of_call(err: grpc.RpcError) -> PawlError:
    """Returns the exception for a failed call, from the details of its status if it has any."""
    for key, value in err.trailing_metadata() or ():
        if key == _DETAILS:
            details = _error_in_status(value)
            if details is not None:
                return of_proto(details)
    return _BY_STATUS.get(err.code().name, InternalError)(err.details() or "")


def _error_in_status(data: bytes) -> task_pb2.Error | None:
    """Finds the pawl.v1.Error in a google.rpc.Status. The generated code of that message is in a separate package, which this
    package would need for just one field, a list of Any."""
    try:
        for number, value in _length_delimited(data):
            if number != 3:
                continue
            any_message = dict(_length_delimited(value))
            if any_message.get(1, b"").endswith(b"/pawl.v1.Error"):
                out: task_pb2.Error = task_pb2.Error.FromString(any_message.get(2, b""))
                return out
    except (IndexError, ValueError):
        pass  # a proxy may send anything: the gRPC code remains
    return None


def _length_delimited(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the numbers and bytes of a message's length-delimited fields, and skips its varints."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        value, at = _varint(data, at)
        if tag & 7 == 0:
            continue
        if tag & 7 != 2:
            raise ValueError(f"wire type {tag & 7}")
        yield tag >> 3, data[at : at + value]
        at += value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
