"""Worker: claims tasks and runs their handlers."""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Union

from pawl import _convert, _rpc, _signals, errors
from pawl._convert import Seconds
from pawl._limits import MAX_CLAIM_QUEUES, MAX_CLAIM_TYPES, MAX_LEASE, MAX_WEIGHT, MIN_LEASE
from pawl._work import Run
from pawl.app import App
from pawl.v1 import worker_pb2

Queues = Union[str, Sequence[str], Mapping[str, int]]

_MAX_CONCURRENCY = 10_000


class Worker:
    """Claims tasks over one long-lived stream and runs their handlers, up to concurrency at a time.

    Functions run in threads, coroutine functions on the worker's own event loop. Leases are extended while handlers run.

    queues: {"mail": 7, "default": 3} claims from queues in proportion to their weights, ["urgent", "default"] from the first that
    has a task. "mail=7,default=3" and "urgent,default" mean the same. lease: its length in seconds, from 1 to 43,200; by default the
    queue's. drain_timeout: seconds that handlers may take to finish once the worker stops. max_bytes: the size limit for the tasks
    in one push. name: shown in attempt logs and in lists of workers; by default host/pid.
    """

    def __init__(
        self,
        app: App,
        queues: Queues = "default",
        *,
        concurrency: int = 10,
        lease: Seconds | None = None,
        drain_timeout: Seconds = 25.0,
        max_bytes: int | None = None,
        name: str = "",
    ) -> None:
        if not 1 <= concurrency <= _MAX_CONCURRENCY:
            raise errors.invalid("concurrency", f"is {concurrency}, want 1 to {_MAX_CONCURRENCY}")
        drain = _convert.seconds("drain_timeout", drain_timeout)
        if drain < 0:
            raise errors.invalid("drain_timeout", f"is {drain_timeout}, want 0 or more")
        if not 1 <= len(app.handlers) <= MAX_CLAIM_TYPES:
            raise errors.invalid("types", f"the app has handlers for {len(app.handlers)} types, want 1 to {MAX_CLAIM_TYPES}")
        hello = worker_pb2.WorkHello(
            worker=name or _convert.cut(f"{socket.gethostname()}/{os.getpid()}", 256),
            types=sorted(app.handlers),
            host=_convert.cut(socket.gethostname(), 256),
            pid=os.getpid(),
            version=_version(),
            instance=secrets.token_hex(16),
            slots=concurrency,
        )
        _set_queues(hello, queues)
        if len(hello.worker.encode()) > 256:
            raise errors.invalid("name", f"{hello.worker!r} has more than 256 bytes")
        if lease is not None:
            if not MIN_LEASE <= _convert.seconds("lease", lease) <= MAX_LEASE:
                raise errors.invalid("lease", f"is {lease}, want {MIN_LEASE:g} to {MAX_LEASE:g} s")
            hello.lease.CopyFrom(_convert.duration("lease", lease))
        if max_bytes is not None:
            if max_bytes < 1:
                raise errors.invalid("max_bytes", f"is {max_bytes}, want 1 or more")
            hello.max_bytes = max_bytes
        caller = app._caller.within(math.inf)  # a worker reconnects for as long as it takes
        self._run = Run(caller, hello, dict(app.handlers), concurrency=concurrency, drain_timeout=drain)
        self._started = threading.Lock()

    def run(self) -> None:
        """Claims and runs tasks until stop is called, and then drains: it takes no more tasks, lets handlers finish, and after
        drain_timeout tells the rest to stop and releases their tasks, so that no attempt is used. In the main thread, SIGINT and SIGTERM
        stop it, too, unless the program handles them itself. A second SIGTERM ends the process; a second SIGINT raises KeyboardInterrupt.

        A connection that breaks is reestablished indefinitely; handlers continue meanwhile, and their outcomes are reported
        afterwards. Raises PawlError if the broker refuses the worker when it first connects, or its token for a minute; and
        UnavailableError if in the end it could not report how some tasks ended: these run again after their lease. A worker runs
        only once.
        """
        if _rpc.on_loop():
            raise RuntimeError("run would block the event loop: use asyncio.to_thread(worker.run)")
        if not self._started.acquire(blocking=False):
            raise RuntimeError("the worker has already been run")
        with _signals.terminating(self._run.stop):
            self._run.do()

    def stop(self) -> None:
        """Starts draining. It may be called from any thread, and from a signal handler."""
        self._run.stop()


def _set_queues(hello: worker_pb2.WorkHello, queues: Queues) -> None:
    weights = queues if isinstance(queues, Mapping) else _parse(queues)
    if not 1 <= len(weights) <= MAX_CLAIM_QUEUES:
        raise errors.invalid("queues", f"{len(weights)} queues, want 1 to {MAX_CLAIM_QUEUES}")
    weighted = [weight is not None for weight in weights.values()]
    if any(weighted) and not all(weighted):
        raise errors.invalid("queues", f"{queues!r}: give a weight to all queues or to none")
    hello.order = worker_pb2.ORDER_WEIGHTED if weighted[0] else worker_pb2.ORDER_STRICT
    for name, weight in weights.items():
        if not name:
            raise errors.invalid("queues", f"{queues!r}: a queue has no name")
        if weight is not None and not 1 <= weight <= MAX_WEIGHT:
            raise errors.invalid(f"queues.{name}", f"{weight} is not between 1 and {MAX_WEIGHT}")
        hello.queues.add(queue=name, weight=weight or 0)


def _parse(queues: str | Sequence[str]) -> dict[str, int | None]:
    out: dict[str, int | None] = {}
    for part in queues.split(",") if isinstance(queues, str) else queues:
        name, weight = part.strip(), None
        if isinstance(queues, str) and "=" in part:
            name, _, text = part.strip().partition("=")
            if not (text.isascii() and text.isdigit()):
                raise errors.invalid("queues", f"{part!r}: the weight is not a number")
            weight = int(text)
        if name in out:
            raise errors.invalid("queues", f"{name!r} is given twice")
        out[name] = weight
    return out


def _version() -> str:
    try:
        return f"python {metadata.version('pawl')}"
    except metadata.PackageNotFoundError:  # running from source
        return "python"
