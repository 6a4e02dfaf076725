"""Keeps a number of processes running."""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from types import FrameType

from pawl import _signals

log = logging.getLogger("pawl.supervisor")

_FIRST_PAUSE, _MAX_PAUSE = 1.0, 30.0  # before an ended process is restarted
_STEADY = 30.0  # how long a process must run for the next pause to be short again
_KILL_AFTER = 10.0  # beyond the drain timeout
_USAGE = 2


class Supervisor:
    """Runs a command in several processes. A process that ends is restarted, unless it exited with a usage error. The processes
    have their own sessions, so that Ctrl-C reaches only the supervisor, and a pipe that closes when the supervisor ends."""

    def __init__(self, command: Sequence[str], processes: int, drain_timeout: float) -> None:
        self._command = command
        self._processes = processes
        self._drain_timeout = drain_timeout
        self._stop: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._status = 0

    def run(self) -> int:
        """Runs the processes until a signal or a usage error, and returns the exit status."""
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._on_signal)
        keepers = [threading.Thread(target=self._keep, args=(n,)) for n in range(self._processes)]
        for keeper in keepers:
            keeper.start()
        _signals.get(self._stop)
        self._stopping.set()
        self._signal_all(signal.SIGTERM)
        deadline = time.monotonic() + self._drain_timeout + _KILL_AFTER
        for keeper in keepers:
            keeper.join(max(deadline - time.monotonic(), 0))
        self._signal_all(signal.SIGKILL)
        return self._status

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._on_second_signal)
        self._stop.put(number)

    def _on_second_signal(self, number: int, frame: FrameType | None) -> None:
        threading.Thread(target=self._signal_all, args=(signal.SIGKILL,)).start()

    def _signal_all(self, number: signal.Signals) -> None:
        with self._lock:
            for process in self._running:
                process.send_signal(number)

    def _keep(self, n: int) -> None:
        """Runs one process after the other."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            start = time.monotonic()
            status = self._run_one()
            if self._stopping.is_set() or status == _USAGE:
                self._note(status)
                return
            pause = _FIRST_PAUSE if time.monotonic() - start > _STEADY else min(2 * pause, _MAX_PAUSE)
            log.error("process %d of %d exited with status %d, restarting in %g s", n + 1, self._processes, status, pause)
            self._stopping.wait(pause)

    def _note(self, status: int) -> None:
        with self._lock:
            self._status = self._status or status
        if status == _USAGE:
            self._stop.put(0)

    def _run_one(self) -> int:
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = subprocess.Popen(self._command, stdin=subprocess.PIPE, start_new_session=True)
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._lock:
                self._running.discard(process)
            if process.stdin is not None:
                process.stdin.close()
