"""For tests: a real broker, started from the pawl binary on its own directory, and a worker in a thread.

    with testing.Broker() as broker, pawl.App(broker.address) as app, testing.working(app): ...
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from pawl.app import App
from pawl.worker import Queues, Worker

_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 15.0


class Broker:
    """A pawl serve process. It keeps its address and its data when it is killed and restarted.

    binary is the program; by default $PAWL_BINARY, or else pawl on the PATH. flags are those of pawl serve.
    """

    def __init__(self, binary: str | os.PathLike[str] | None = None, *, flags: tuple[str, ...] = ()) -> None:
        program = binary or os.environ.get("PAWL_BINARY") or shutil.which("pawl")
        if not program:
            raise FileNotFoundError("pawl is not on the PATH: install it, or name the binary in PAWL_BINARY")
        self._program = os.fspath(program)
        self._flags = flags
        self._directory = Path(tempfile.mkdtemp(prefix="pawl-test-"))
        self._port = _free_port()
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None

    @property
    def address(self) -> str:
        """The address of the broker, for App."""
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        """Starts the broker, and returns when it is serving."""
        if self._process is not None:
            raise RuntimeError("the broker is already running")
        self._log = open(self._directory / "log", "a", encoding="utf-8")
        command = [self._program, "serve", "--data", str(self._directory / "data"), "--listen", self.address, *self._flags]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=self._log, text=True)
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log()
                self.kill()
                raise RuntimeError(f"the broker did not start:\n{said[-2000:]}")

    def _ready(self) -> bool:
        """Waits a moment for the broker to report that it is ready."""
        assert self._process is not None and self._process.stdout is not None
        out = self._process.stdout
        return bool(select.select([out], [], [], 0.05)[0]) and "ready" in out.readline()

    def stop(self) -> None:
        """Stops the broker gracefully."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kills the broker, as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        if self._log is not None:
            self._log.close()
            self._log = None

    def log(self) -> str:
        """Returns the broker's log."""
        return (self._directory / "log").read_text(encoding="utf-8", errors="replace")

    def __enter__(self) -> Broker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)


@contextlib.contextmanager
def working(app: App, queues: Queues = "default", **settings: Any) -> Iterator[Worker]:
    """Runs a worker in a thread. The end of the block drains the worker, and raises what it raised. settings are those of Worker.
    """
    worker = Worker(app, queues, **settings)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            worker.run()
        except BaseException as err:
            raised.append(err)

    thread = threading.Thread(target=run, name="pawl-worker")
    thread.start()
    try:
        yield worker
    finally:
        worker.stop()
        thread.join()
    if raised:
        raise raised[0]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port
