"""App: the tasks of a program, and the client that enqueues them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Generic, ParamSpec, TypeVar, cast, overload

from pawl import _convert, _enqueue, _hints, _rpc, errors, group
from pawl._connection import TLS, Token, from_environment
from pawl._convert import Seconds
from pawl._encrypt import Encryption
from pawl.admin import Admin
from pawl.call import Call
from pawl.group import Group
from pawl.keyring import Keyring
from pawl.options import KNOWN, Options, check, merge, spec
from pawl.outcome import Poison
from pawl.ref import Ref
from pawl.schedule import Schedules
from pawl.v1 import group_pb2, task_pb2

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Unpack

    from pawl.claim import Claim

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[[Claim], Any]")


class App:
    """The tasks of a program, and the client that enqueues them. Any number of threads and event loops may use it.

    server is "host:port", "host", "https://host:port" or "unix:///path", or for a cluster a list of addresses separated by commas.
    What is not given is taken from the environment: PAWL_SERVER, PAWL_TOKEN, PAWL_TOKEN_FILE, PAWL_NAMESPACE, PAWL_TLS_CA,
    PAWL_CLIENT_CERT and PAWL_CLIENT_KEY. The first call connects; a connection that breaks is reestablished.

    A call that finds the broker unavailable is retried for retry_for seconds. An attempt that has no answer after 10 seconds, beyond the
    time for which it asks the broker to wait, counts as unavailable; within sets a limit for a call with all retries. Retries of an enqueue carry the request id of the
    first attempt, so that they never create a second task.

    keyring encrypts the contents of tasks before they leave the program, and decrypts what it receives: payloads, results, checkpoints
    and results of once keys. Type, queue, key, tags and headers stay readable, and so do the errors and progress that handlers report.
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
        keyring: Keyring | None = None,
    ) -> None:
        connection = from_environment(server, token, namespace, tls, plaintext=plaintext)
        encryption = None if keyring is None else Encryption(keyring, connection.namespace)
        self._caller = _rpc.Caller(connection, retry_for, encryption)
        self.handlers: dict[str, Handler] = {}
        """The handlers by task type. Read-only."""

    @overload  # a coroutine function matches both; the first counts
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]:  # type: ignore[misc]
        ...

    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]:
        ...

    @overload
    def task(self, name: str = "", /, **options: Unpack[Options]) -> _Decorator:
        ...

    def task(self, what: Any = "", /, **options: Any) -> Any:
        """Makes a function the handler of a task type, with or without arguments: @app.task, @app.task("mail.welcome", queue="mail").

        The type is the name of the function unless one is given. The payload is a JSON object with the arguments by name, like an
        encoded Go struct. The return value becomes the task's result. The function may be a coroutine function, or one that
        returns an awaitable.
        """
        own = merge(Options(), cast(Options, options))
        check(own)  # here, and not when the first task is enqueued
        decorate = _Decorator(self, "" if callable(what) else what, own)
        return decorate(what) if callable(what) else decorate

    def handler(self, type: str) -> Callable[[F], F]:
        """Makes a function the handler of a task type. It receives the Claim itself, for payloads that are not JSON objects."""

        def decorate(fn: F) -> F:
            self._register(Handler(type, fn, inspect.iscoroutinefunction(fn), lambda claim: ((claim,), {})))
            return fn

        return decorate

    def _register(self, handler: Handler) -> None:
        if handler.type in self.handlers:
            raise ValueError(f"there are two handlers for the type {handler.type!r}")
        self.handlers[handler.type] = handler

    def call(self, type: str, payload: Any = None, *, content_type: str = "", **options: Unpack[Options]) -> Call[Any]:
        """Describes a task whose function is not in this program. The payload is encoded as JSON. With another content type, it
        must be bytes, which are sent unchanged."""
        own = merge(Options(), options)
        if content_type in ("", _convert.JSON):
            return Call(self._caller, type, _convert.encode("payload", payload), content_type, own)
        if not isinstance(payload, bytes):
            raise errors.invalid("payload", f"is {payload!r}; with the content type {content_type!r} it must be bytes")
        return Call(self._caller, type, payload, content_type, own)

    def enqueue_many(self, calls: Iterable[Call[Any]]) -> list[Ref[Any]]:
        """Enqueues many tasks, in as few requests as possible. If some are refused, the others are still enqueued, and BatchError
        has the result for each."""
        return self._caller.run(_enqueue.enqueue_many(self._caller, [call._spec() for call in calls]))

    async def aenqueue_many(self, calls: Iterable[Call[Any]]) -> list[Ref[Any]]:
        """Async version of enqueue_many."""
        return await self._caller.arun(_enqueue.enqueue_many(self._caller, [call._spec() for call in calls]))

    def ref(self, id: str) -> Ref[Any]:
        """Returns a reference to a task by its id."""
        return Ref(self._caller, id)

    def enqueue_group(
        self,
        calls: Iterable[Call[Any]],
        *,
        name: str = "",
        on_complete: Call[Any] | None = None,
        on_success: Call[Any] | None = None,
        on_death: Call[Any] | None = None,
        open: bool = False,
        retention: Seconds | None = None,
        request_id: str | None = None,
    ) -> Group:
        """Creates a group of up to 1,000 tasks and 8 MiB, all or nothing. Group.tasks has a Ref for each.

        on_complete is enqueued when all members have ended, in whatever state; on_success when all have succeeded; on_death when the
        first is dead or poisoned. Their handlers read the counts with Claim.parent_result. An open group can't be complete until
        Group.close. retention: how long the group is kept once it has ended; by default 24 h, or 14 days if members are dead or
        poisoned. name is for display. request_id: a UUID; a retry with it returns the first group again.
        """
        request = _group_request(calls, name, on_complete, on_success, on_death, open, retention, request_id)
        return self._caller.run(group.create(self._caller, request))

    async def aenqueue_group(
        self,
        calls: Iterable[Call[Any]],
        *,
        name: str = "",
        on_complete: Call[Any] | None = None,
        on_success: Call[Any] | None = None,
        on_death: Call[Any] | None = None,
        open: bool = False,
        retention: Seconds | None = None,
        request_id: str | None = None,
    ) -> Group:
        """Async version of enqueue_group."""
        request = _group_request(calls, name, on_complete, on_success, on_death, open, retention, request_id)
        return await self._caller.arun(group.create(self._caller, request))

    def group(self, id: str) -> Group:
        """Returns a reference to a group by its id."""
        return Group(self._caller, id)

    @property
    def schedules(self) -> Schedules:
        """The schedules of the broker, which enqueue tasks repeatedly."""
        return Schedules(self._caller)

    @property
    def admin(self) -> Admin:
        """The operators' calls: queues, dead letters, operations, workers, statistics."""
        return Admin(self._caller)

    def within(self, timeout: Seconds) -> App:
        """Returns the same app with a limit for each call, including its retries: app.within(2).call("mail.welcome").enqueue() raises
        TimeoutError after 2 seconds. The task may still have been accepted: if you may repeat the call, give it a request_id. The limit
        also applies to the app's references, groups, schedules and admin calls, but not to its workers and their claims."""
        out = copy.copy(self)
        out._caller = self._caller.within(timeout)
        return out

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _hints.missing("an App", _hints.APP, name)

    def close(self) -> None:
        """Ends the calls in flight, and closes the connection. Stop workers first."""
        self._caller.close()

    def __enter__(self) -> App:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


@dataclass(frozen=True)
class Handler:
    """The function that runs the tasks of a type."""

    type: str
    fn: Callable[..., Any]
    is_async: bool
    arguments: Callable[[Claim], tuple[Sequence[Any], Mapping[str, Any]]]
    """Returns the arguments of a task, or raises Poison."""


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
    """The common base of Task and AsyncTask."""

    def __init__(self, app: App, fn: Callable[..., Any], type: str, options: Options) -> None:
        self.app = app
        self.type = type
        self._fn = fn
        self._options = options
        self._signature = inspect.signature(fn)
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(f"{type}: the payload passes arguments by name, but {parameter} is positional")
        self._takes_more = any(p.kind is p.VAR_KEYWORD for p in self._signature.parameters.values())
        self.__doc__ = fn.__doc__
        self.__name__ = fn.__name__
        self.__wrapped__ = fn

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise _hints.missing("a task", _hints.TASK, name)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Describes a task with these arguments, to be enqueued with others. Raises TypeError if the arguments don't match."""
        given = self._payload(*args, **kwargs)
        try:
            payload = _convert.encode("payload", given)
        except errors.InvalidArgumentError:
            for name, value in given.items():
                _convert.encode(f"payload.{name}", value)  # says which of them it is
            raise
        return Call(self.app._caller, self.type, payload, "", self._options)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Enqueues a task with these arguments. When it returns, the task is on stable storage."""
        return self.call(*args, **kwargs).enqueue()

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Ref[R]:
        """Async version of enqueue."""
        return await self.call(*args, **kwargs).aenqueue()

    def enqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Ref[R]]:
        """Enqueues a task for each mapping of arguments by name; otherwise like App.enqueue_many."""
        return self.app.enqueue_many(self._call_with(each) for each in arguments)

    async def aenqueue_many(self, arguments: Iterable[Mapping[str, Any]]) -> list[Ref[R]]:
        """Async version of enqueue_many."""
        return await self.app.aenqueue_many(self._call_with(each) for each in arguments)

    def _call_with(self, arguments: Mapping[str, Any]) -> Call[R]:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"{_convert.cut(repr(arguments), 100)} is not a mapping of arguments by name, such as a dict")
        return cast("Callable[..., Call[R]]", self.call)(**arguments)

    def _payload(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        try:
            given = self._signature.bind(*args, **kwargs).arguments
        except TypeError as err:
            options = [_hints.RENAMED.get(name, name) for name in kwargs if name not in self._signature.parameters]
            if options and KNOWN.issuperset(options):
                raise TypeError(f"{err}: options go before, {self.__name__}.options({options[0]}=...).enqueue(...)") from None
            raise
        for name, parameter in self._signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given.update(given.pop(name, {}))
        return given

    def _arguments(self, claim: Claim) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Reads the arguments from a payload. Arguments that the function does not have are ignored, as when decoding into a Go
        struct, because a producer may be newer than its workers."""
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
    """A function that is the handler of a task type. Called directly, it is just the function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, self._fn(*args, **kwargs))

    def options(self, **options: Unpack[Options]) -> Task[P, R]:
        """Returns the task with options that add to, or replace, those of its decorator: task.options(delay=60).enqueue(...)."""
        return Task(self.app, self._fn, self.type, merge(self._options, options))


class AsyncTask(_Task[P, R]):
    """A coroutine function that is the handler of a task type. Called directly, it is just the function."""

    async def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, await self._fn(*args, **kwargs))

    def options(self, **options: Unpack[Options]) -> AsyncTask[P, R]:
        """Returns the task with options that add to, or replace, those of its decorator: task.options(delay=60).enqueue(...)."""
        return AsyncTask(self.app, self._fn, self.type, merge(self._options, options))


def _group_request(
    calls: Iterable[Call[Any]],
    name: str,
    on_complete: Call[Any] | None,
    on_success: Call[Any] | None,
    on_death: Call[Any] | None,
    open: bool,
    retention: Seconds | None,
    request_id: str | None,
) -> group_pb2.CreateGroupRequest:
    out = group_pb2.CreateGroupRequest(open=open)
    _convert.set_field(out, "name", name)
    _convert.set_field(out, "request_id", _enqueue.request_id() if request_id is None else request_id)
    if retention is not None:
        out.retention.CopyFrom(_convert.duration("retention", retention))
    for at, call in enumerate(calls):
        with errors.inside(f"tasks[{at}]"):
            out.tasks.append(call._spec())
    for field, follower in (("on_complete", on_complete), ("on_success", on_success), ("on_death", on_death)):
        if follower is not None:
            with errors.inside(field):
                getattr(out, field).CopyFrom(follower._spec())
    return out
