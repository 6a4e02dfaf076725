"""Saves checkpoints, and runs what should happen only once: steps of a task, and effects shared by several tasks."""

from __future__ import annotations

import itertools
import json
import random
import time
from typing import TYPE_CHECKING, Any, Callable

from pawl import _convert, _ending, _rpc, errors
from pawl._claimed import Claimed
from pawl._convert import Seconds
from pawl._kept import Kept
from pawl._limits import FIRST_REST, MAX_HOLD, MAX_NAME, MAX_ONCE_RESULT, MAX_REST
from pawl.outcome import DeadLetter, Interrupted, OnceHeld, Snooze
from pawl.v1 import once_pb2, worker_pb2

if TYPE_CHECKING:
    from google.protobuf.message import Message

_MIN_TTL = 1.0
_MAX_PATIENCE = 10.0  # how long to wait for a once key, but no longer than half a lease
_MIN_PUT_OFF, _MAX_PUT_OFF = 1.0, 30.0  # for how long a task is snoozed that has waited in vain
# Time for recording what has happened, even if the handler is told to stop meanwhile: what is not recorded will be done again.
_RECORD_TIME = 10.0
_BUSY_STEP = 0.02


def save(claim: Claimed, change: Callable[[Kept], Kept], deadline: float | None = None) -> _rpc.Op[None]:
    """Saves a new version of the checkpoint, one at a time, and returns when the broker has it on stable storage."""
    yield from _enter(claim, "save")
    try:
        kept = change(claim._state.kept)
        yield from _extend(claim, kept.encode(), deadline)
        claim._state.kept = kept
    finally:
        _leave(claim, "save")


def step(claim: Claimed, name: str, fn: Callable[[], Any]) -> _rpc.Op[Any]:
    """Runs fn unless its result is already stored, and stores it."""
    return (yield from _blamed(_step(claim, name, fn), f"step {_quoted(name)} of task {_quoted(claim.id)}"))


def _step(claim: Claimed, name: str, fn: Callable[[], Any]) -> _rpc.Op[Any]:
    _check_name("name", name)
    yield from _enter(claim, f"step/{name}")
    try:
        recorded = claim._state.kept.steps.get(name)
        if recorded is not None:
            return _convert.decode(recorded)
        claim._state.kept.check_room()
        claim.check()
        result = _encode((yield _rpc.Do(fn)))
        yield _rpc.Finish(_record_step(claim, name, result))
        return _convert.decode(result)
    finally:
        _leave(claim, f"step/{name}")


def _record_step(claim: Claimed, name: str, result: bytes) -> _rpc.Op[None]:
    try:
        yield from save(claim, lambda kept: kept.with_step(name, result), time.monotonic() + _RECORD_TIME)
    except errors.InvalidArgumentError as err:
        raise _unrecorded(err) from err
    except (errors.UnavailableError, TimeoutError) as err:
        raise errors.UnavailableError(f"step {name!r} has run, but its completion could not be recorded: {err}") from err


def once(claim: Claimed, key: str, fn: Callable[[], Any], ttl: Seconds | None) -> _rpc.Op[Any]:
    """Runs fn unless its effect is already recorded under the key, and records it."""
    return (yield from _blamed(_once(claim, key, fn, ttl), f"once {_quoted(key)} of task {_quoted(claim.id)}"))


def _once(claim: Claimed, key: str, fn: Callable[[], Any], ttl: Seconds | None) -> _rpc.Op[Any]:
    _check_name("key", key)
    if ttl is not None and not _MIN_TTL <= _convert.seconds("ttl", ttl) <= MAX_HOLD:
        raise errors.invalid("ttl", f"{ttl} is not between 1 s and 365 days")
    yield from _enter(claim, f"once/{key}")
    try:
        if key in claim._state.unclear:
            raise errors.UnavailableError(f"once {key!r}: it is unknown whether this run still holds the key")
        answer = yield from _begin(claim, key)
        if answer.state == once_pb2.ONCE_STATE_DONE:
            return _convert.decode(answer.result)
        try:
            result = _once_result((yield _rpc.Do(fn)))
        except Exception:
            yield _rpc.Finish(_abandon(claim, key))
            raise
        yield _rpc.Finish(_record_once(claim, key, result, ttl))
        return _convert.decode(result)
    finally:
        _leave(claim, f"once/{key}")


def _blamed(op: _rpc.Op[Any], where: str) -> _rpc.Op[Any]:
    """Notes in an exception where it was raised."""
    try:
        return (yield from op)
    except (Interrupted, Snooze):
        raise  # not a failure
    except Exception as err:
        _ending.blame(err, where)
        raise


def _quoted(name: object) -> str:
    return json.dumps(str(name)[:64], ensure_ascii=False)


def _begin(claim: Claimed, key: str) -> _rpc.Op[once_pb2.BeginOnceResponse]:
    """Asks for the key until it is free or done, or until the wait is over."""
    patience = time.monotonic() + min(_MAX_PATIENCE, claim.lease / 2)
    request = once_pb2.BeginOnceRequest(task_id=claim.id, claim_token=claim.token, key=key)
    for attempt in itertools.count():
        claim.check()
        answer: once_pb2.BeginOnceResponse = yield from _call(claim, _rpc.BEGIN_ONCE, request)
        if answer.state != once_pb2.ONCE_STATE_HELD:
            return answer
        if time.monotonic() >= patience:
            put_off = min(max(claim.lease / 2, _MIN_PUT_OFF), _MAX_PUT_OFF)
            holder = answer.holder
            raise OnceHeld(random.uniform(put_off / 2, put_off), f"once {key!r} is held by task {holder.task_id}, worker {holder.worker!r}")
        rest = _rpc.backoff(attempt, FIRST_REST, MAX_REST)
        yield _rpc.Pause(min(rest, _convert.seconds_of(answer.retry_after) or rest))
    raise AssertionError("unreachable")


def _record_once(claim: Claimed, key: str, result: bytes, ttl: Seconds | None) -> _rpc.Op[None]:
    request = once_pb2.FinishOnceRequest(task_id=claim.id, claim_token=claim.token, key=key, result=result)
    if ttl is not None:
        request.ttl.CopyFrom(_convert.duration("ttl", ttl))
    try:
        yield from _call(claim, _rpc.FINISH_ONCE, request, time.monotonic() + _RECORD_TIME)
    except (errors.UnavailableError, TimeoutError) as err:
        raise errors.UnavailableError(f"the function of once {key!r} has run, but its completion could not be recorded: {err}") from err


def _abandon(claim: Claimed, key: str) -> _rpc.Op[None]:
    """Lets others try. It is not retried, because a late retry could release a key that the handler has acquired again."""
    request = once_pb2.AbandonOnceRequest(task_id=claim.id, claim_token=claim.token, key=key)
    try:
        yield from claim._holder.caller.once(_rpc.ABANDON_ONCE, request, time.monotonic() + _RECORD_TIME)
    except errors.StaleClaimError:
        pass  # the end of the claim has released it
    except errors.PawlError:
        claim._state.unclear.add(key)


def _extend(claim: Claimed, checkpoint: bytes, deadline: float | None) -> _rpc.Op[None]:
    encryption = claim._holder.caller.encryption
    if encryption is not None:
        checkpoint = encryption.seal_checkpoint(claim.type, checkpoint)
    sent = time.monotonic()
    request = worker_pb2.ExtendRequest(task_id=claim.id, claim_token=claim.token, checkpoint=checkpoint)
    request.lease.CopyFrom(_convert.duration("lease", claim.lease))
    yield from _call(claim, _rpc.EXTEND, request, deadline)
    claim._holder.extended(sent)


def _call(claim: Claimed, method: _rpc.Method[_rpc.Resp], request: Message, deadline: float | None = None) -> _rpc.Op[_rpc.Resp]:
    """Makes a call about the claim. If the claim is lost, it raises the reason why the handler should stop."""
    try:
        return (yield from claim._holder.caller.call(method, request, deadline))
    except (errors.StaleClaimError, errors.NotFoundError) as err:
        claim._holder.lost(err.reason)
        cause: Interrupted | None = claim.interrupted
        raise cause or err from err


def _enter(claim: Claimed, name: str) -> _rpc.Op[None]:
    """Waits until no other thread or coroutine of the handler uses a name, and takes it."""
    state = claim._state
    while True:
        with state.lock:
            if name not in state.busy:
                state.busy.add(name)
                return
        yield _rpc.Pause(_BUSY_STEP)


def _leave(claim: Claimed, name: str) -> None:
    with claim._state.lock:
        claim._state.busy.discard(name)


def _check_name(field: str, name: str) -> None:
    try:
        size = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        size = 0
    if not 1 <= size <= MAX_NAME:
        raise errors.invalid(field, f"{name!r:.64} is not 1 to {MAX_NAME} bytes of UTF-8")


def _encode(result: Any) -> bytes:
    try:
        return _convert.encode("result", result)
    except errors.InvalidArgumentError as err:
        raise _unrecorded(err) from err


def _once_result(result: Any) -> bytes:
    if result is None:
        return b""
    data = _encode(result)
    if len(data) > MAX_ONCE_RESULT:
        raise _unrecorded(errors.invalid("result", f"{len(data)} bytes, at most {MAX_ONCE_RESULT}"))
    return data


def _unrecorded(err: errors.PawlError) -> DeadLetter:
    """Returns the outcome for an effect that no attempt can record."""
    return DeadLetter(f"the function has run, but its result cannot be recorded: {err}")
