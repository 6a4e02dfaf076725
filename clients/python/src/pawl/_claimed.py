"""A claim as what runs within it sees it: who holds it, what of it changes. It knows no handlers."""

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
        """Says why the handler is to stop."""

    def set_progress(self, progress: task_pb2.Progress) -> None:
        """Sends progress soon."""

    def extended(self, sent: float, *, cancel_requested: bool) -> None:
        """Takes note that a call of the handler's, sent at a time of the monotonic clock, has extended the lease."""

    def lost(self, reason: str) -> None:
        """Takes the broker's word that the claim is gone."""


@dataclass
class State:
    """The parts of a claim that change. Its lock guards busy."""

    kept: Kept
    result: _ending.Result = field(default_factory=_ending.Result)
    busy: set[str] = field(default_factory=set)
    """The steps and once keys that a thread or coroutine of the handler is running."""
    unclear: set[str] = field(default_factory=set)
    """Once keys that the claim may or may not hold."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    unreadable: keyring.Unreadable | None = None
    """Why the handler may not have the task."""


class Claimed(Protocol):
    """What steps need of a claim."""

    @property
    def id(self) -> str:
        """Of the task."""

    @property
    def type(self) -> str:
        """Of the task."""

    @property
    def token(self) -> str:
        """Shows the broker that the claim is meant."""

    @property
    def lease(self) -> float:
        """Its length in seconds."""

    @property
    def interrupted(self) -> Interrupted | None:
        """Why the handler should stop."""

    def check(self) -> None:
        """Raises that."""

    @property
    def _holder(self) -> Holder: ...

    @property
    def _state(self) -> State: ...
