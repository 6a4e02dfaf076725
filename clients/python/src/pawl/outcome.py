"""Exceptions by which a handler says what becomes of its task."""

from __future__ import annotations

from pawl._convert import Seconds


class Outcome(Exception):
    """What a handler raises to decide what becomes of its task. Any other exception is a failure that is retried until the
    attempts run out."""


class DeadLetter(Outcome):
    """Ends the task as a dead letter at once: no retry can help."""


class Discard(Outcome):
    """Ends the task on purpose: there is nothing to do any more. It raises no alarm."""


class Poison(Outcome):
    """Ends the task as poisoned: its payload cannot be read. Payloads that do not fit the function end so by themselves."""


class RetryIn(Outcome):
    """Fails the attempt; the next one is due after delay, instead of the backoff."""

    def __init__(self, delay: Seconds, message: str = "") -> None:
        super().__init__(message)
        self.delay = delay


class Snooze(Outcome):
    """Puts the task off for delay. It is not a failure: no attempt is used."""

    def __init__(self, delay: Seconds, message: str = "") -> None:
        super().__init__(message)
        self.delay = delay
