"""The operators' calls: queues, dead letters, operations, workers, single tasks, statistics. Schedules are app.schedules.

    app.admin.queues.pause("mail", "the provider is down")

Each call has an async version: await app.admin.queues.apause(...).
"""

from __future__ import annotations

from pawl import _rpc
from pawl._operate import DeadLetters, Operations, Queues, Tasks, Workers
from pawl._data import (
    Breaker,
    DeadGroup,
    Depth,
    EventCounts,
    Explanation,
    FailedTask,
    FailingType,
    Filter,
    KeyRules,
    Latency,
    Operation,
    OperationPreview,
    OperationSpec,
    Operator,
    PriorityWeights,
    Queue,
    QueueSettings,
    Quiet,
    Rate,
    Reason,
    Retention,
    RunningTask,
    Stats,
    WorkerInfo,
)
from pawl.errors import Missing

__all__ = [
    "Admin",
    "Breaker",
    "DeadGroup",
    "DeadLetters",
    "Depth",
    "EventCounts",
    "Explanation",
    "FailedTask",
    "FailingType",
    "Filter",
    "KeyRules",
    "Latency",
    "Missing",
    "Operation",
    "OperationPreview",
    "OperationSpec",
    "Operations",
    "Operator",
    "PriorityWeights",
    "Queue",
    "QueueSettings",
    "Queues",
    "Quiet",
    "Rate",
    "Reason",
    "Retention",
    "RunningTask",
    "Stats",
    "Tasks",
    "WorkerInfo",
    "Workers",
]


class Admin:
    """The operators' calls, by subject."""

    def __init__(self, caller: _rpc.Caller) -> None:
        self._caller = caller
        self.queues = Queues(caller)
        self.dead_letters = DeadLetters(caller)
        self.tasks = Tasks(caller)
        self.operations = Operations(caller)
        self.workers = Workers(caller)

    def with_actor(self, name: str) -> Admin:
        """Returns the same calls in the name of an actor, such as the user of your program, which the server records with what
        they change.

        A name has at most 256 ASCII characters. If the server uses tokens, the name of the token is recorded instead."""
        return Admin(self._caller.acting(name))
