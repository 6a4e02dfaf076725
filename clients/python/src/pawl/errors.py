"""The exceptions of this package, one class for each error code of the API."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from pawl._codes import *  # the class of each code, BY_CODE and BY_STATUS
from pawl._error import PawlError as PawlError
from pawl.v1 import task_pb2


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
    return BY_CODE.get(p.code, PawlError)(
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
    return BY_STATUS.get(err.code().name, InternalError)(err.details() or "")


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
