"""A claim as seen from within it: who holds it, and which parts change. It does not know handlers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Protocol

from pawl import _ending, _rpc, keyring
from pawl._kept import Kept
from pawl.outcome import Interrupted
from pawl.v1 import task_pb2


class Holder(Protocol):
    """The worker's run, as a claim sees it."""

    @property
    def caller(self) -> _rpc.Caller:
        """Makes calls to the broker."""

    def cause(self) -> Interrupted | None:
        """Returns why the handler should stop."""

    def set_progress(self, progress: task_pb2.Progress) -> None:
        """Sends progress soon."""

    def extended(self, sent: float) -> None:
        """Records that a call by the handler, sent at a time of the monotonic clock, extended the lease."""

    def lost(self, reason: str) -> None:
        """Records that the broker has reported the claim lost."""


@dataclass
class State:
    """The mutable parts of a claim. lock guards busy."""

    kept: Kept
    result: _ending.Result = field(default_factory=_ending.Result)
    busy: set[str] = field(default_factory=set)
    """The steps and once keys that a thread or coroutine of the handler is running."""
    unclear: set[str] = field(default_factory=set)
    """Once keys of which it is unknown whether the claim holds them."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    unreadable: keyring.Unreadable | None = None
    """Why the task can't be passed to its handler."""


class Claimed(Protocol):
    """The parts of a claim that steps need."""

    @property
    def id(self) -> str:
        """The task's."""

    @property
    def type(self) -> str:
        """The task's."""

    @property
    def token(self) -> str:
        """Identifies the claim to the broker."""

    @property
    def lease(self) -> float:
        """Its length in seconds."""

    @property
    def interrupted(self) -> Interrupted | None:
        """Why the handler should stop."""

    def check(self) -> None:
        """Raises the reason, if there is one."""

    @property
    def _holder(self) -> Holder: ...

    @property
    def _state(self) -> State: ...
