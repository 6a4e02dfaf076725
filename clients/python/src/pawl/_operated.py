"""What operators' calls take and answer with. Names and units are the API's; durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pawl._convert import Seconds
from pawl.options import Retry


@dataclass(frozen=True)
class PriorityWeights:
    """Shares claims among the priorities that have tasks: each 1 to 1,000."""

    high: int
    normal: int
    low: int


@dataclass(frozen=True)
class Retention:
    """How long tasks that have ended are kept; by default 24 h, dead and poisoned ones 14 days."""

    succeeded: Seconds | None = None
    discarded: Seconds | None = None
    cancelled: Seconds | None = None
    dead: Seconds | None = None
    poisoned: Seconds | None = None


@dataclass(frozen=True)
class Rate:
    """A token bucket: limit tokens come in a period, and there can be burst of them, by default limit."""

    limit: int
    period: Seconds
    burst: int = 0


@dataclass(frozen=True)
class KeyRules:
    """The limits of a key, and its share against other keys."""

    max_running: int = 0
    rate: Rate | None = None
    weight: int = 0


@dataclass(frozen=True)
class Breaker:
    """When tasks of a type that fail too often are held back. What is left out is the broker's default."""

    off: bool = False
    failure_rate: int = 0
    """Percent."""
    window: Seconds = 0.0
    min_attempts: int = 0
    hold: Seconds = 0.0
    max_hold: Seconds = 0.0
    probes: int = 0


@dataclass(frozen=True)
class QueueSettings:
    """The rules of a queue. In answers each field has its effective value. What is left out of a put is the broker's default, and not
    what it was before: dataclasses.replace(queue.settings, max_attempts=3) changes one."""

    weights: PriorityWeights | None = None
    """Without them priorities are strict."""
    retry: Retry | None = None
    max_attempts: int = 0
    lease: Seconds = 0.0
    timeout: Seconds = 0.0
    """Of one run."""
    retention: Retention | None = None
    max_length: int = 0
    """Waiting tasks at most; 0: no limit."""
    max_running: int = 0
    """Tasks that run at once; 0: no limit."""
    rate: Rate | None = None
    per_key: KeyRules | None = None
    keys: Mapping[str, KeyRules] = field(default_factory=dict)
    """Of single keys, instead of per_key."""
    max_wait: Seconds = 0.0
    """A task that is ready for longer needs attention."""
    key_order: str = ""
    """none or strict. In answers "" is none."""
    breaker: Breaker | None = None
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    """Of single types, instead of breaker."""


@dataclass(frozen=True)
class Depth:
    """The tasks of a queue by state. held: of those that are ready, how many may not run now."""

    scheduled: int
    ready: int
    claimed: int
    retrying: int
    held: int
    dead: int
    poisoned: int


@dataclass(frozen=True)
class Latency:
    """How long something took. Quantiles are about right."""

    count: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float


@dataclass(frozen=True)
class Queue:
    """What the broker knows of a queue."""

    queue: str
    """Its name."""
    paused: bool
    paused_reason: str
    paused_by: str
    paused_at: datetime | None
    depth: Depth | None
    oldest_ready_age_seconds: float
    wait: Latency | None
    """From ready to claimed, in the last 5 minutes."""
    run: Latency | None
    """From claimed to the end of the run, in the last 5 minutes."""
    drain_seconds: float | None
    """Until no task is ready or claimed, at the present rates; None: they do not get less."""
    workers: int | None
    """Those that take its tasks."""
    breakers_open: int
    settings: QueueSettings
    version: int
    """Of the settings, for put(if_version=...)."""
    created_at: datetime | None


@dataclass(frozen=True)
class Filter:
    """Selects tasks. What is given must all match; nothing given is all tasks."""

    queue: str = ""
    states: Sequence[str] = ()
    type: str = ""
    tag: str = ""
    key: str = ""
    worker: str = ""
    error: str = ""
    """Part of the last error's message."""
    fingerprint: str = ""
    """Of a DeadGroup."""
    operation: str = ""
    """The id of the last operation that changed the task."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    q: str = ""
    """Part of the payload."""


@dataclass(frozen=True)
class DeadGroup:
    """The dead letters that have an error in common."""

    fingerprint: str
    type: str
    message: str
    """With numbers and ids replaced."""
    count: int
    first_at: datetime | None
    last_at: datetime | None
    sample_task_id: str
    queues: int
    queue: str
    """The one with the most of them."""


@dataclass(frozen=True)
class Replayed:
    """What a replay did. In a dry run replayed is 0."""

    matched: int
    replayed: int


@dataclass(frozen=True)
class Discarded:
    """What a discard did. In a dry run discarded is 0."""

    matched: int
    discarded: int


@dataclass(frozen=True)
class Operator:
    """Who did something."""

    actor: str
    address: str
    face: str
    reason: str


@dataclass(frozen=True)
class OperationSpec:
    """One thing to be done to many tasks, in the background: docs/operations.md has the rules."""

    action: str
    """replay, cancel, discard, move, set_priority or run_now."""
    filter: Filter
    to_queue: str = ""
    """Of move."""
    priority: str = ""
    """Of set_priority."""
    max: int = 0
    """Tasks at most; 0: all that match."""
    rate: float = 0.0
    """Tasks a second at most; 0: as fast as goes without holding up others."""
    canary: int = 0
    """It pauses by itself after so many; 0: it does not."""


@dataclass(frozen=True)
class FailedTask:
    """A task that an operation could not change."""

    task_id: str
    message: str


@dataclass(frozen=True)
class Operation:
    """What the broker knows of an operation."""

    operation_id: str
    spec: OperationSpec
    state: str
    """running, paused, done, aborted or failed."""
    author: Operator | None
    created_at: datetime | None
    paused_at: datetime | None
    ended_at: datetime | None
    why: str
    """Why it is paused, was aborted or has failed."""
    total: int
    matched: int
    done: int
    skipped: int
    failed: int
    errors: Sequence[FailedTask]
    waits_for: str


@dataclass(frozen=True)
class RunningTask:
    """A task that a worker holds."""

    task_id: str
    type: str
    queue: str
    attempt: int
    since: datetime | None
    lease_expires_at: datetime | None


@dataclass(frozen=True)
class Quiet:
    """An operator's word that a worker is to take no new tasks."""

    reason: str
    by: str
    at: datetime | None
    until: datetime | None


@dataclass(frozen=True)
class WorkerInfo:
    """What the broker knows of a worker."""

    worker_id: str
    worker: str
    """As it calls itself."""
    node: str
    connected: bool
    host: str
    pid: int
    version: str
    types: Sequence[str]
    slots: int
    running: int
    tasks: Sequence[RunningTask]
    connected_at: datetime | None
    seen_at: datetime | None
    draining: bool
    quiet: Quiet | None
    lost_at: datetime | None
    lost_reason: str


@dataclass(frozen=True)
class Reason:
    """One thing that stands between a task and a worker, or how it runs or has ended."""

    code: str
    detail: str
    """A sentence with the facts."""
    change: str
    """What would change it."""
    since: datetime | None
    until: datetime | None
    queue: str
    type: str
    key: str
    cause: str
    error: str


@dataclass(frozen=True)
class Explanation:
    """Why a task is not running, or by whom it runs, or how it has ended. The first reason decides first."""

    task_id: str
    state: str
    queue: str
    type: str
    key: str
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class EventCounts:
    """What happened in some time."""

    enqueued: int
    claimed: int
    succeeded: int
    failed: int
    """Attempts."""
    crashed: int
    """Attempts whose lease was lost."""
    dead: int
    poisoned: int
    discarded: int
    cancelled: int
    replayed: int


@dataclass(frozen=True)
class FailingType:
    """A type whose tasks have failed in the last hour."""

    queue: str
    type: str
    failures: int
    last_error: str
    last_error_type: str
    last_at: datetime | None


@dataclass(frozen=True)
class Stats:
    """What happened in a window of time, and how long tasks waited and ran in it."""

    window: float
    totals: EventCounts
    failure_rate: float
    """0 to 1."""
    wait: Latency | None
    run: Latency | None
    failing: Sequence[FailingType]
    missing_nodes: Sequence[str]
