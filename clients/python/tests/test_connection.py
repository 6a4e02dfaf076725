"""Addresses, broken connections and retries."""

from __future__ import annotations

import asyncio
import copy
import os
import pickle
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

import pawl
from pawl import _enqueue, _rpc, models, testing
from pawl.testing import working
from pawl.v1 import producer_pb2, task_pb2

from waiting import eventually


@pytest.mark.parametrize(
    "server",
    ["", "example.com:7295", "10.0.0.1", "localhost:0", "localhost:http", "localhost/x", "https://example.com", "https://a:1,b:2", ",".join(["localhost"] * 33)],
)
def test_bad_addresses(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAWL_SERVER", "example.com")  # for ""
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        pawl.App(server)
    assert refused.value.field == "server"


@pytest.mark.parametrize("server", ["localhost", "[::1]:7295", "::1", "127.0.0.9:1", "unix:///tmp/x", "https://example.com:7295", "localhost,127.0.0.1:1"])
def test_good_addresses(server: str) -> None:
    pawl.App(server).close()


def test_the_environment_says_what_is_not_given(broker: testing.Broker, monkeypatch: pytest.MonkeyPatch, queue: str) -> None:
    monkeypatch.setenv("PAWL_SERVER", broker.address)
    with pawl.App() as app:
        assert app.call("t", queue=queue).enqueue().id


def test_an_address_that_does_not_answer_is_left(broker: testing.Broker, queue: str) -> None:
    for _ in range(5):  # the order is random
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound, but not listening
            with pawl.App(f"127.0.0.1:{taken.getsockname()[1]},{broker.address}") as app:
                assert app.call("t", queue=queue).enqueue().id


@pytest.mark.parametrize("use", ["call", "coroutine", "worker"])
def test_a_client_that_is_closed_while_it_connects_is_silent(use: str, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[object] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(args.exc_value))
    before = set(threading.enumerate())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        app = pawl.App(f"127.0.0.1:{taken.getsockname()[1]}")
        call = app.call("t")
        app.handler("t")(lambda claim: None)
        uses: dict[str, Callable[[], object]] = {
            "call": call.enqueue,
            "coroutine": lambda: asyncio.run(call.aenqueue()),
            "worker": lambda: pawl.Worker(app, "q").run(),
        }
        ends: list[BaseException] = []

        def run() -> None:
            with pytest.raises(pawl.ClientClosedError) as closed:
                uses[use]()
            ends.append(closed.value)

        running = threading.Thread(target=run)
        running.start()
        eventually(lambda: app._caller.connection._pausing)
        app.close()
        for thread in set(threading.enumerate()) - before:
            thread.join(20)
    assert (len(ends), raised) == (1, [])


def test_a_node_that_hangs_is_left(binary: str, broker: testing.Broker, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.shuffle", lambda targets: None)
    with testing.Broker(binary) as hung, pawl.App(f"{hung.address},{broker.address}") as app:
        app.call("t", queue=queue).enqueue()
        assert hung._process is not None
        hung._process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        app.call("t", queue=queue).enqueue()
        assert time.monotonic() - began < 8  # 4 on a machine that has the time


def test_a_worker_leaves_a_node_that_hangs_while_it_waits_for_an_answer(
    binary: str, broker: testing.Broker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.shuffle", lambda targets: None)
    began, go = threading.Event(), threading.Event()
    with testing.Broker(binary) as hung, pawl.App(f"{hung.address},{broker.address}") as app, pawl.App(broker.address) as other:

        @app.task("t", queue=queue)
        def task() -> str:
            began.set()
            assert go.wait(20)
            return "x" * 1_000_000  # more than gRPC sends to a node that does not read

        task.enqueue()
        with working(app, queue):
            assert began.wait(20)
            assert hung._process is not None
            hung._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, hung._process.pid, os.WSTOPPED)  # until then, its threads may answer
            go.set()
            since = time.monotonic()
            other.call("t", queue=queue).enqueue().wait_ended(20)
            assert time.monotonic() - since < 8  # 4 on a machine that has the time


def test_streams_are_pinged_less_often_than_calls(app: pawl.App, broker: testing.Broker, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = app.call("t", queue=queue).enqueue()
    opened: list[Any] = []
    insecure_channel = grpc.insecure_channel

    def recorded(target: str, options: Any) -> Any:
        opened.append(dict(options)["grpc.keepalive_time_ms"])
        return insecure_channel(target, options=options)

    monkeypatch.setattr("grpc.insecure_channel", recorded)
    with pawl.App(broker.address) as idle:
        idle.task("t", queue=queue)(lambda: None)
        with working(idle, queue):
            job.wait_ended(20)
        assert opened == [10_000]
        assert idle.call("t", queue=queue).enqueue().id
    assert opened == [10_000, 2_000]


def test_no_answer_is_unavailable(queue: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{taken.getsockname()[1]}"
        with pawl.App(server, retry_for=0) as app:
            with pytest.raises(pawl.UnavailableError):
                app.call("t", queue=queue).enqueue()
            with pytest.raises(pawl.BatchError) as refused:
                app.enqueue_many([app.call("t"), app.call("t")])
            assert all(isinstance(result, pawl.UnavailableError) for result in refused.value.results)
        with pawl.App(server) as app:
            with pytest.raises(TimeoutError):
                app.ref("x").wait_ended(timeout=0)


OPERATIONS: dict[str, Callable[[_rpc.Caller], _rpc.Op[Any]]] = {
    "a call": lambda caller: caller.call(_rpc.GET_TASK, producer_pb2.GetTaskRequest(task_id="x")),
    "an enqueue": lambda caller: _enqueue.enqueue(caller, task_pb2.TaskSpec(type="t")),
    "a batch": lambda caller: _enqueue.enqueue_many(caller, [task_pb2.TaskSpec(type="t"), task_pb2.TaskSpec(type="t")]),
}


@pytest.mark.parametrize("refused", ["whole", "each task", "each task at first"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("settings", [{}, {"retry_for": 45}, {"retry_for": 0}])
def test_what_is_unavailable_is_retried_as_long_as_the_app_wants(
    settings: dict[str, Any], operation: str, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refused != "whole" and operation == "a call":
        return
    limit = settings.get("retry_for", 30)
    clock = 0.0
    ids: set[tuple[str, ...]] = set()

    def perform(action: _rpc.Action) -> object:
        nonlocal clock
        if isinstance(action, _rpc.Pause):
            clock += action.seconds
            return None
        assert isinstance(action, _rpc.Send)
        clock += 0.001
        if refused == "whole" or refused == "each task at first" and clock > limit * 0.9:
            raise pawl.UnavailableError("no leader")
        assert isinstance(action.request, producer_pb2.EnqueueBatchRequest)
        ids.add(tuple(task.request_id for task in action.request.tasks))
        error = task_pb2.Error(code="unavailable")
        return producer_pb2.EnqueueBatchResponse(results=[producer_pb2.EnqueueResult(error=error) for _ in action.request.tasks])

    for module in (_rpc, _enqueue):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock))
    with pawl.App("127.0.0.1:1", **settings) as app, pytest.raises((pawl.UnavailableError, pawl.BatchError)) as raised:
        _rpc._drive(OPERATIONS[operation](app._caller), perform)
    if isinstance(raised.value, pawl.BatchError):
        assert [type(result) for result in raised.value.results] == [pawl.UnavailableError] * 2
    assert limit <= clock < limit + (3 if limit else 0.1), clock  # the last pause may take two seconds
    assert len(ids) <= 1  # a retry creates no second task


def test_close_ends_calls(broker: testing.Broker, queue: str) -> None:
    app = pawl.App(broker.address)
    ref = app.call("t", queue=queue).enqueue()
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            ref.wait_ended()
        except BaseException as err:
            ended.append(err)

    async def close_while_waiting() -> None:
        waiting = asyncio.create_task(ref.await_ended())
        await asyncio.sleep(0.2)
        app.close()
        with pytest.raises(pawl.ClientClosedError):
            await waiting

    thread = threading.Thread(target=wait)
    thread.start()
    asyncio.run(close_while_waiting())
    thread.join(10)
    assert [type(err) for err in ended] == [pawl.ClientClosedError]
    with pytest.raises(pawl.ClientClosedError):
        app.call("t").enqueue()


def test_kills_of_the_broker_lose_nothing_and_double_nothing(binary: str) -> None:
    """Producers enqueue while the broker is killed and restarted: every acknowledged task is there, exactly once."""
    with testing.Broker(binary) as broker, pawl.App(broker.address) as app:
        refs: list[list[pawl.Ref[object]]] = [[], [], []]
        stop = threading.Event()

        def produce(mine: int) -> None:
            while not stop.is_set():
                n = len(refs[mine])
                refs[mine].append(app.call("t", [mine, n], queue=f"q{mine}").enqueue())
                if n % 10 == 0:
                    refs[mine].extend(app.enqueue_many([app.call("t", [mine, n + 1 + more], queue=f"q{mine}") for more in range(3)]))

        threads = [threading.Thread(target=produce, args=(mine,)) for mine in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(4):
            progress(refs)
            broker.kill()
            broker.start()
        progress(refs)
        stop.set()
        for thread in threads:
            thread.join(60)
        for mine in range(3):
            assert len({ref.id for ref in refs[mine]}) == len(refs[mine])
            for n, ref in enumerate(refs[mine]):
                assert ref.info().decode_payload() == [mine, n]
        assert stored(broker, "t") == sum(len(each) for each in refs)


def progress(refs: list[list[pawl.Ref[object]]]) -> None:
    """Waits until every producer has enqueued some more tasks."""
    before = [len(each) for each in refs]
    eventually(lambda: all(len(now) > then + 10 for now, then in zip(refs, before)))


def stored(broker: testing.Broker, type: str) -> int:
    """Counts the tasks of a type at the broker, over REST."""
    import json
    import urllib.parse
    import urllib.request

    count, cursor = 0, ""
    while True:
        query = urllib.parse.urlencode({"type": type, "limit": 1000, "cursor": cursor})
        with urllib.request.urlopen(f"http://{broker.address}/api/v1/tasks?{query}") as response:
            page = json.load(response)
        count += len(page["items"])
        cursor = page.get("next_cursor", "")
        if not cursor:
            return count


def test_the_first_retry_after_a_lost_connection_is_free() -> None:
    with pawl.App("127.0.0.1:1") as app:
        lost, soon = pawl.UnavailableError(), pawl.UnavailableError(retry_after=0.001)
        not_ready = pawl.UnavailableError(reason="node_not_ready", retry_after=1)
        for attempt, error, free in [(0, lost, True), (1, lost, False), (0, soon, False), (2, not_ready, True), (3, not_ready, False)]:
            for _ in range(30):
                app._caller._budget.take(app._caller._budget._last)
            assert (app._caller.pause(attempt, error) < 1) == free, (attempt, error.reason)


@pytest.mark.parametrize("encrypted", [False, True])
@pytest.mark.parametrize(("address", "proxied"), [("127.0.0.1:1", False), ("[::1]:1", False), ("localhost", False), ("example.com:1", True)])
def test_a_proxy_is_not_asked_for_this_machine(address: str, proxied: bool, encrypted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[dict[str, Any]] = []

    def open_channel(target: str, *credentials: Any, options: Any) -> Any:
        opened.append(dict(options))
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(grpc, "insecure_channel", open_channel)
    monkeypatch.setattr(grpc, "secure_channel", open_channel)
    with pawl.App(("https://" if encrypted and ":" in address else "") + address, plaintext=True) as app:
        app._caller.connection.channel()
    assert [each.get("grpc.enable_http_proxy", 1) for each in opened] == [int(proxied)]


def test_a_call_to_this_machine_ignores_the_proxy(broker: testing.Broker, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("no_proxy", "no_grpc_proxy", "grpc_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with pawl.App(broker.address, retry_for=0) as app:
        assert app.call("t", queue=queue).enqueue().id


def test_a_closed_app_stays_closed_in_a_forked_process() -> None:
    app = pawl.App("127.0.0.1:1", retry_for=0)
    app.close()
    app._caller.connection._pid = -1  # as in a child
    with pytest.raises(pawl.ClientClosedError):
        app.call("t").enqueue()


def test_a_copied_reference_keeps_its_connection(app: pawl.App, queue: str) -> None:
    ref = app.call("t", queue=queue).enqueue()
    for each in (copy.copy(ref), copy.deepcopy([ref])[0]):
        assert each.info().id == ref.id


def test_exceptions_can_be_pickled() -> None:
    def again(err: Any) -> Any:
        return pickle.loads(pickle.dumps(err))

    for cls in (pawl.RetryIn, pawl.Snooze, pawl.OnceHeld):
        later: Any = again(cls(5, "why"))
        assert (type(later), later.delay, str(later)) == (cls, 5, "why")
    with pawl.App("127.0.0.1:1") as app:
        batch = again(pawl.BatchError([app.ref("a"), pawl.UnavailableError("away", retry_after=2)]))
    assert str(batch) == "unavailable: 1 of 2 tasks were not enqueued; item 1: unavailable: away"
    assert batch.code == "unavailable" and batch.results[0].id == "a" and batch.results[1].retry_after == 2
    late = again(pawl.BatchTimeoutError([TimeoutError("no answer in time")]))
    assert isinstance(late, TimeoutError) and isinstance(late, pawl.BatchError) and str(late.results[0]) == "no answer in time"
    with pytest.raises(pawl.ClientClosedError, match="use app.ref"):
        batch.results[0].info()
    incomplete = again(pawl.IncompleteError([pawl.errors.Missing("n1", 0, "is away")]))
    assert incomplete.missing[0].node == "n1" and "n1 is away" in str(incomplete)
    ended = again(pawl.TaskEndedError(models.task_info(task_pb2.Task(task_id="a", state=task_pb2.STATE_DEAD))))
    assert (ended.task.id, ended.state, str(ended)) == ("a", "dead", "task_ended: task a is dead")
