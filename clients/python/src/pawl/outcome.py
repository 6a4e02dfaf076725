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


class OnceHeld(Snooze):
    """Another task holds the once key. If the handler lets this pass, its task is put off."""


class Interrupted(Exception):
    """Why a handler should stop before its task is done. Claim.check, progress and checkpoint raise it; a coroutine is also
    cancelled. What the handler raises then is no failure of the task, except after a timeout."""


class Cancelled(Interrupted):
    """A caller cancelled the task."""


class LeaseLost(Interrupted):
    """The claim no longer holds: another worker may run the task. What this handler returns changes nothing."""


class Draining(Interrupted):
    """The worker stops, and its drain timeout is over. The task goes back to the queue; no attempt is used."""


class TimedOut(Interrupted):
    """The time limit of the run is over. The attempt has failed unless the handler returns a result."""
