"""The options of a task, and the request made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypedDict, Union, cast

from pawl import _convert, _hints, errors
from pawl._convert import Seconds
from pawl._data import PRIORITY_WORDS, STATE_WORDS
from pawl._data import Retry as Retry
from pawl._limits import MAX_MESSAGE
from pawl.v1 import task_pb2

_ON_CONFLICT = _convert.Words(task_pb2.OnConflict, "ON_CONFLICT_")

_MAX_PAYLOAD = MAX_MESSAGE - (1 << 20)  # what fits in one message; the broker's own limit is lower


@dataclass(frozen=True)
class Unique:
    """Limits a queue to one task per key at a time. Without a key, type and payload are the key; it must not be empty."""

    key: str | None = None
    states: Sequence[str] = ()
    """The states in which a task holds its key; by default all but the end states."""
    on_conflict: str = "keep"
    """keep: returns the task that holds the key. replace, keep_last: the new task replaces a waiting one. reject: raises ConflictError."""


class Options(TypedDict, total=False):
    """The options of a task. Durations are seconds, timedeltas or texts such as "90s". For options that are left out, the settings of
    the queue apply."""

    queue: str
    """Default: "default". A queue is created by its first task."""
    priority: str
    """high, normal or low."""
    delay: Seconds
    """When the task is due, counted from now by the broker's clock. Replaces run_at."""
    run_at: datetime
    """When the task is due; needs a time zone. Replaces delay."""
    idempotency_key: str
    """Enqueueing again with the same key in the same queue returns the first task."""
    idempotency_ttl: Seconds
    """How long the idempotency key is valid; default 24 h."""
    request_id: str
    """A UUID that identifies this request. The client generates one per call; set your own to retry a call that failed."""
    max_attempts: int
    """How often the task may fail before it is a dead letter."""
    retry: Retry
    """How long the task waits after a failure."""
    timeout: Seconds
    """The time limit of one run."""
    expires_in: Seconds
    """The task is discarded unless it starts within this time."""
    retention: Seconds
    """How long the task is kept once it has ended."""
    key: str
    """Groups tasks for fairness and limits: a tenant, an account."""
    cost: int
    """How many rate-limit tokens the task takes when it starts, 1 to 1,000."""
    tags: Sequence[str]
    """Labels for finding the task. Those of a call are added to those of the task's decorator."""
    headers: Mapping[str, str]
    """Metadata that travels with the task, such as a correlation id. Headers of a call are added to those of the task's
    decorator."""
    group_id: str
    """Makes the task a member of a group that is not complete, for example with current().group_id of the handler's own group."""
    unique: Union[Unique, str]
    """Limits the queue to one task with this key at a time."""


KNOWN = frozenset(Options.__annotations__)


def merge(base: Options, over: Options) -> Options:
    """Returns base with the options of over, which take precedence."""
    for name in over:
        if name not in KNOWN:
            hint = f": {_hints.OPTIONS[name]}" if name in _hints.OPTIONS else ""
            raise TypeError(f"{name!r} is not an option of a task{hint}; it takes {', '.join(sorted(KNOWN))}")
    if "delay" in over and "run_at" in over:
        raise errors.invalid("run_at", "cannot be combined with delay")
    out = base.copy()
    out.update(over)
    if "delay" in over:
        out.pop("run_at", None)
    if "run_at" in over:
        out.pop("delay", None)
    if "tags" in over:
        out["tags"] = [*base.get("tags", ()), *_convert.strings("tags", over["tags"])]
    if "headers" in over:
        if not isinstance(over["headers"], Mapping):
            raise errors.invalid("headers", f"{over['headers']!r} is not a mapping of strings")
        out["headers"] = {**base.get("headers", {}), **over["headers"]}
    return out


def check(options: Options) -> None:
    """Refuses values that no task could be enqueued with."""
    spec("t", b"", "", options)


def spec(type: str, payload: bytes, content_type: str, options: Options) -> task_pb2.TaskSpec:
    """Returns the request for a task."""
    if not type:
        raise errors.invalid("type", "is empty")
    if len(payload) > _MAX_PAYLOAD:
        message = f"payload of type {type!r}: {len(payload)} bytes exceed the message limit of {MAX_MESSAGE}"
        raise errors.PayloadTooLargeError(message, field="payload")
    out = task_pb2.TaskSpec(payload=payload)
    _convert.set_field(out, "type", type)
    _convert.set_field(out, "content_type", content_type)
    for name in ("queue", "idempotency_key", "max_attempts", "key", "cost", "request_id", "group_id"):
        if name in options:
            _convert.set_field(out, name, options[name])  # type: ignore[literal-required]
            _refuse_empty(out, name)
    for name in ("delay", "idempotency_ttl", "timeout", "expires_in", "retention"):
        if name in options:
            getattr(out, name).CopyFrom(_convert.duration(name, options[name]))  # type: ignore[literal-required]
    if "run_at" in options:
        out.run_at.CopyFrom(_convert.timestamp("run_at", options["run_at"]))
    if "priority" in options:
        out.priority = PRIORITY_WORDS.number("priority", options["priority"])
    if "retry" in options:
        out.retry.CopyFrom(_retry(options["retry"]))
    if "unique" in options:
        out.unique.CopyFrom(_unique(options["unique"]))
    _set_many(out, options)
    return out


def _refuse_empty(spec: task_pb2.TaskSpec, name: str) -> None:
    """Refuses what the broker would take for an option that is left out."""
    if getattr(spec, name) == "":
        raise errors.invalid(name, "is empty: leave the option out")
    if name in ("max_attempts", "cost") and getattr(spec, name) == 0:
        raise errors.invalid(name, "0 is less than 1")


def options_of(p: task_pb2.TaskSpec) -> Options:
    """Returns the options of a task's spec, without those that it leaves out."""
    out: dict[str, Any] = {}
    for name in ("queue", "idempotency_key", "max_attempts", "key", "cost"):
        if getattr(p, name):
            out[name] = getattr(p, name)
    for name in ("delay", "idempotency_ttl", "timeout", "expires_in", "retention"):
        if p.HasField(name):  # type: ignore[arg-type]
            out[name] = _convert.seconds_of(getattr(p, name))
    if p.HasField("run_at"):
        out["run_at"] = _convert.time_of(p.run_at)
    if p.priority:
        out["priority"] = PRIORITY_WORDS.word(p.priority)
    if p.HasField("retry"):
        out["retry"] = Retry(_convert.seconds_of(p.retry.initial), p.retry.factor, _convert.seconds_of(p.retry.max), p.retry.jitter)
    if p.HasField("unique"):
        states = tuple(STATE_WORDS.word(state) for state in p.unique.states)
        out["unique"] = Unique(p.unique.key or None, states, _ON_CONFLICT.word(p.unique.on_conflict) or "keep")
    if p.tags:
        out["tags"] = tuple(p.tags)
    if p.headers:
        out["headers"] = dict(p.headers)
    return cast(Options, out)


def _set_many(out: task_pb2.TaskSpec, options: Options) -> None:
    try:
        out.tags.extend(_convert.strings("tags", options.get("tags", ())))
    except (TypeError, ValueError) as err:
        raise errors.invalid("tags", str(err)) from None
    try:
        out.headers.update(options.get("headers", {}))
    except (TypeError, ValueError, AttributeError) as err:
        raise errors.invalid("headers", str(err)) from None


def _retry(policy: Retry) -> task_pb2.RetryPolicy:
    if not isinstance(policy, Retry):
        raise errors.invalid("retry", f"{policy!r} is not a pawl.Retry")
    out = task_pb2.RetryPolicy()
    if policy.initial is not None:
        out.initial.CopyFrom(_convert.duration("retry.initial", policy.initial))
    if policy.max is not None:
        out.max.CopyFrom(_convert.duration("retry.max", policy.max))
    if policy.factor is not None:
        _convert.set_field(out, "factor", policy.factor)
    if policy.jitter is not None:
        _convert.set_field(out, "jitter", policy.jitter)
    return out


def _unique(unique: Unique | str) -> task_pb2.Unique:
    if isinstance(unique, str):
        if not unique:
            raise errors.invalid("unique", "is empty: pawl.Unique() makes type and payload the key")
        unique = Unique(unique)
    if not isinstance(unique, Unique):
        raise errors.invalid("unique", f"{unique!r} is neither a string nor a pawl.Unique")
    out = task_pb2.Unique(on_conflict=_ON_CONFLICT.number("unique.on_conflict", unique.on_conflict))
    if unique.key is not None:
        _convert.set_field(out, "key", unique.key)
    out.states.extend(STATE_WORDS.number("unique.states", state) for state in _convert.strings("unique.states", unique.states))
    return out
