"""Exceptions with which a handler decides what happens to its task."""

from __future__ import annotations

from typing import Any

from pawl._convert import Seconds


class Outcome(Exception):
    """Raised by a handler to decide what happens to its task. Any other exception is a failure, which is retried until the
    attempts are used up."""


class DeadLetter(Outcome):
    """Ends the task as a dead letter immediately, because no retry can help."""


class Discard(Outcome):
    """Ends the task on purpose, because there is nothing left to do. It raises no alarm."""


class Poison(Outcome):
    """Ends the task as poisoned, because its payload cannot be read. Tasks whose payload does not match the function are poisoned
    automatically."""


class _Later(Outcome):
    """The common base of RetryIn and Snooze."""

    def __init__(self, delay: Seconds, message: str = "") -> None:
        super().__init__(message)
        self.delay = delay

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay, *self.args), self.__dict__


class RetryIn(_Later):
    """Fails the attempt. The next one is due after delay, instead of the backoff."""


class Snooze(_Later):
    """Postpones the task by delay. It is not a failure, and no attempt is used."""


class OnceHeld(Snooze):
    """Another task holds the once key. If the handler does not catch this, its task is snoozed."""


class Interrupted(Exception):
    """Why a handler should stop before its task is done. Claim.check, progress and checkpoint raise it; a coroutine is also
    cancelled. What the handler then raises does not count as a failure, except after a timeout."""


class Cancelled(Interrupted):
    """A caller cancelled the task."""


class LeaseLost(Interrupted):
    """The claim is no longer valid, and another worker may run the task. The result of this handler is ignored."""


class Draining(Interrupted):
    """The worker is stopping and its drain timeout is over. The task goes back to its queue, and no attempt is used."""


class TimedOut(Interrupted):
    """The time limit of the run is over. The attempt fails unless the handler returns a result."""
