"""The parameters and results of operators' calls. Names and units are those of the API; durations are in seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pawl._convert import Seconds
from pawl.errors import Missing
from pawl.options import Retry


@dataclass(frozen=True)
class PriorityWeights:
    """Divides claims among the priorities that have tasks. Each weight is 1 to 1,000."""

    high: int
    normal: int
    low: int


@dataclass(frozen=True)
class Retention:
    """How long ended tasks are kept, by end state: by default 24 h, and 14 days for dead and poisoned tasks."""

    succeeded: Seconds | None = None
    discarded: Seconds | None = None
    cancelled: Seconds | None = None
    dead: Seconds | None = None
    poisoned: Seconds | None = None


@dataclass(frozen=True)
class Rate:
    """A token bucket: it gains limit tokens per period and holds at most burst, by default limit."""

    limit: int
    period: Seconds
    burst: int = 0


@dataclass(frozen=True)
class KeyRules:
    """The limits of a key, and its weight among other keys."""

    max_running: int = 0
    rate: Rate | str | None = None
    """Or a text such as "10/1m"; in results, a Rate."""
    weight: int = 0


@dataclass(frozen=True)
class Breaker:
    """A circuit breaker, which holds back tasks of a type that fail too often. Fields that are left out get the broker's
    defaults."""

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
    """The settings of a queue. In results, every field has its effective value. A field left out of a put gets the broker's default,
    not its old value: use dataclasses.replace(queue.settings, max_attempts=3) to change one."""

    weights: PriorityWeights | None = None
    """Without weights, the order of priorities is strict."""
    retry: Retry | None = None
    max_attempts: int = 0
    lease: Seconds = 0.0
    timeout: Seconds = 0.0
    """Of one run."""
    retention: Retention | None = None
    max_length: int = 0
    """Maximum number of waiting tasks; 0: no limit."""
    max_running: int = 0
    """Tasks that run at the same time; 0: no limit."""
    rate: Rate | str | None = None
    """Or a text such as "10/1m"; in results, a Rate."""
    per_key: KeyRules | None = None
    keys: Mapping[str, KeyRules] = field(default_factory=dict)
    """For single keys, instead of per_key."""
    max_wait: Seconds = 0.0
    """A task that is ready for longer needs attention."""
    key_order: str = ""
    """none or strict. In results, "" means none."""
    breaker: Breaker | None = None
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    """For single types, instead of breaker."""


@dataclass(frozen=True)
class Depth:
    """The number of tasks of a queue by state. held: how many of the ready ones can't run now."""

    scheduled: int
    ready: int
    claimed: int
    retrying: int
    held: int
    dead: int
    poisoned: int


@dataclass(frozen=True)
class Latency:
    """How long something took. Quantiles are approximate."""

    count: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    p99_seconds: float


@dataclass(frozen=True)
class Queue:
    """What the broker knows about a queue."""

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
    """Until no task is ready, at the rates of the last minute; None: the ready tasks do not become fewer."""
    workers: int | None
    """The number of workers that take its tasks."""
    breakers_open: int
    settings: QueueSettings
    version: int
    """The version of the settings, for put(if_version=...)."""
    created_at: datetime | None
    missing: Sequence[Missing]
    """The shards and nodes whose part of the numbers is missing."""


@dataclass(frozen=True)
class Filter:
    """Selects tasks. All fields that are given must match, and none may be empty; Filter() selects all tasks."""

    queue: str | None = None
    states: Sequence[str] = ()
    type: str | None = None
    tag: str | None = None
    key: str | None = None
    worker: str | None = None
    error: str | None = None
    """Substring of the last error's message."""
    fingerprint: str | None = None
    """From a DeadGroup."""
    operation: str | None = None
    """The id of the last operation that changed the task."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    q: str | None = None
    """Substring of the payload."""


@dataclass(frozen=True)
class DeadGroup:
    """The dead letters that have the same error."""

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
    """The queue with the most of them."""


@dataclass(frozen=True)
class Operator:
    """Identifies who did something."""

    actor: str
    address: str
    interface: str
    reason: str


@dataclass(frozen=True)
class OperationSpec:
    """A bulk operation: one action, applied to many tasks in the background. See docs/bulk-operations.md."""

    action: str
    """replay, cancel, discard, move, set_priority or run_now."""
    filter: Filter
    to_queue: str | None = None
    """For move only."""
    priority: str = ""
    """For set_priority only."""
    max: int = 0
    """Maximum number of tasks; 0: all that match."""
    rate: float | str = 0.0
    """Tasks per second at most; 0: as fast as possible without delaying other work."""
    canary: int = 0
    """The operation pauses itself after this many tasks; 0: it does not."""


@dataclass(frozen=True)
class OperationPreview:
    """What an operation would affect."""

    matched: int
    is_lower_bound: bool
    """Counting all of the tasks would have taken too long."""


@dataclass(frozen=True)
class FailedTask:
    """A task that an operation could not change."""

    task_id: str
    message: str


@dataclass(frozen=True)
class Operation:
    """What the broker knows about an operation."""

    operation_id: str
    spec: OperationSpec
    state: str
    """running, paused, done, aborted or failed."""
    author: Operator | None
    created_at: datetime | None
    paused_at: datetime | None
    ended_at: datetime | None
    why: str
    """Why it was paused or aborted, or why it failed."""
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
    """An operator's order that a worker take no new tasks."""

    reason: str
    by: str
    at: datetime | None
    until: datetime | None


@dataclass(frozen=True)
class WorkerInfo:
    """What the broker knows about a worker."""

    worker_id: str
    worker: str
    """As given by the worker."""
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
    """One thing that keeps a task from running, or how it is running or has ended."""

    code: str
    detail: str
    """The facts, in a sentence."""
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
    """Why a task is not running, which worker runs it, or how it ended. The first reason is the most decisive."""

    task_id: str
    state: str
    queue: str
    type: str
    key: str
    reasons: Sequence[Reason]


@dataclass(frozen=True)
class EventCounts:
    """Counts events by kind."""

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
    """A task type with failures in the last hour."""

    queue: str
    type: str
    failures: int
    last_error: str
    last_error_type: str
    last_at: datetime | None


@dataclass(frozen=True)
class Stats:
    """Counts the events of a time window, and how long tasks waited and ran in it."""

    window: float
    totals: EventCounts
    failure_rate: float
    """0 to 1."""
    wait: Latency | None
    run: Latency | None
    failing: Sequence[FailingType]
    missing: Sequence[Missing]
    """The shards and nodes whose part is missing."""
