"""Decides which enqueues that run at the same time go together in one request. It makes no calls.

While few requests are under way, an enqueue goes out at once. Otherwise it waits, and when a request ends, the first one that waits sends
all that wait. So a lone caller pays nothing, no timer makes anybody wait, and requests grow with the load.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent import futures
from typing import cast

from pawl.v1 import producer_pb2, task_pb2

MAX_TASKS = 1000  # of one request
MAX_BYTES = 4 << 20

# So many requests may be under way with however few tasks each, and more only with _FULL tasks: each request costs both sides, and too few
# would wait for the broker's disk one after the other.
_EAGER_REQUESTS = 2
_FULL = 16
_MAX_REQUESTS = 8


class Waiting:
    """One task on its way. Its answer or error is there when it is done."""

    def __init__(self, task: task_pb2.TaskSpec) -> None:
        self.task = task
        self.size = task.ByteSize()
        self.turn: futures.Future[None] | None = None
        """Of a task that had to wait: ends when it is done, or its caller is to send."""
        self.answer: producer_pb2.Enqueued | None = None
        self.error: Exception | None = None
        self.sends = False
        """Its caller has its turn."""
        self.left = False
        """Its caller waits no more."""

    @property
    def done(self) -> bool:
        """Reports whether the task has its answer or error."""
        return self.answer is not None or self.error is not None

    def end(self, answer: producer_pb2.Enqueued | None, error: Exception | None = None) -> None:
        """Gives the task its answer or error."""
        self.answer, self.error = answer, error
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(None)


class Gatherer:
    """Gathers the enqueues of a client. Any number of threads and event loops may use it at the same time."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._waiting: deque[Waiting] = deque()
        self._requests = 0

    def join(self, one: Waiting) -> None:
        """Lets a task wait for its turn, which may be at once."""
        if self._pid != os.getpid():  # requests of the parent do not end in this process
            self._reset()
        with self._lock:
            if self._requests < _EAGER_REQUESTS:  # then nobody waits
                self._requests += 1
                one.sends = True
                return
            one.turn = futures.Future()
            self._waiting.append(one)
            self._begin()

    def take(self, one: Waiting) -> list[Waiting]:
        """Returns what goes into one request: the task of the caller whose turn it is, and of those that wait as many as fit."""
        with self._lock:
            batch, size = [one], one.size
            while self._waiting and len(batch) < MAX_TASKS and size + self._waiting[0].size <= MAX_BYTES:
                batch.append(self._waiting.popleft())
                size += batch[-1].size
            return batch

    def end(self, tasks: Sequence[Waiting]) -> None:
        """Ends a request. Those of its tasks that are not done, and that somebody waits for, are the next to be sent."""
        with self._lock:
            self._waiting.extendleft(each for each in reversed(tasks) if not each.done and not each.left)
            self._requests -= 1
            self._begin()

    def leave(self, one: Waiting) -> None:
        """Is for a caller that waits no more, and sends nothing."""
        with self._lock:
            one.left = True
            if one.sends:
                self._requests -= 1
                self._begin()
            elif one in self._waiting:
                self._waiting.remove(one)

    def _begin(self) -> None:
        """Gives the first ones that wait their turn, while another request may go out."""
        while self._waiting and self._requests < (_MAX_REQUESTS if len(self._waiting) >= _FULL else _EAGER_REQUESTS):
            first = self._waiting.popleft()
            self._requests += 1
            first.sends = True
            cast("futures.Future[None]", first.turn).set_result(None)
