"""Makes calls, and retries them while the broker is unavailable.

An operation is a generator: it yields calls and pauses, receives responses or exceptions, and returns its result. Each is written
only once, and runs in a thread (Caller.run) or on any event loop (Caller.arun), over the same channel.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import math
import random
import sys
import threading
import time
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from concurrent import futures
from dataclasses import dataclass
from types import FrameType
from typing import Any, Callable, Generic, TypeVar, Union, cast

import grpc
from google.protobuf.message import Message

from pawl import _convert, _messages, errors
from pawl._connection import Connection
from pawl._encrypt import Encryption
from pawl._gather import Gatherer
from pawl._limits import FIRST_PAUSE, MAX_ACTOR, MAX_PAUSE
from pawl.v1 import access_pb2, call_pb2, group_pb2, once_pb2, producer_pb2, schedule_pb2, worker_pb2

T = TypeVar("T")
Resp = TypeVar("Resp", bound=Message)
M = TypeVar("M", bound=Message)

_EARLY = 0.05  # gRPC may end an attempt a little before its time
_ATTEMPT = 10.0  # how long one attempt of a call may take, beyond the time that the server is asked to wait
# Retries beyond the budget after a node that was not ready, because the next node may be. After a lost connection, for which no server asks
# to wait, it is one: the calls in flight on a connection are many, and most of their shards have leaders.
_FREE_TRIES = 3


@dataclass(frozen=True)
class Method(Generic[Resp]):
    """A unary method of the API."""

    path: str
    response: type[Resp]


WHO_AM_I = Method("/pawl.v1.AccessService/WhoAmI", access_pb2.WhoAmIResponse)
ENQUEUE_BATCH = Method("/pawl.v1.ProducerService/EnqueueBatch", producer_pb2.EnqueueBatchResponse)
GET_TASK = Method("/pawl.v1.ProducerService/GetTask", producer_pb2.GetTaskResponse)
CANCEL_TASK = Method("/pawl.v1.ProducerService/CancelTask", producer_pb2.CancelTaskResponse)
CREATE_GROUP = Method("/pawl.v1.GroupService/CreateGroup", group_pb2.CreateGroupResponse)
ADD_GROUP_TASKS = Method("/pawl.v1.GroupService/AddGroupTasks", group_pb2.AddGroupTasksResponse)
GET_GROUP = Method("/pawl.v1.GroupService/GetGroup", group_pb2.GetGroupResponse)
LIST_GROUP_MEMBERS = Method("/pawl.v1.GroupService/ListGroupMembers", group_pb2.ListGroupMembersResponse)
CLOSE_GROUP = Method("/pawl.v1.GroupService/CloseGroup", group_pb2.CloseGroupResponse)
CANCEL_GROUP = Method("/pawl.v1.GroupService/CancelGroup", group_pb2.CancelGroupResponse)
PUT_SCHEDULE = Method("/pawl.v1.ScheduleService/PutSchedule", schedule_pb2.PutScheduleResponse)
GET_SCHEDULE = Method("/pawl.v1.ScheduleService/GetSchedule", schedule_pb2.GetScheduleResponse)
LIST_SCHEDULES = Method("/pawl.v1.ScheduleService/ListSchedules", schedule_pb2.ListSchedulesResponse)
DELETE_SCHEDULE = Method("/pawl.v1.ScheduleService/DeleteSchedule", schedule_pb2.DeleteScheduleResponse)
PAUSE_SCHEDULE = Method("/pawl.v1.ScheduleService/PauseSchedule", schedule_pb2.PauseScheduleResponse)
RESUME_SCHEDULE = Method("/pawl.v1.ScheduleService/ResumeSchedule", schedule_pb2.ResumeScheduleResponse)
TRIGGER_SCHEDULE = Method("/pawl.v1.ScheduleService/TriggerSchedule", schedule_pb2.TriggerScheduleResponse)
LIST_SCHEDULE_HISTORY = Method("/pawl.v1.ScheduleService/ListScheduleHistory", schedule_pb2.ListScheduleHistoryResponse)
BEGIN_ONCE = Method("/pawl.v1.WorkerService/BeginOnce", once_pb2.BeginOnceResponse)
FINISH_ONCE = Method("/pawl.v1.WorkerService/FinishOnce", once_pb2.FinishOnceResponse)
ABANDON_ONCE = Method("/pawl.v1.WorkerService/AbandonOnce", once_pb2.AbandonOnceResponse)
EXTEND = Method("/pawl.v1.WorkerService/Extend", worker_pb2.ExtendResponse)
SETTLE = Method("/pawl.v1.WorkerService/Settle", worker_pb2.SettleResponse)


@dataclass(frozen=True)
class Send:
    """Makes one call. The response is sent into the generator; a failure is thrown into it as a PawlError."""

    method: Method[Any]
    request: Message
    timeout: float = math.inf  # the limit of an attempt ends it, too


@dataclass(frozen=True)
class Pause:
    """Waits."""

    seconds: float
    after: errors.PawlError | None = None
    """A call has failed with it: the connection may be lost and should be reestablished during the pause."""


@dataclass(frozen=True)
class Wait:
    """Waits for a future that another operation completes."""

    turn: futures.Future[None]


@dataclass(frozen=True)
class Do:
    """Calls a function of the program. It must return an awaitable if the operation runs on an event loop."""

    fn: Callable[[], Any]


@dataclass(frozen=True)
class Finish:
    """Runs an operation to its end, even if the asyncio task is cancelled meanwhile; the cancellation is delivered afterwards. The limit of
    the caller does not apply: the operation has its own."""

    op: Generator[Any, Any, None]


Action = Union[Send, Pause, Wait, Do, Finish]
Op = Generator[Action, Any, T]


@dataclass(frozen=True)
class Listed(Generic[T]):
    """A page of a list."""

    items: Sequence[T]
    next_cursor: str
    missing: Sequence[call_pb2.Missing] = ()
    """The shards and nodes whose items are missing."""


Page = Callable[[str], Op[Listed[T]]]
"""Gets the page of a list at a cursor, and the cursor of the next page, which is "" on the last page."""


class _Missing:
    """The shards and nodes that any page of a list lacks."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], call_pb2.Missing] = {}

    def add(self, missing: Sequence[call_pb2.Missing]) -> None:
        """Adds what a page lacks."""
        for each in missing:
            self._first.setdefault((each.node, each.shard), each)

    def check(self) -> None:
        """Raises IncompleteError if a page lacks something."""
        if self._first:
            raise errors.IncompleteError([_messages.read(errors.Missing, each) for each in self._first.values()])


class Caller:
    """Runs operations over a connection. Any number of threads and event loops may use it at the same time."""

    def __init__(self, connection: Connection, retry_for: float, encryption: Encryption | None = None) -> None:
        self.connection = connection
        self.retry_for = retry_for
        self.encryption = encryption
        self.gatherer = Gatherer()
        self._budget = _RetryBudget()
        self._ended = threading.Event()
        self._actor = ""
        self._timeout = math.inf

    def acting(self, actor: str) -> Caller:
        """Returns a caller for the same connection whose calls name an actor."""
        _check_actor(actor)
        other = copy.copy(self)
        other._actor = actor
        other.gatherer = Gatherer()  # a request has one actor
        return other

    def within(self, limit: _convert.Seconds) -> Caller:
        """Returns a caller for the same connection each of whose operations raises TimeoutError after this time."""
        timeout = math.inf if limit == math.inf else _convert.seconds("timeout", limit)
        if not timeout > 0:
            raise errors.invalid("timeout", f"is {timeout}, want more than 0 s")
        other = copy.copy(self)
        other._timeout = timeout
        return other

    def _metadata(self) -> Sequence[tuple[str, str]]:
        metadata = self.connection.metadata()
        return [*metadata, ("pawl-actor", self._actor)] if self._actor else metadata

    def call(self, method: Method[Resp], request: Message, deadline: float | None = None, *, repeat: bool = True) -> Op[Resp]:
        """Makes a call, and retries it while the broker is unavailable: for retry_for seconds, or until the deadline on the
        monotonic clock, after which it raises TimeoutError. repeat is False if a retry would fail after the first call was done, or
        would do more: then there is none."""
        response = yield from self._call(method, (yield from self.sealed(request)), deadline, repeat)
        if self.encryption is not None and self.encryption.holds(response):
            yield from self.know_namespace()
            self.encryption.open(request, response)
        return response

    def attempt(self, method: Method[Resp], request: Message) -> Op[Resp]:
        """Makes a call whose request is already encrypted and whose response needs no decryption. Retrying is up to the caller.
        """
        response = yield from self.once(method, request)
        self._budget.succeeded()
        return response

    def sealed(self, message: M) -> Op[M]:
        """Encrypts the contents of a message, if the client encrypts. The message itself is not changed."""
        if self.encryption is None or not self.encryption.holds(message):
            return message
        yield from self.know_namespace()
        return self.encryption.seal(message)

    def know_namespace(self) -> Op[None]:
        """Asks once for the namespace of the client's calls, to which encrypted payloads are bound."""
        if self.encryption is not None and not self.encryption.namespace:
            me = yield from self._call(WHO_AM_I, access_pb2.WhoAmIRequest(), None)
            self.encryption.namespace = me.namespace

    def _call(self, method: Method[Resp], request: Message, deadline: float | None, repeat: bool = True) -> Op[Resp]:
        start = time.monotonic()
        for attempt in itertools.count():
            try:
                response: Resp = yield Send(method, request, _left(deadline))
            except errors.UnavailableError as err:
                if not repeat:
                    raise
                now = time.monotonic()
                if deadline is not None and now >= deadline:
                    raise _late(err) from err
                if now - start >= self.retry_for:
                    raise
                yield Pause(self.pause(attempt, err), after=err)
            else:
                self._budget.succeeded()
                return response
        raise AssertionError("unreachable")

    def once(self, method: Method[Resp], request: Message, deadline: float | None = None) -> Op[Resp]:
        """Makes a call that must not be retried: a retry would not get the response of the first call."""
        response: Resp = yield Send(method, request, _left(deadline))
        return response

    def pause(self, attempt: int, err: errors.PawlError) -> float:
        """Returns how long to wait before retrying a call that failed with err."""
        not_ready = err.reason == "node_not_ready"
        rest = 0.0 if not_ready else err.retry_after
        pause = max(backoff(attempt, FIRST_PAUSE, MAX_PAUSE), rest)
        if attempt >= _FREE_TRIES or rest > 0 or (attempt > 0 and not not_ready):
            pause = max(pause, self._budget.take(time.monotonic()))
        return pause

    def run(self, op: Op[T]) -> T:
        """Runs an operation in this thread."""
        _refuse_on_loop()
        deadline = time.monotonic() + self._timeout
        return _drive(op, lambda action: self._perform(action, deadline))

    def _perform(self, action: Action, deadline: float) -> Any:
        if isinstance(action, Do):
            return action.fn()
        if isinstance(action, Finish):
            return _drive(action.op, lambda each: self._perform(each, math.inf))
        left = _left(deadline)
        if isinstance(action, Wait):
            try:
                return action.turn.result(None if left == math.inf else left)
            except futures.TimeoutError:
                raise _late() from None
        if isinstance(action, Pause):
            with self._reconnecting(action):
                self._ended.wait(min(action.seconds, left))
            return _check(deadline, action.after)
        multicallable, turn = self._multicallable(action.method)
        try:
            return multicallable(action.request, timeout=_limit(action, left), metadata=self._metadata())
        except grpc.RpcError as err:
            failed = self.failed(err, turn)
            _check(deadline - _EARLY, failed)
            raise failed from None
        except ValueError as err:  # raised by grpc for a call on a closed channel
            raise self._closed_or(err) from None

    async def arun(self, op: Op[T]) -> T:
        """Runs an operation on the caller's event loop, without blocking it."""
        return await self._adrive(op, time.monotonic() + self._timeout)

    async def _adrive(self, op: Op[T], deadline: float) -> T:
        try:
            action = next(op)
            while True:
                try:
                    result = await self._aperform(action, deadline)
                except Exception as err:
                    action = op.throw(err)
                else:
                    action = op.send(result)
        except StopIteration as end:
            out: T = end.value
            return out
        finally:
            op.close()  # if the task was cancelled

    async def _aperform(self, action: Action, deadline: float) -> Any:
        if isinstance(action, Do):
            return await action.fn()
        if isinstance(action, Finish):
            return await self._afinish(action.op)
        left = _left(deadline)
        if isinstance(action, Wait):
            try:
                return await asyncio.wait_for(_ended(action.turn), None if left == math.inf else left)
            except asyncio.TimeoutError:
                raise _late() from None
        if isinstance(action, Pause):
            with self._reconnecting(action):
                await asyncio.sleep(min(action.seconds, left))
            return _check(deadline, action.after)
        multicallable, turn = self._multicallable(action.method)
        try:
            call = multicallable.future(action.request, timeout=_limit(action, left), metadata=self._metadata())
        except ValueError as err:
            raise self._closed_or(err) from None
        try:
            await _ended(call)
        except asyncio.CancelledError:
            call.cancel()
            raise
        try:
            return call.result()
        except grpc.RpcError as err:
            failed = self.failed(err, turn)
            _check(deadline - _EARLY, failed)
            raise failed from None
        except grpc.FutureCancelledError as err:
            raise self._closed_or(err) from None

    async def _afinish(self, op: Op[None]) -> None:
        running = asyncio.ensure_future(self._adrive(op, math.inf))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            raise

    def _reconnecting(self, pause: Pause) -> contextlib.AbstractContextManager[None]:
        return self.connection.reconnecting() if pause.after is not None else contextlib.nullcontext()

    def _multicallable(self, method: Method[Any]) -> tuple[Any, int]:
        channel, turn = self.connection.channel()
        return (
            channel.unary_unary(method.path, request_serializer=serialize, response_deserializer=method.response.FromString),
            turn,
        )

    def failed(self, err: grpc.RpcError, turn: int) -> errors.PawlError:
        """Returns the exception for a failed call, and moves on from an address that did not answer."""
        if self.connection.closed:
            return errors.ClientClosedError("the client was closed")
        out = errors.of_call(err)
        if isinstance(out, errors.UnavailableError):
            self.connection.move_on(turn)
        return out

    def _closed_or(self, err: Exception) -> Exception:
        return errors.ClientClosedError("the client was closed") if self.connection.closed else err

    def pages(self, page: Page[T]) -> Iterator[T]:
        """Iterates over a list, a page at a time, in this thread. If some of it may be missing, IncompleteError ends it."""
        _refuse_on_loop()
        return _pages(self, page)

    async def apages(self, page: Page[T]) -> AsyncIterator[T]:
        """Async version of pages."""
        cursor = ""
        missing = _Missing()
        while True:
            got = await self.arun(page(cursor))
            for item in got.items:
                yield item
            missing.add(got.missing)
            cursor = got.next_cursor
            if not cursor:
                break
        missing.check()

    def close(self) -> None:
        """Ends all calls, and all pauses between retries, with ClientClosedError."""
        self._ended.set()
        self.connection.close()


def _pages(caller: Caller, page: Page[T]) -> Iterator[T]:
    cursor = ""
    missing = _Missing()
    while True:
        got = caller.run(page(cursor))
        yield from got.items
        missing.add(got.missing)
        cursor = got.next_cursor
        if not cursor:
            break
    missing.check()


def on_loop() -> bool:
    """Reports whether an event loop runs in this thread."""
    with contextlib.suppress(RuntimeError):
        return bool(asyncio.get_running_loop())
    return False


def _refuse_on_loop() -> None:
    """Raises RuntimeError on an event loop. A call would block it, and forever if it waits for a coroutine of the same loop."""
    if not on_loop():
        return
    called, frame = "", sys._getframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("pawl."):
        called, frame = frame.f_code.co_name, cast(FrameType, frame.f_back)
    twin = f"await_{called[5:]}" if called.startswith("wait_") else f"a{called}"
    raise RuntimeError(f"{called} would block the event loop: use {twin}")


def _check_actor(actor: str) -> None:
    if not (isinstance(actor, str) and 1 <= len(actor) <= MAX_ACTOR and actor.isascii() and actor.isprintable()):
        raise errors.invalid("actor", f"{actor!r:.64} is not 1 to {MAX_ACTOR} characters of printable ASCII")


def serialize(message: Message) -> bytes:
    """Encodes a request."""
    return bytes(message.SerializeToString())


async def _ended(future: Any) -> None:
    """Waits for a future that other threads may complete. The future is not cancelled with its waiter."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(lambda _: _call_in(loop, _set_done, done))
    await done


def _set_done(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)


def _call_in(loop: asyncio.AbstractEventLoop, fn: Any, *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(fn, *args)
    except RuntimeError:
        pass  # the loop was closed: nothing waits any more


def _drive(op: Op[T], perform: Any) -> T:
    try:
        action = next(op)
        while True:
            try:
                result = perform(action)
            except Exception as err:
                action = op.throw(err)
            else:
                action = op.send(result)
    except StopIteration as end:
        out: T = end.value
        return out
    finally:
        op.close()  # if the program is interrupted


def _left(deadline: float | None) -> float:
    return math.inf if deadline is None else max(deadline - time.monotonic(), 0.001)


def _limit(action: Send, left: float) -> float:
    """Returns how long an attempt may take. Some requests ask the server to wait before it answers."""
    wait = getattr(action.request, "wait", None)
    waits: float = 0.0 if wait is None else wait.seconds + wait.nanos / 1e9
    return min(_ATTEMPT + waits, action.timeout, left)


def _late(err: Exception | None = None) -> TimeoutError:
    return TimeoutError("no answer in time" + (f": {err}" if err is not None else ""))


def _check(deadline: float, err: errors.PawlError | None = None) -> None:
    """Raises TimeoutError if an operation's time is up. A refusal is an answer, even if it comes late."""
    if time.monotonic() >= deadline and (err is None or isinstance(err, errors.UnavailableError)):
        raise _late(err) from err


def backoff(attempt: int, first: float, limit: float) -> float:
    """Doubles from first up to limit, reduced by a random share of up to a half, so that clients don't reconnect in lockstep."""
    full: float = min(first * 2 ** min(attempt, 16), limit)
    return full * random.uniform(0.5, 1)


class _RetryBudget:
    """Paces the retries of all calls of a client, to protect a recovering broker from a retry storm: a burst of ten, then one for
    every ten successful calls, and in any case five per second."""

    _MAX = 10.0
    _PER_SUCCESS = 0.1
    _PER_SECOND = 5.0

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tokens = self._MAX
        self._last = time.monotonic()

    def succeeded(self) -> None:
        with self._lock:
            self._tokens = min(self._tokens + self._PER_SUCCESS, self._MAX)

    def take(self, now: float) -> float:
        """Takes one token, and returns how long to wait for it."""
        with self._lock:
            self._tokens = min(self._tokens + (now - self._last) * self._PER_SECOND, self._MAX)
            self._last = now
            self._tokens = max(self._tokens - 1, -MAX_PAUSE * self._PER_SECOND)
            return max(-self._tokens / self._PER_SECOND, 0.0)
