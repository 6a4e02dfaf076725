"""The loop of a worker: it keeps a stream to the broker open, runs tasks in its slots, extends leases, and reports how tasks
ended.

    stream -> _receive -> _accept -> slot -> _finish -> outbox -> _frames -> stream
                          _keep: extends leases, stops handlers, sends again ---^

Whatever happens to the stream, a Run keeps every claim from its push until the broker has confirmed its end. A new stream starts
with these claims, so a broken one loses nothing. One lock guards all of this; nothing that could block is called with it held.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import math
import queue
import random
import threading
import time
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import grpc

from pawl import _convert, _ending, _rpc, _signals, _telemetry, claim, errors, outcome
from pawl._connection import HEALTH_CHECK
from pawl._held import Held, Phase, extension, log, log_end, loss, outcome_of, title, verdict
from pawl._limits import FIRST_RECONNECT, FIRST_RESEND, MAX_RECONNECT, MAX_RESEND, MAX_SETTLE
from pawl._slots import Loop, Threads
from pawl.v1 import task_pb2, worker_pb2

if TYPE_CHECKING:
    from pawl.app import Handler

_WORK = "/pawl.v1.WorkerService/Work"

_MAX_FRAMES = 2  # unanswered frames of endings, beyond which endings are gathered for the next frame
# A stream that is silent for this long is reopened, so that both sides start afresh with their view of each other's slots. If the
# new stream is silent too, there was nothing to send, and the next silence may last twice as long.
_SILENT_AFTER = 60.0
_MAX_SILENCE = 240.0
# While an answer on the stream is awaited and nothing arrives, its connection is probed this often, and replaced if it hangs.
_PROBE_AFTER, _PROBE_TIMEOUT = 2.0, 1.5
_CLOSE_TIMEOUT = 2.0  # for the broker to finish a stream that the worker has closed
_UNWANTED_FOR = 60.0  # how long a worker that was once admitted keeps retrying when it is rejected: its token may be replaced in that time
_STEADY = 5.0
_DRAIN_GRACE = 1.0  # for handlers that were told to stop
_SETTLE_TIMEOUT = 1.0  # for the broker to confirm the last endings, over the stream and then again by a call
_DEFAULT_LEASE = 30.0
_SWEEP_STEP, _SWEEP_IDLE = 0.05, 3600.0
_PROGRESS_STEP = 1.0


@dataclass
class _Endings:
    """The endings of one shard's claims. A shard that does not answer holds up no endings of the others."""

    waiting: list[Held] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)  # number of endings in each unanswered frame, oldest first

    @property
    def full(self) -> bool:
        return len(self.frames) >= _MAX_FRAMES

    def answered(self) -> None:
        """Counts the response to an ending. Those of a shard come in the order of the frames, except that a refusal may overtake
        others: then the oldest frame counts as answered, and the newest has as many responses to come."""
        if self.frames:
            self.frames[0] -= 1
            if self.frames[0] == 0:
                self.frames.pop(0)


@dataclass
class _Outbox:
    endings: dict[str, _Endings] = field(default_factory=dict)  # by shard
    extends: list[Held] = field(default_factory=list)
    quiet: bool = False  # the broker was told to push no more tasks

    def of(self, task_id: str) -> _Endings:
        """Returns the endings of a task's shard, which is in the digits after the version of its id."""
        return self.endings.setdefault(task_id[14:18], _Endings())

    def add(self, held: Held) -> None:
        """Queues the ending of a claim."""
        self.of(held.name.task_id).waiting.append(held)


@dataclass(eq=False)
class _Session:
    """One stream."""

    opened: float
    silent_at: float
    probe_at: float = math.inf  # an answer is awaited
    frames: int = 0  # received
    renew: bool = False  # close it gracefully, and open another
    over: bool = False
    channel: Any = None
    call: Any = None
    sender: threading.Thread | None = None  # gRPC's, which takes the frames


class Run:
    """One run of a worker."""

    def __init__(
        self,
        caller: _rpc.Caller,
        hello: worker_pb2.WorkHello,
        handlers: Mapping[str, Handler],
        *,
        concurrency: int,
        drain_timeout: float,
    ) -> None:
        self._caller = caller
        self._hello = hello
        self._handlers = handlers
        self._concurrency = concurrency
        self._drain_timeout = drain_timeout
        self._threads = Threads()
        self._loop = Loop()
        self._wake: queue.SimpleQueue[errors.PawlError | None] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._closing = threading.Event()  # the stream will not be opened again

        self._lock = threading.Lock()
        self._more = threading.Condition(self._lock)  # the outbox or the session has changed
        self._calmer = threading.Condition(self._lock)  # a handler or a claim has ended
        self._tick = threading.Condition(self._lock)  # something is due earlier than the keeper expects
        self._claims: dict[str, Held] = {}
        self._busy = 0
        self._granted = 0
        self._out = _Outbox()
        self._session: _Session | None = None
        self._silences = 0
        self._quiet = False
        self._quiet_version = 0
        self._next_sweep = time.monotonic() + _SWEEP_IDLE
        self._ended = False

    def stop(self) -> None:
        """Starts draining. It may be called from a signal handler."""
        self._wake.put(None)

    def do(self) -> None:
        """Works until stop is called, and then drains. It raises a refusal by the broker."""
        keeper = threading.Thread(target=self._guard, args=(self._keep,), name="pawl-keeper", daemon=True)
        link = threading.Thread(target=self._guard, args=(self._link,), name="pawl-link", daemon=True)
        keeper.start()
        link.start()
        try:
            refusal = self._wait()
            if refusal is not None:
                self._give_up()
                raise refusal
            self._drain(link)
        finally:
            with self._lock:
                self._ended = True
                self._tick.notify_all()
            self._closing.set()
            self._close_session()
            link.join(_CLOSE_TIMEOUT)
            keeper.join()
            self._threads.close()
            self._loop.close()

    def _guard(self, loop: Callable[[], None]) -> None:
        """Ends the run if one of its threads fails, because it would seem alive but do nothing."""
        try:
            loop()
        except BaseException as err:  # even SystemExit, for example of the function for the token
            log.exception("the worker has failed")
            self._wake.put(errors.InternalError(f"the worker has failed: {err!r}"))

    def _wait(self) -> errors.PawlError | None:
        try:
            return _signals.get(self._wake)
        except KeyboardInterrupt:  # in a program without its own signal handlers; a second one ends the drain
            return None

    # Handlers

    def _accept(self, tasks: list[worker_pb2.ClaimedTask], now: float) -> None:
        started = []
        with self._lock:
            for task in tasks:
                self._granted = max(self._granted - 1, 0)
                if task.claim_token in self._claims:
                    continue  # pushed again: it is already running, or its end is on the way
                held = self._hold(task, now)
                self._claims[task.claim_token] = held
                if self._quiet or self._busy >= self._concurrency:
                    self._end(held, _ending.release(held.name))
                    continue
                self._busy += 1
                self._sweep_at(min(held.due, held.deadline))
                started.append(held)
            self._more.notify_all()
        for held in started:
            self._start(held)

    def _hold(self, task: worker_pb2.ClaimedTask, now: float) -> Held:
        lease = _convert.seconds_of(task.lease) or _DEFAULT_LEASE
        holder = _Holder(self)
        timeout = _convert.seconds_of(task.timeout)
        held = holder.held = Held(
            task=task,
            name=_ending.Name(task.task_id, task.claim_token),
            claim=claim.claim_of(task, holder),
            lease=lease,
            lease_end=now + lease,
            due=now + lease / 3,
            deadline=now + timeout if timeout > 0 else float("inf"),
        )
        return held

    def _start(self, held: Held) -> None:
        handler = self._handlers.get(held.task.type)
        if handler is None:  # the broker pushed a type that the worker did not ask for
            self._finish(held, None, outcome.Snooze(_ending.NOT_OURS, f"no handler for type {held.task.type!r}"))
        elif handler.is_async:
            self._loop.submit(functools.partial(self._arun, held, handler))
        else:
            self._threads.submit(functools.partial(self._run, held, handler))

    def _run(self, held: Held, handler: Handler) -> None:
        try:
            held.span = self._processing(held)
            with held.span.current():
                returned = self._call(held, handler)
                if inspect.isawaitable(returned):  # for example, of a coroutine function behind a plain decorator
                    self._loop.submit(functools.partial(self._arun, held, handler, returned))
                    return
                result = claim.encode_result(held.claim, returned)
        except BaseException as err:  # even SystemExit is only a failure of this task
            self._finish(held, None, err)
        else:
            self._finish(held, result, None)

    async def _arun(self, held: Held, handler: Handler, returned: Awaitable[Any] | None = None) -> None:
        """Runs a handler, or the rest of it: what its function has returned in a thread."""
        try:
            with self._lock:  # here: a task that is cancelled before its first step would never get to the end of this
                held.aio = asyncio.current_task()
                cause = held.cause
            if cause is not None:
                if inspect.iscoroutine(returned):
                    returned.close()
                raise cause
            if returned is None:
                held.span = self._processing(held)
            with held.span.current():
                claim.begin(held.claim)  # in this context, too
                if returned is None:
                    returned = self._call(held, handler)
                result = claim.encode_result(held.claim, await returned)
        except BaseException as err:
            self._finish(held, None, err)
        else:
            self._finish(held, result, None)

    def _call(self, held: Held, handler: Handler) -> Any:
        """Calls the function of a handler."""
        claim.begin(held.claim)
        args, kwargs = handler.arguments(held.claim)
        return handler.fn(*args, **kwargs)

    def _processing(self, held: Held) -> _telemetry.Span:
        return _telemetry.processing(held.task, self._hello.worker, self._caller.connection.server)

    def _interrupt(self, held: Held, cause: outcome.Interrupted) -> None:
        """Tells a handler to stop. The caller holds the lock."""
        if held.cause is None:
            held.cause = cause
            if held.aio is not None:
                self._loop.call(held.aio.cancel)

    def _finish(self, held: Held, result: _ending.Result | None, err: BaseException | None) -> None:
        """Frees the slot and queues what the broker must be told."""
        with contextlib.suppress(BaseException):  # as below
            word, failed = outcome_of(held, err)
            held.span.processed(word, err if failed else None)
        ending = self._verdict(held, result, err)  # without the lock: the text of err is the program's code
        with self._lock:
            self._busy -= 1
            phase = held.phase
            if phase in (Phase.RUNNING, Phase.LAPSED):
                self._end(held, ending)
            elif phase is Phase.LOST:
                self._claims.pop(held.name.token, None)
            self._more.notify_all()
            self._calmer.notify_all()
        with contextlib.suppress(BaseException):  # logging must not cost a slot: the text of err may raise
            log_end(held, phase, err)

    def _verdict(self, held: Held, result: _ending.Result | None, err: BaseException | None) -> _ending.Request:
        """Returns how a claim ends. If that cannot be told, the attempt fails: a claim without an ending would be extended forever."""
        try:
            out = verdict(held, result, err)
            if self._caller.encryption is not None and isinstance(out, worker_pb2.AckRequest):
                self._caller.encryption.seal_result(out)
            return out
        except BaseException as bad:  # for example, err's __str__ raises
            what = "a result that cannot be sent" if err is None else "an exception that cannot be described"
            return _ending.fail(held.name, RuntimeError(f"the handler ended with {what}: {type(err or bad).__name__}"))

    def _end(self, held: Held, ending: _ending.Request) -> None:
        held.phase, held.ending, held.due, held.ended = Phase.ENDED, ending, 0.0, time.time_ns()
        self._out.add(held)

    def _lose(self, token: str, reason: str) -> None:
        """Handles the broker's report that a claim was lost."""
        with self._lock:
            held = self._claims.get(token)
            if held is None or held.phase in (Phase.ENDED, Phase.LOST):
                return  # the response to its ending says more
            held.phase = Phase.LOST
            self._interrupt(held, loss(reason))
        log.log(logging.INFO if reason == "cancelled" else logging.WARNING, "%s: claim lost: %s", title(held), reason)

    # Leases

    def _keep(self) -> None:
        """Sweeps all claims whenever something is due."""
        while True:
            lapsed: list[Held] = []
            with self._lock:
                if self._ended:
                    return
                wait = self._next_sweep - time.monotonic()
                if wait > 0:
                    self._tick.wait(wait)
                else:
                    lapsed = self._sweep(time.monotonic())
            for held in lapsed:
                log.warning("%s: lease of %g s ended without confirmation by the broker", title(held), held.lease)

    def _sweep_at(self, when: float) -> None:
        if when < self._next_sweep:
            self._next_sweep = when
            self._tick.notify_all()

    def _sweep(self, now: float) -> list[Held]:
        """Queues the extensions and resends that are due, stops handlers whose lease has expired or whose time is up, and starts the
        probe that is due. It returns the claims whose lease has expired. The caller holds the lock."""
        soon, at = now + _SWEEP_STEP, now + _SWEEP_IDLE
        lapsed = [held for held in self._claims.values() if held.phase is Phase.RUNNING and held.lease_end <= now]
        for held in lapsed:
            held.phase = Phase.LAPSED
            self._interrupt(held, outcome.LeaseLost("the lease ended without confirmation by the broker"))
        for held in self._claims.values():
            if held.phase is Phase.RUNNING:
                at = min(at, self._sweep_running(held, now, soon))
            elif held.phase is Phase.ENDED and held.due:
                if held.due <= soon:
                    held.due = 0.0
                    self._out.add(held)
                else:
                    at = min(at, held.due)
        session = self._session
        if session is not None:  # here and not in the sender, which gRPC blocks while the node reads nothing
            if session.probe_at <= soon:
                session.probe_at = now + _PROBE_AFTER
                threading.Thread(target=self._probe, args=(session, session.frames), daemon=True).start()
            at = min(at, session.probe_at)
        self._next_sweep = max(at, soon)
        self._more.notify_all()
        return lapsed

    def _sweep_running(self, held: Held, now: float, soon: float) -> float:
        if held.deadline <= now:
            self._interrupt(held, outcome.TimedOut(f"timed out after {_convert.seconds_of(held.task.timeout):g} s"))
        if held.cause is not None:  # a handler that continues anyway loses its lease
            return held.lease_end
        if held.due <= soon:
            self._out.extends.append(held)
            held.due = now + held.lease / 3
        return min(held.due, held.lease_end, held.deadline)

    def set_progress(self, held: Held, progress: task_pb2.Progress) -> None:
        """Sends progress with the next extension, at the latest a second after the previous one."""
        with self._lock:
            if held.phase is Phase.RUNNING:
                held.progress = progress
                held.due = min(held.due, max(time.monotonic(), held.extended + _PROGRESS_STEP))
                self._sweep_at(held.due)

    def extended(self, held: Held, sent: float) -> None:
        """Records that a request, sent at the given time, extended a lease."""
        with self._lock:
            if held.phase is not Phase.RUNNING:
                return
            held.lease_end = max(held.lease_end, sent + held.lease)
            held.due = max(held.due, sent + held.lease / 3)

    def cause(self, held: Held) -> outcome.Interrupted | None:
        """Returns why a handler should stop."""
        with self._lock:
            return held.cause

    # The stream

    def _link(self) -> None:
        """Keeps a stream to the broker, over any number of connections. It ends when the run does, or when the broker rejects the
        worker: before ever having served it, or because of its token for _UNWANTED_FOR."""
        served, attempt, unwanted = False, 0, 0.0
        while not self._closing.is_set():
            start = time.monotonic()
            heard, err = self._stream()
            now = time.monotonic()
            if now - start > _STEADY:
                attempt = 0
            served = served or heard or now - start > _STEADY
            if self._closing.is_set():
                return
            not_let_in = isinstance(err, (errors.UnauthenticatedError, errors.PermissionDeniedError))
            unwanted = (unwanted or now) if not_let_in else 0.0
            final = not_let_in or isinstance(err, (errors.InvalidArgumentError, errors.ClientClosedError))
            if err is not None and (final and not served or unwanted and now - unwanted >= _UNWANTED_FOR):
                self._wake.put(err)
                return
            pause = _rpc.backoff(attempt, FIRST_RECONNECT, MAX_RECONNECT)
            if err is not None:
                pause = max(pause, min(err.retry_after, MAX_RECONNECT))
                log.log(logging.ERROR if not_let_in else logging.WARNING, "work stream broke, reconnecting in %.2f s: %s", pause, err)
            attempt += 1
            self._pause(pause)

    def _pause(self, seconds: float) -> None:
        reconnecting: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        with contextlib.suppress(errors.ClientClosedError):
            reconnecting = self._caller.connection.reconnecting(stream=True)
        with reconnecting:
            self._closing.wait(seconds)

    def _stream(self) -> tuple[bool, errors.PawlError | None]:
        """Opens a stream and works with it until it ends. It returns whether the broker sent anything, and what broke the stream.
        """
        now = time.monotonic()
        session = _Session(now, now + self._silence())
        try:
            self._caller.run(self._caller.know_namespace())  # now rather than when the first task arrives
            session.channel, turn = self._caller.connection.channel(stream=True)
            work = session.channel.stream_stream(
                _WORK, request_serializer=_rpc.serialize, response_deserializer=worker_pb2.WorkResponse.FromString
            )
            metadata = self._caller.connection.metadata()
        except errors.PawlError as err:
            return False, err
        with self._lock:
            first = self._attach(session)
        try:
            try:
                session.call = work(self._frames(session, first), metadata=metadata)
            except ValueError:  # raised by grpc for a closed channel: another worker of the app has just found that its node hangs
                return False, errors.UnavailableError("the node does not answer")
            draining = False
            for frame in session.call:
                draining = self._receive(session, frame) or draining
            return session.frames > 0, errors.UnavailableError("the broker is shutting down") if draining else None
        except grpc.RpcError as err:
            if err.code() is grpc.StatusCode.CANCELLED and not session.renew and not self._caller.connection.closed:
                self._caller.connection.move_on(turn)
                return session.frames > 0, errors.UnavailableError("the node does not answer")
            return session.frames > 0, self._caller.failed(err, turn)
        finally:
            with self._lock:
                session.over = True
                self._session = None
                self._more.notify_all()
            if session.sender is not None:  # it has a lock that the end of the program needs
                session.sender.join(_CLOSE_TIMEOUT)

    def _silence(self) -> float:
        silence: float = min(_SILENT_AFTER * 2 ** min(self._silences, 10), _MAX_SILENCE)
        return silence * random.uniform(1, 1.25)

    def _attach(self, session: _Session) -> worker_pb2.WorkRequest:
        """Returns the first frame of a stream. Everything the broker has not confirmed is queued again, and all leases are
        extended, which shows whether they are still valid."""
        self._out = _Outbox(quiet=self._quiet)
        for held in self._claims.values():
            if held.phase is Phase.ENDED and not held.due:
                self._out.add(held)
            elif held.phase is Phase.RUNNING:
                held.due = session.opened
                held.unanswered.clear()
                self._sweep_at(held.due)
        self._granted = 0
        self._session = session
        first = worker_pb2.WorkRequest(hello=self._hello, quiet=self._quiet)
        first.hello.quiet_version = self._quiet_version
        if self._takes():
            first.grant = self._grant()
        return first

    def _takes(self) -> bool:
        return not self._quiet and not self._quiet_version

    def _frames(self, session: _Session, first: worker_pb2.WorkRequest) -> Iterator[worker_pb2.WorkRequest]:
        """Yields the frames of a stream until it ends or should be closed. It runs in a gRPC thread."""
        session.sender = threading.current_thread()
        yield first
        # gRPC asks for more only after it has sent the first frame, over a connection.
        log.info("work stream open: worker %s, %d types, %d slots", self._hello.worker, len(self._hello.types), self._concurrency)
        while True:
            with self._lock:
                frame = self._next_frame()
                while frame is None:
                    if session.over:
                        return
                    now = time.monotonic()
                    if now >= session.silent_at:
                        self._silences += 1
                        session.renew = True
                    if session.renew:
                        break
                    self._more.wait(session.silent_at - now)
                    frame = self._next_frame()
                if frame is not None and frame.HasField("settle"):
                    session.probe_at = min(session.probe_at, time.monotonic() + _PROBE_AFTER)
                    self._sweep_at(session.probe_at)
            if frame is None:
                break
            yield frame
        # Graceful close: the broker pushes no more tasks, answers the frames it has, and ends the stream. Tasks it pushed before
        # that are still received.
        timer = threading.Timer(_CLOSE_TIMEOUT, lambda: session.call.cancel())
        timer.daemon = True
        timer.start()
        yield worker_pb2.WorkRequest(quiet=True)

    def _probe(self, session: _Session, frames: int) -> None:
        """Closes the connection of a stream whose node hangs. A node that is busy answers. If the answer is late, this process was
        stopped and has not read it yet: the next probe will show."""
        began = time.monotonic()
        try:
            session.channel.unary_unary(HEALTH_CHECK)(b"", timeout=_PROBE_TIMEOUT)
        except grpc.RpcError as err:
            late = time.monotonic() - began > _PROBE_TIMEOUT + 0.5
            with self._lock:
                hangs = err.code() is grpc.StatusCode.DEADLINE_EXCEEDED and not late and not session.over and session.frames == frames
            if hangs:
                self._caller.connection.discard(session.channel)
        except ValueError:
            pass  # the channel was closed

    def _close_session(self) -> None:
        with self._lock:
            if self._session is not None:
                self._session.renew = True
                self._more.notify_all()

    def _next_frame(self) -> worker_pb2.WorkRequest | None:
        """Gathers what should be sent to the broker now. Free slots are granted together with the endings that freed them, unless
        the broker has no others."""
        frame = worker_pb2.WorkRequest()
        settles, ready = self._take(frame.settle)
        if not settles:
            frame.ClearField("settle")
        if self._quiet and not self._out.quiet:
            frame.quiet = self._out.quiet = True
        if self._takes() and (ready or self._granted == 0):
            frame.grant = self._grant()
        return frame if settles or frame.quiet or frame.grant else None

    def _grant(self) -> int:
        """Grants all free slots to the broker, or fewer if too many endings await confirmation."""
        unsettled = len(self._claims) - self._busy
        free = self._concurrency - self._busy - self._granted
        free = max(0, min(free, self._concurrency + MAX_SETTLE - unsettled))
        self._granted += free
        return free

    def _take(self, settle: worker_pb2.SettleRequest) -> tuple[bool, bool]:
        """Fills a frame with extensions, and with the endings of shards that have room for another frame. Returns whether there is
        anything in it, and whether it has endings or none wait for room."""
        now = time.monotonic()
        extends, self._out.extends = self._out.extends[: MAX_SETTLE], self._out.extends[MAX_SETTLE :]
        for held in extends:
            if held.phase is Phase.RUNNING:
                settle.extends.append(extension(held, now))
        limit, size, taken = MAX_SETTLE - len(extends), 0, 0
        for shard in self._out.endings.values():
            if shard.full:
                continue
            n = 0
            for held in shard.waiting[: limit - taken]:
                assert held.ending is not None
                size += held.ending.ByteSize()
                if taken + n > 0 and size > _ending.MAX_BYTES:
                    break
                _ending.add(held.ending, settle)
                n += 1
            del shard.waiting[:n]
            if n > 0:
                shard.frames.append(n)
            taken += n
        waits = any(shard.waiting for shard in self._out.endings.values() if shard.full)
        return taken > 0 or len(settle.extends) > 0, taken > 0 or not waits

    def _receive(self, session: _Session, frame: worker_pb2.WorkResponse) -> bool:
        """Handles a frame from the broker, and returns whether the broker is shutting down."""
        now = time.monotonic()
        with self._lock:
            session.frames += 1
            self._silences = 0
            session.silent_at = now + self._silence()
        if frame.HasField("settled"):
            self._settled(frame.settled, now)
        with self._lock:
            awaiting = any(shard.frames for shard in self._out.endings.values())
            session.probe_at = now + _PROBE_AFTER if awaiting else math.inf
        if frame.HasField("quiet"):
            self._set_quiet(frame.quiet)
        for lost in frame.lost:
            self._lose(lost.claim_token, lost.reason)
        if frame.tasks:
            self._accept(list(frame.tasks), now)
        if frame.draining:
            self._close_session()
        return bool(frame.draining)

    def _set_quiet(self, notice: worker_pb2.QuietNotice) -> None:
        """Handles an operator's order. Slots stay granted: the broker uses them when the worker may take tasks again."""
        with self._lock:
            was, self._quiet_version = self._quiet_version, max(notice.version, 1) if notice.quiet else 0
            self._more.notify_all()
        if notice.quiet and not was:
            log.info("an operator has made the worker quiet, it takes no new tasks: %s", notice.reason)
        elif was and not notice.quiet:
            log.info("the worker takes tasks again")

    def _settled(self, answer: worker_pb2.SettleResponse, now: float) -> None:
        """Handles the responses to settle frames."""
        refused, confirmed = [], []
        with self._lock:
            for each in (*answer.acks, *answer.fails, *answer.releases):
                self._out.of(each.task_id).answered()
                held = self._claims.get(each.claim_token)
                if held is None or held.phase is not Phase.ENDED:
                    continue  # answered a second time
                if not each.HasField("error"):
                    del self._claims[each.claim_token]
                    confirmed.append(held)
                    continue
                err = errors.of_proto(each.error)
                refused.append((held, err))
                self._refused(held, err, now)
            self._more.notify_all()
            self._calmer.notify_all()
        for held in confirmed:
            held.span.settled(_ending.verb(held.ending), held.task.queue, self._caller.connection.server, held.ended)
        for held, err in refused:
            log.warning("%s: the broker rejected the task's outcome: %s", title(held), err)
        for each in answer.extends:
            self._extended(each)

    def _refused(self, held: Held, err: errors.PawlError, now: float) -> None:
        """Decides what to do with an ending that the broker refused. The caller holds the lock."""
        if isinstance(err, (errors.UnavailableError, errors.RateLimitedError, errors.InternalError)):
            held.due = now + max(_rpc.backoff(held.tries, FIRST_RESEND, MAX_RESEND), min(err.retry_after, MAX_RESEND))
            held.tries += 1
            self._sweep_at(held.due)
        elif isinstance(err, (errors.InvalidArgumentError, errors.PayloadTooLargeError)) and not held.is_fallback:
            assert held.ending is not None
            held.is_fallback = True
            self._end(held, _ending.fallback(held.name, held.ending, err))
        else:  # stale or not found: the claim ended some other way
            del self._claims[held.name.token]

    def _extended(self, answer: worker_pb2.Settled) -> None:
        """Handles the response to one extension. If the broker was unavailable, the next extension is due before the lease ends."""
        sent = 0.0
        with self._lock:
            held = self._claims.get(answer.claim_token)
            if held is not None and held.unanswered:
                # A refusal may overtake the responses to earlier ones, which must not confirm a later time than their own.
                sent = held.unanswered.pop(-1 if answer.HasField("error") else 0)
        if answer.error.code in ("stale_claim", "not_found"):
            self._lose(answer.claim_token, answer.error.reason)
        elif held is not None and not answer.HasField("error"):
            self.extended(held, sent)

    # The end

    def _give_up(self) -> None:
        """Stops the handlers of a worker that the broker rejects. Their tasks run again when their leases have expired."""
        with self._lock:
            self._quiet = True
            self._interrupt_all()
            self._calmer.wait_for(lambda: self._busy == 0, _DRAIN_GRACE)

    def _interrupt_all(self) -> None:
        for held in self._claims.values():
            if held.phase is not Phase.ENDED:
                self._interrupt(held, outcome.Draining("the worker is stopping"))

    def _drain(self, link: threading.Thread) -> None:
        """Ends the run gracefully: no new tasks, handlers finish, the broker confirms."""
        abandoned: list[Held] = []
        with self._lock:
            self._quiet = True
            busy = self._busy
            self._more.notify_all()
        log.info("draining: %d tasks running", busy)
        with self._lock:
            if not self._calmer.wait_for(lambda: self._busy == 0, self._drain_timeout):
                self._interrupt_all()
                if not self._calmer.wait_for(lambda: self._busy == 0, _DRAIN_GRACE):
                    abandoned = self._abandon()
            self._calmer.wait_for(lambda: not self._unconfirmed(), _SETTLE_TIMEOUT)
        for held in abandoned:
            log.error("%s: the handler does not stop: it is abandoned and its task is released", title(held))
        self._closing.set()
        self._close_session()
        link.join(2 * _CLOSE_TIMEOUT)
        self._settle_rest()

    def _abandon(self) -> list[Held]:
        """Releases the tasks whose handlers do not return, and returns their claims."""
        out = [held for held in self._claims.values() if held.phase in (Phase.RUNNING, Phase.LAPSED)]
        for held in out:
            self._end(held, _ending.release(held.name))
        self._more.notify_all()
        return out

    def _unconfirmed(self) -> list[Held]:
        return [held for held in self._claims.values() if held.phase is Phase.ENDED]

    def _settle_rest(self) -> None:
        """Sends the endings that the stream left unconfirmed, by separate calls."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT
        while True:
            with self._lock:
                rest = self._unconfirmed()
                if not rest:
                    return
                self._out = _Outbox()
                for held in rest:
                    self._out.add(held)
                frame = worker_pb2.SettleRequest()
                self._take(frame)
            try:
                answer = self._caller.run(self._caller.call(_rpc.SETTLE, frame, deadline))
            except (TimeoutError, errors.PawlError) as err:
                raise errors.UnavailableError(f"the outcomes of {len(rest)} tasks are unconfirmed, so they may run again: {err}") from err
            self._settled(answer, time.monotonic())
            time.sleep(_SWEEP_STEP)  # the rest could not be accepted


class _Holder:
    """A claim's view of the run that holds it."""

    held: Held

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def caller(self) -> _rpc.Caller:
        return self._run._caller

    def cause(self) -> outcome.Interrupted | None:
        return self._run.cause(self.held)

    def set_progress(self, progress: task_pb2.Progress) -> None:
        self._run.set_progress(self.held, progress)

    def extended(self, sent: float) -> None:
        self._run.extended(self.held, sent)

    def lost(self, reason: str) -> None:
        self._run._lose(self.held.name.token, reason)
