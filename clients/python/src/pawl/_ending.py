"""How a claim ends: turns what a handler returned or raised into a request to the broker."""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import dataclass
from typing import Union

from pawl import _convert, errors
from pawl._limits import MAX_ERROR_TEXT
from pawl.outcome import DeadLetter, Discard, Outcome, Poison, RetryIn, Snooze
from pawl.v1 import task_pb2, worker_pb2

MAX_BYTES = 4 << 20  # keeps a frame well below the message limit: each result may have 1 MiB
NOT_OURS = 30.0  # seconds for which a task without a handler here is snoozed

Request = Union[worker_pb2.AckRequest, worker_pb2.FailRequest, worker_pb2.ReleaseRequest]

_OUTCOMES = {
    DeadLetter: worker_pb2.FAIL_OUTCOME_DEAD,
    Discard: worker_pb2.FAIL_OUTCOME_DISCARD,
    Poison: worker_pb2.FAIL_OUTCOME_POISON,
}


@dataclass(frozen=True)
class Result:
    """The encoded result of a handler."""

    data: bytes = b""
    content_type: str = ""


@dataclass(frozen=True)
class Name:
    """Identifies a claim to the broker."""

    task_id: str
    token: str


def ack(name: Name, result: Result) -> Request:
    """Ends the claim of a task that succeeded."""
    return worker_pb2.AckRequest(task_id=name.task_id, claim_token=name.token, result=result.data, content_type=result.content_type)


def release(name: Name, delay: float = 0.0) -> Request:
    """Hands a task back without using an attempt."""
    out = worker_pb2.ReleaseRequest(task_id=name.task_id, claim_token=name.token)
    if delay:
        out.delay.CopyFrom(_convert.duration("delay", delay))
    return out


def of_error(name: Name, err: BaseException) -> Request:
    """Ends the claim of a task whose handler raised err."""
    try:
        if isinstance(err, Snooze):
            out = worker_pb2.ReleaseRequest(task_id=name.task_id, claim_token=name.token)
            out.delay.CopyFrom(_convert.duration("delay", err.delay))
            return out
        if isinstance(err, RetryIn):
            failed = fail(name, err)
            failed.retry_in.CopyFrom(_convert.duration("retry_in", err.delay))
            return failed
    except errors.InvalidArgumentError as bad:
        return fail(name, bad)
    return fail(name, err)


def fail(name: Name, err: BaseException, type: str = "") -> worker_pb2.FailRequest:
    """Fails an attempt. err may be an outcome that ends the task."""
    outcome = next((o for cls, o in _OUTCOMES.items() if isinstance(err, cls)), worker_pb2.FAIL_OUTCOME_RETRY)
    return worker_pb2.FailRequest(task_id=name.task_id, claim_token=name.token, outcome=outcome, error=_task_error(err, type))


def fallback(name: Name, ending: Request, err: errors.PawlError) -> Request:
    """Replaces an ending that the broker can't accept. A result that is too large makes the task a dead letter, because another
    run would only return it again; a delay out of range becomes a plain failure."""
    return fail(name, DeadLetter(str(err)) if isinstance(ending, worker_pb2.AckRequest) else err)


def verb(ending: Request | None) -> str:
    """Returns the name of an ending's call."""
    if isinstance(ending, worker_pb2.AckRequest):
        return "ack"
    return "fail" if isinstance(ending, worker_pb2.FailRequest) else "release"


def add(ending: Request, frame: worker_pb2.SettleRequest) -> None:
    """Adds an ending to a frame."""
    if isinstance(ending, worker_pb2.AckRequest):
        frame.acks.append(ending)
    elif isinstance(ending, worker_pb2.FailRequest):
        frame.fails.append(ending)
    else:
        frame.releases.append(ending)


def blame(err: Exception, where: str) -> None:
    """Notes in which step an exception was raised, for the attempt log. The handler gets the exception itself."""
    with contextlib.suppress(AttributeError):  # some classes don't accept attributes
        err._pawl_where = f"{where}: {_where(err)}"  # type: ignore[attr-defined]


def _where(err: BaseException) -> str:
    return str(getattr(err, "_pawl_where", ""))


def text(err: BaseException) -> str:
    """Returns what an exception says. A KeyError says only the key, and a TimeoutError nothing: their type says more."""
    said = _said(err)
    words = str(err) or str(said) or _type_name(said)
    if isinstance(said, KeyError) and words == str(said):
        words = f"{_type_name(said)}: {words}"
    return (_where(err) or _where(said)) + words


def _said(err: BaseException) -> BaseException:
    """Returns the exception behind an outcome: its cause, its argument, or the one that was being handled."""
    if isinstance(err, Outcome):
        for behind in (err.__cause__, *err.args, None if err.__suppress_context__ else err.__context__):
            if isinstance(behind, BaseException):
                return behind
    return err


def _task_error(err: BaseException, type: str) -> task_pb2.TaskError:
    said = _said(err)
    stack = "".join(traceback.format_exception(err)) if err.__traceback__ is not None else ""
    tail = stack.encode("utf-8", "replace")[-MAX_ERROR_TEXT:].decode("utf-8", "ignore")  # the innermost calls come last
    return task_pb2.TaskError(
        message=_convert.cut(text(err), MAX_ERROR_TEXT), type=_convert.cut(type or _type_name(said), 256), stack=tail
    )


def _type_name(err: BaseException) -> str:
    cls = type(err)
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
