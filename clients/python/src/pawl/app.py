"""App: the tasks of a program, and the client that enqueues them."""

from __future__ import annotations

import inspect
import time
from collections.abc import Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Generic, ParamSpec, TypeVar, Union, cast, overload

from pawl import _convert, _rpc, errors, models
from pawl._connection import TLS, Token, from_environment
from pawl.models import TaskInfo
from pawl.options import Options, merge, spec
from pawl.outcome import Poison
from pawl.v1 import producer_pb2, task_pb2

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from pawl.claim import Claim

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
F = TypeVar("F", bound="Callable[[Claim], Any]")

_MAX_BATCH_TASKS = 1000
_MAX_BATCH_BYTES = 4 << 20
_WAIT_STEP = 30.0  # how long one call waits for the end of a task
_WAIT_SLACK = 5.0  # how long after its timeout an answer may come that says the task has not ended


class App:
    """The tasks of a program, and the client that enqueues them. It may be used by any number of threads and event loops.

    server is "host:port", "host", "https://host:port" or "unix:///path"; a cluster is a list of addresses with commas. What is not
    given is taken from the environment: PAWL_SERVER, PAWL_TOKEN, PAWL_TOKEN_FILE, PAWL_NAMESPACE, PAWL_TLS_CA, PAWL_CLIENT_CERT and
    PAWL_CLIENT_KEY. Nothing is connected before the first call; a connection that breaks is made anew.

    A call that finds the broker unavailable is repeated for retry_for seconds. Repeats of an enqueue carry the request id of the
    first try, so that they never make a second task.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: Token = None,
        namespace: str | None = None,
        tls: TLS | None = None,
        plaintext: bool = False,
        retry_for: float = 30.0,
    ) -> None:
        connection = from_environment(server, token, namespace, tls, plaintext=plaintext)
        self._caller = _rpc.Caller(connection, retry_for)
        self.handlers: dict[str, Handler] = {}
        """The handlers by type of task. For reading."""

    @overload  # a coroutine function fits both, and the first counts
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]:  # type: ignore[misc]
        ...

    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]:
        ...

    @overload
    def task(self, name: str = "", /, **options: Unpack[Options]) -> _Decorator:
        ...

    def task(self, what: Any = "", /, **options: Any) -> Any:
        """Makes a function the handler of a type of task, with or without arguments: @app.task, @app.task("mail.welcome", queue="mail").

        The type is the name of the function unless one is given. The payload is a JSON object of the arguments by name, as a Go
        struct makes it. The return value becomes the task's result. The function may be a coroutine function.
        """
        decorate = _Decorator(self, "" if callable(what) else what, merge(Options(), cast(Options, options)))
        return decorate(what) if callable(what) else decorate

    def handler(self, type: str) -> Callable[[F], F]:
        """Makes a function the handler of a type of task that gets the Claim itself: for payloads that are not JSON objects."""

        def decorate(fn: F) -> F:
            self._register(Handler(type, fn, inspect.iscoroutinefunction(fn), lambda claim: ((claim,), {})))
            return fn

        return decorate

    def _register(self, handler: Handler) -> None:
        if handler.type in self.handlers:
            raise ValueError(f"there are two handlers for the type {handler.type!r}")
        self.handlers[handler.type] = handler

    def call(self, type: str, payload: Any = None, *, content_type: str = "", **options: Unpack[Options]) -> Call[Any]:
        """Describes a task whose function is not in this program. The payload is encoded as JSON, unless it has another content
        type: then it is bytes, and sent as it is."""
        own = merge(Options(), options)
        if content_type in ("", _convert.JSON):
            return Call(self, type, _convert.encode("payload", payload), content_type, own)
        if not isinstance(payload, bytes):
            raise errors.invalid("payload", f"is {payload!r}; with the content type {content_type!r} it must be bytes")
        return Call(self, type, payload, content_type, own)

    def enqueue_many(self, calls: Iterable[Call[Any]]) -> list[Ref[Any]]:
        """Enqueues many tasks, in as few requests as they fit in. If some are refused the others are enqueued all the same, and
        BatchError tells of each."""
        return self._caller.run(_enqueue_many(self, calls))

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> list[Ref[Any]]:
        """Is enqueue_many for event loops."""
        return await self._caller.arun(_enqueue_many(self, calls))

    def ref(self, id: str) -> Ref[Any]:
        """Refers to a task by its id."""
        return Ref(self, id)

    def close(self) -> None:
        """Ends the calls that are under way, and the connection. Workers must have ended before."""
        self._caller.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Handler:
    """The function that runs tasks of a type."""

    type: str
    fn: Callable[..., Any]
    is_async: bool
    arguments: Callable[[Claim], tuple[Sequence[Any], Mapping[str, Any]]]
    """Gives the arguments of a task, or raises Poison."""


class _Decorator:
    """What @app.task(...) returns."""

    def __init__(self, app: App, name: str, options: Options) -> None:
        self._app = app
        self._name = name
        self._options = options

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]:  # type: ignore[misc]
        ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]:
        ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        is_async = inspect.iscoroutinefunction(fn)
        make: type[_Task[Any, Any]] = AsyncTask if is_async else Task
        task = make(self._app, fn, self._name or fn.__name__, self._options)
        self._app._register(Handler(task.type, fn, is_async, task._arguments))
        return task


class _Task(Generic[P, R]):
    """What Task and AsyncTask have in common."""

    def __init__(self, app: App, fn: Callable[..., Any], type: str, options: Options) -> None:
        self.app = app
        self.type = type
        self._fn = fn
        self._options = options
        self._signature = inspect.signature(fn)
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(f"{type}: the payload has arguments by name, and {parameter} has none")
        self._takes_more = any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values())
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__wrapped__ = fn

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Describes a task with these arguments, to be enqueued with others. Arguments that do not fit raise TypeError."""
        return Call(self.app, self.type, _convert.encode("payload", self._payload(*args, **kwargs)), "", self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Enqueues a task with these arguments. When it returns, the task is on stable storage."""
        return self.call(*args, **kwargs).enqueue()

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Is enqueue for event loops."""
        return await self.call(*args, **kwargs).aenqueue()

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Ref[R]]:
        """Enqueues a task for each set of arguments by name; otherwise as App.enqueue_many."""
        return self.app.enqueue_many(self._call_with(each) for each in arguments)

    async def aenqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Ref[R]]:
        """Is enqueue_many for event loops."""
        return await self.app.aenqueue_many(self._call_with(each) for each in arguments)

    def _call_with(self, arguments: Mapping[str, Any]) -> Call[R]:
        return cast("Callable[..., Call[R]]", self.call)(**arguments)

    def _payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        given = self._signature.bind(*args, **kwargs).arguments
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(name, {}))
        return given

    def _arguments(self, claim: Claim) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Reads the arguments out of a payload. Those that the function does not have are left out, as by a Go struct: a
        producer may be newer than its workers."""
        payload = claim.decode_payload()
        if payload is None:
            payload = {}
        if not isinstance(payload, dict):
            raise Poison(f"payload of type {self.type!r}: want an object, got {_convert.cut(repr(payload), 100)}")
        if not self._takes_more:
            payload = {name: value for name, value in payload.items() if name in self._signature.parameters}
        try:
            self._signature.bind(**payload)
        except TypeError as err:
            raise Poison(f"payload of type {self.type!r}: {err}") from None
        return (), payload


class Task(_Task[P, R]):
    """A function that is the handler of a type of task. Called directly it is just the function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self._fn(*args, **kwargs))

    def options(self, **options: Unpack[Options]) -> Task[P, R]:
        """Gives the task with options that are added to, or replace, those of its decorator: task.options(delay=60).enqueue(...)."""
        return Task(self.app, self._fn, self.type, merge(self._options, options))


class AsyncTask(_Task[P, R]):
    """A coroutine function that is the handler of a type of task. Called directly it is just the function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, await self._fn(*args, **kwargs))

    def options(self, **options: Unpack[Options]) -> AsyncTask[P, R]:
        """Gives the task with options that are added to, or replace, those of its decorator: task.options(delay=60).enqueue(...)."""
        return AsyncTask(self.app, self._fn, self.type, merge(self._options, options))


@dataclass(frozen=True)
class Call(Generic[R_co]):
    """A task that is not enqueued yet."""

    app: App
    type: str
    payload: bytes
    content_type: str
    own_options: Options

    def options(self, **options: Unpack[Options]) -> Call[R_co]:
        """Gives the call with more options."""
        return Call(self.app, self.type, self.payload, self.content_type, merge(self.own_options, options))

    def enqueue(self) -> Ref[R_co]:
        """Enqueues the task. When it returns, the task is on stable storage."""
        return self.app._caller.run(_enqueue(self))

    async def aenqueue(self) -> Ref[R_co]:
        """Is enqueue for event loops."""
        return await self.app._caller.arun(_enqueue(self))

    def _spec(self) -> task_pb2.TaskSpec:
        return spec(self.type, self.payload, self.content_type, self.own_options)


class Ref(Generic[R_co]):
    """Refers to a task that was enqueued."""

    def __init__(self, app: App, id: str, *, state: str = "", created_at: datetime | None = None, duplicate: bool = False) -> None:
        self._app = app
        self.id = id
        self.state = state
        """When it was accepted: ready or scheduled; for a duplicate the state it was in. "" for App.ref."""
        self.created_at = created_at
        """By the broker's clock."""
        self.duplicate = duplicate
        """The idempotency key, the unique key or the request id stood for this task already."""

    def __repr__(self) -> str:
        return f"Ref({self.id!r})"

    def info(self) -> TaskInfo:
        """Tells what the broker knows of the task; NotFoundError if it is gone."""
        return self._app._caller.run(_info(self._app, self.id))

    async def ainfo(self) -> TaskInfo:
        """Is info for event loops."""
        return await self._app._caller.arun(_info(self._app, self.id))

    def wait_ended(self, timeout: float | None = None) -> TaskInfo:
        """Waits until the task has ended, in whatever way. After timeout seconds it raises TimeoutError."""
        return self._app._caller.run(_wait(self._app, self.id, timeout))

    async def await_ended(self, timeout: float | None = None) -> TaskInfo:
        """Is wait_ended for event loops."""
        return await self._app._caller.arun(_wait(self._app, self.id, timeout))

    def result(self, timeout: float | None = None) -> R_co:
        """Waits for the task and gives what its function returned; TaskEndedError if the task did not succeed."""
        return cast(R_co, _result_of(self.wait_ended(timeout)))

    async def aresult(self, timeout: float | None = None) -> R_co:
        """Is result for event loops."""
        return cast(R_co, _result_of(await self.await_ended(timeout)))

    def cancel(self, reason: str = "") -> TaskInfo:
        """Ends the task if it has not ended; a running handler is told. WrongStateError if it has ended otherwise."""
        return self._app._caller.run(_cancel(self._app, self.id, reason))

    async def acancel(self, reason: str = "") -> TaskInfo:
        """Is cancel for event loops."""
        return await self._app._caller.arun(_cancel(self._app, self.id, reason))


def _ref(app: App, p: producer_pb2.Enqueued) -> Ref[Any]:
    return Ref(app, p.task_id, state=models.state_word(p.state), created_at=_convert.time_of(p.created_at), duplicate=p.duplicate)


def _enqueue(call: Call[Any]) -> _rpc.Op[Ref[Any]]:
    request = producer_pb2.EnqueueRequest(task=call._spec())
    response = yield from call.app._caller.call(_rpc.ENQUEUE, request)
    return _ref(call.app, response.task)


Answer = Union[Ref[Any], errors.PawlError]


def _enqueue_many(app: App, calls: Iterable[Call[Any]]) -> _rpc.Op[list[Ref[Any]]]:
    answers: list[Answer] = []
    for chunk in _chunks([call._spec() for call in calls]):
        last = answers[-1] if answers else None
        if isinstance(last, errors.UnavailableError):  # the broker is gone: what follows would only wait as long again
            answers.extend([last] * len(chunk))
        else:
            answers.extend((yield from _enqueue_chunk(app, chunk)))
    if any(isinstance(answer, errors.PawlError) for answer in answers):
        raise errors.BatchError(answers)
    return cast("list[Ref[Any]]", answers)


def _chunks(specs: list[task_pb2.TaskSpec]) -> Generator[list[task_pb2.TaskSpec], None, None]:
    chunk: list[task_pb2.TaskSpec] = []
    size = 0
    for each in specs:
        n = each.ByteSize()
        if chunk and (len(chunk) == _MAX_BATCH_TASKS or size + n > _MAX_BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += n
    if chunk:
        yield chunk


def _enqueue_chunk(app: App, chunk: list[task_pb2.TaskSpec]) -> _rpc.Op[list[Answer]]:
    """Enqueues what fits in one request. Tasks whose shard is unavailable are sent again, with the same request ids."""
    answers: list[Answer] = [errors.UnavailableError("not sent")] * len(chunk)
    pending = list(range(len(chunk)))
    start = time.monotonic()
    attempt = 0
    while pending:
        request = producer_pb2.EnqueueBatchRequest(tasks=[chunk[at] for at in pending])
        try:
            response = yield from app._caller.call(_rpc.ENQUEUE_BATCH, request)
        except errors.PawlError as err:
            for at in pending:
                answers[at] = err
            return answers
        if len(response.results) != len(pending):
            raise errors.InternalError(f"a batch of {len(pending)} tasks got {len(response.results)} answers")
        for at, result in zip(pending, response.results):
            answers[at] = errors.of_proto(result.error) if result.HasField("error") else _ref(app, result.task)
        pending = [at for at in pending if isinstance(answers[at], errors.UnavailableError)]
        if not pending or time.monotonic() - start >= app._caller.retry_for:
            return answers
        yield _rpc.Pause(app._caller.pause(attempt, cast(errors.PawlError, answers[pending[-1]])))
        attempt += 1
    return answers


def _info(app: App, id: str) -> _rpc.Op[TaskInfo]:
    response = yield from app._caller.call(_rpc.GET_TASK, producer_pb2.GetTaskRequest(task_id=id))
    return models.task_info(response.task)


def _wait(app: App, id: str, timeout: float | None) -> _rpc.Op[TaskInfo]:
    deadline = None if timeout is None else time.monotonic() + timeout
    attempt = 0
    while True:
        start = time.monotonic()
        step = _WAIT_STEP if deadline is None else max(min(_WAIT_STEP, deadline - start), 0.0)
        request = producer_pb2.GetTaskRequest(task_id=id, wait=_convert.duration("timeout", step))
        response = yield from app._caller.call(_rpc.GET_TASK, request, None if deadline is None else deadline + _WAIT_SLACK)
        info = models.task_info(response.task)
        if info.ended:
            return info
        now = time.monotonic()
        if deadline is not None and now >= deadline:
            raise TimeoutError(f"task {id} is still {info.state} after {timeout:g} s")
        attempt = attempt + 1 if now - start < min(step, 1.0) else 0
        if attempt:  # cut short, by a node that shuts down say
            yield _rpc.Pause(_rpc.backoff(attempt, 0.02, 2.0))


def _result_of(info: TaskInfo) -> Any:
    if info.state != "succeeded":
        raise errors.TaskEndedError(info)
    return info.decode_result()


def _cancel(app: App, id: str, reason: str) -> _rpc.Op[TaskInfo]:
    response = yield from app._caller.call(_rpc.CANCEL_TASK, producer_pb2.CancelTaskRequest(task_id=id, reason=reason))
    return models.task_info(response.task)
