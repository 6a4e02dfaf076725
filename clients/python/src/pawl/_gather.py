"""Decides which concurrent enqueues share a request. It makes no calls.

While few requests are in flight, an enqueue is sent immediately. Otherwise it waits, and when a request ends, the first waiting enqueue
sends all that wait. A lone caller pays nothing, no timer adds latency, and requests grow with the load. Each queue has requests of its
own, so that one whose shard does not answer holds up no other.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from concurrent import futures
from typing import cast

from pawl.v1 import producer_pb2, task_pb2

MAX_TASKS = 1000  # per request
MAX_BYTES = 4 << 20

# This many requests may be in flight with any number of tasks, and more only with at least _FULL tasks: every request costs both sides,
# but with too few in flight, they would wait for the broker's disk one after the other.
_EAGER_REQUESTS = 2
_FULL = 16
_MAX_REQUESTS = 8


class Waiting:
    """One task to be enqueued. It has an answer or an error when it is done."""

    def __init__(self, task: task_pb2.TaskSpec) -> None:
        self.task = task
        self.size = task.ByteSize()
        self.turn: futures.Future[None] | None = None
        """For a task that had to wait: completes when the task is done, or when its caller should send."""
        self.answer: producer_pb2.Enqueued | None = None
        self.error: Exception | None = None
        self.sends = False
        """It is its caller's turn to send."""
        self.left = False
        """Its caller has stopped waiting."""

    @property
    def done(self) -> bool:
        """Reports whether the task has an answer or error."""
        return self.answer is not None or self.error is not None

    def end(self, answer: producer_pb2.Enqueued | None, error: Exception | None = None) -> None:
        """Sets the task's answer or error."""
        self.answer, self.error = answer, error
        if self.turn is not None and not self.turn.done():
            self.turn.set_result(None)


class _Lane:
    """The tasks for one queue."""

    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.requests = 0

    def begin(self) -> None:
        """Gives the first waiting tasks their turn, as long as another request may be sent."""
        while self.waiting and self.requests < (_MAX_REQUESTS if len(self.waiting) >= _FULL else _EAGER_REQUESTS):
            first = self.waiting.popleft()
            self.requests += 1
            first.sends = True
            cast("futures.Future[None]", first.turn).set_result(None)


class Gatherer:
    """Gathers the enqueues of a client. Any number of threads and event loops may use it at the same time."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._lanes: dict[str, _Lane] = {}

    def join(self, one: Waiting) -> None:
        """Lets a task wait for its turn, which may come immediately."""
        if self._pid != os.getpid():  # the parent's requests don't end in this process
            self._reset()
        with self._lock:
            lane = self._lanes.setdefault(one.task.queue, _Lane())
            if lane.requests < _EAGER_REQUESTS:  # then no task is waiting
                lane.requests += 1
                one.sends = True
                return
            one.turn = futures.Future()
            lane.waiting.append(one)
            lane.begin()

    def take(self, one: Waiting) -> list[Waiting]:
        """Returns the tasks of one request: that of the caller whose turn it is, and as many of the waiting ones as fit."""
        with self._lock:
            waiting = self._lanes[one.task.queue].waiting
            batch, size = [one], one.size
            while waiting and len(batch) < MAX_TASKS and size + waiting[0].size <= MAX_BYTES:
                batch.append(waiting.popleft())
                size += batch[-1].size
            return batch

    def end(self, sender: Waiting, others: Sequence[Waiting]) -> None:
        """Ends a request. Tasks of others that are not done, and whose callers still wait, are sent next."""
        with self._lock:
            queue = sender.task.queue
            self._lanes[queue].waiting.extendleft(each for each in reversed(others) if not each.done and not each.left)
            self._end_request(queue)

    def leave(self, one: Waiting) -> None:
        """Removes the task of a caller that stops waiting without sending."""
        with self._lock:
            one.left = True
            if one.sends:
                self._end_request(one.task.queue)
            elif one.task.queue in self._lanes and one in self._lanes[one.task.queue].waiting:
                self._lanes[one.task.queue].waiting.remove(one)

    def _end_request(self, queue: str) -> None:
        lane = self._lanes[queue]
        lane.requests -= 1
        lane.begin()
        if lane.requests == 0:  # then no task is waiting
            del self._lanes[queue]
