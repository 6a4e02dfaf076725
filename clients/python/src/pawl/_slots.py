"""Runs handlers: functions in threads, coroutine functions on one event loop."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Coroutine
from typing import Any, Callable


class Threads:
    """A pool of threads, started on demand and reused. They are daemon threads, so that a handler that does not return can't keep
    the program from exiting."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = 0
        self._count = 0

    def submit(self, job: Callable[[], None]) -> None:
        """Runs a job, which must not raise, in its own context."""
        with self._lock:
            if self._idle > 0:
                self._idle -= 1
                self._jobs.put(job)
                return
            self._count += 1
            name = f"pawl-{self._count}"
        threading.Thread(target=self._work, args=(job,), name=name, daemon=True).start()

    def _work(self, job: Callable[[], None] | None) -> None:
        while job is not None:
            contextvars.Context().run(job)
            del job  # and the task with it, while the thread waits
            with self._lock:
                self._idle += 1
            job = self._jobs.get()

    def close(self) -> None:
        """Lets the threads end when they are idle."""
        with self._lock:
            for _ in range(self._count):
                self._jobs.put(None)


class Loop:
    """An event loop in its own thread, started on demand."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference to them

    def submit(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs a coroutine, which must not raise."""
        loop = self._running()

        def start() -> None:
            contextvars.Context().run(create)

        def create() -> None:
            task = loop.create_task(job())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(start)

    def call(self, fn: Callable[[], object]) -> None:
        """Calls a function on the loop, if it is running."""
        with self._lock:
            loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(fn)
            except RuntimeError:
                pass  # the loop was just closed

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run_forever, args=(self._loop,), name="pawl-loop", daemon=True).start()
            return self._loop

    def close(self) -> None:
        """Ends the loop."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)


def _run_forever(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
