"""Limits of calls whose broker accepts them and never answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

import pawl
from pawl import _gather, _rpc, _telemetry
from pawl.v1 import producer_pb2, task_pb2

from waiting import eventually


class Silent:
    """A broker that notes requests, and answers after go is set."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked: list[Any] = []
        self.left: list[float] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        enqueue = grpc.unary_unary_rpc_method_handler(
            self._enqueue, producer_pb2.EnqueueBatchRequest.FromString, producer_pb2.EnqueueBatchResponse.SerializeToString
        )
        get = grpc.unary_unary_rpc_method_handler(self._get, producer_pb2.GetTaskRequest.FromString, producer_pb2.GetTaskResponse.SerializeToString)
        methods = {"EnqueueBatch": enqueue, "GetTask": get}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("pawl.v1.ProducerService", methods),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _note(self, request: Any, context: Any) -> None:
        self.left.append(context.time_remaining())
        self.asked.append(request)
        self.go.wait(20)

    def _enqueue(self, request: producer_pb2.EnqueueBatchRequest, context: Any) -> producer_pb2.EnqueueBatchResponse:
        self._note(request, context)
        out = producer_pb2.EnqueueBatchResponse()
        for each in request.tasks:
            if each.type == "away":
                out.results.add().error.code = "unavailable"
            else:
                out.results.add().task.task_id = each.type
        return out

    def _get(self, request: producer_pb2.GetTaskRequest, context: Any) -> producer_pb2.GetTaskResponse:
        self._note(request, context)
        return producer_pb2.GetTaskResponse(task=task_pb2.Task(task_id=request.task_id))

    def close(self) -> None:
        """Ends the calls."""
        self.go.set()
        self._server.stop(None)


@pytest.fixture
def silent() -> Iterator[Silent]:
    """A broker that never answers."""
    made = Silent()
    yield made
    made.close()


def test_an_attempt_has_a_limit(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rpc, "_ATTEMPT", 0.2)
    with pawl.App(silent.address, retry_for=0.3) as app:
        with pytest.raises(pawl.UnavailableError):
            app.call("a").enqueue()
        assert len(silent.asked) > 1 and len({each.tasks[0].request_id for each in silent.asked}) == 1
        with pytest.raises(pawl.UnavailableError):
            asyncio.run(app.call("a").aenqueue())
        with pytest.raises(pawl.BatchError, match="^unavailable"):
            app.enqueue_many([app.call("a")])
        with pytest.raises(pawl.UnavailableError):
            app.ref("a").info()


def test_the_limit_is_ten_seconds_beyond_what_the_server_is_asked_to_wait(silent: Silent) -> None:
    silent.go.set()
    with pawl.App(silent.address) as app:
        app.call("a").enqueue()
        app.ref("a").info()
        assert all(9 < left <= 10.5 for left in silent.left)
        silent.left.clear()
        waiting = threading.Thread(target=lambda: pytest.raises(pawl.ClientClosedError, app.ref("a").wait_ended))
        waiting.start()
        eventually(lambda: silent.left)
    waiting.join(20)
    assert 39 < silent.left[0] <= 40.5


@pytest.mark.parametrize("how", ["enqueue", "aenqueue", "many", "info", "ainfo", "call", "unreachable"])
def test_within_limits_a_call_with_its_retries(silent: Silent, how: str) -> None:
    with pawl.App(silent.address) as app, pawl.App("127.0.0.1:1") as gone:
        brief = app.within(0.3)
        calls: dict[str, Any] = {
            "enqueue": brief.call("a").enqueue,
            "aenqueue": lambda: asyncio.run(brief.call("a").aenqueue()),
            "many": lambda: brief.enqueue_many([brief.call("a")]),
            "info": brief.ref("a").info,
            "ainfo": lambda: asyncio.run(brief.ref("a").ainfo()),
            "call": app.call("a").within(0.3).enqueue,
            "unreachable": gone.within(0.3).call("a").enqueue,
        }
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="no answer in time"):
            calls[how]()
        assert 0.25 < time.monotonic() - began < 3
        for bad in (0, -1, float("nan")):
            with pytest.raises(pawl.InvalidArgumentError):
                app.within(bad)


@pytest.mark.filterwarnings("ignore:Exception in thread")  # of gRPC, which watches a channel for a moment after it was closed
@pytest.mark.parametrize("is_async", [False, True])
def test_a_batch_that_is_late_has_what_was_accepted(silent: Silent, is_async: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    silent.go.set()
    monkeypatch.setattr(_gather, "MAX_TASKS", 2)
    with pawl.App(silent.address) as app:
        brief = app.within(0.3)
        calls = [brief.call(type) for type in ("a", "b", "away", "c", "never asked")]
        with pytest.raises(pawl.BatchTimeoutError, match="^timeout: 2 of 5 tasks were not enqueued; item 2: no answer in time: unavailable") as late:
            asyncio.run(brief.aenqueue_many(calls)) if is_async else brief.enqueue_many(calls)
        assert isinstance(late.value, TimeoutError)
        a, b, away, c, last = late.value.results
        assert [each.id for each in (a, b, c)] == ["a", "b", "c"]
        assert isinstance(away, TimeoutError) and isinstance(last, TimeoutError)
        assert "never asked" not in [task.type for request in silent.asked for task in request.tasks]


@pytest.mark.parametrize("is_async", [False, True])
def test_within_leaves_time_to_record_what_has_happened_and_says_what_failed(is_async: bool) -> None:
    recorded: list[bool] = []

    def record() -> _rpc.Op[None]:
        yield _rpc.Pause(0.2)
        recorded.append(True)

    def finish() -> _rpc.Op[None]:
        yield _rpc.Finish(record())

    def retry() -> _rpc.Op[None]:
        yield _rpc.Pause(5, after=pawl.UnavailableError("is away"))

    with pawl.App("127.0.0.1:1") as app:
        caller = app.within(0.1)._caller
        run = (lambda op: asyncio.run(caller.arun(op))) if is_async else caller.run
        run(finish())
        assert recorded
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="^no answer in time: unavailable: is away$"):
            run(retry())
        assert time.monotonic() - began < 3
    _rpc._check(began, pawl.NotFoundError("a refusal is an answer, even if it comes late"))


@pytest.mark.parametrize("is_async", [False, True])
def test_who_gives_up_neither_holds_up_nor_fails_the_others(silent: Silent, is_async: bool) -> None:
    with pawl.App(silent.address, retry_for=0) as app, futures.ThreadPoolExecutor(8) as pool:

        def enqueue(type: str, timeout: float) -> pawl.Ref[Any]:
            brief = app.call(type).within(timeout)
            return asyncio.run(brief.aenqueue()) if is_async else brief.enqueue()

        def await_waiting(count: int) -> None:
            eventually(lambda: len(app._caller.gatherer._lanes[""].waiting) == count)

        senders = [pool.submit(enqueue, f"sender-{timeout}", timeout) for timeout in (1, 3)]
        eventually(lambda: len(silent.asked) == 2)
        senders.append(pool.submit(enqueue, "next", 2))
        await_waiting(1)
        waiting = pool.submit(app.call("patient").enqueue)
        await_waiting(2)
        eventually(lambda: len(silent.asked) > 2)
        assert [task.type for task in silent.asked[2].tasks] == ["next", "patient"]
        for each in (*senders, pool.submit(app.within(0.01).call("late").enqueue)):
            with pytest.raises(TimeoutError):
                each.result(20)
        silent.go.set()
        assert waiting.result(20).id == "patient"
    assert not app._caller.gatherer._lanes


def test_an_enqueue_that_was_given_up_can_be_repeated_with_its_request_id(silent: Silent) -> None:
    with pawl.App(silent.address) as app:
        call = app.call("a", request_id="0190b3a4-0000-7000-8000-000000000001")
        with pytest.raises(TimeoutError):
            call.within(0.2).enqueue()
        silent.go.set()
        assert call.enqueue().id == "a"
    assert [each.tasks[0].request_id for each in silent.asked] == [call.own_options["request_id"]] * 2


def test_a_cancelled_enqueue_ends_its_span(silent: Silent, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[BaseException | None] = []
    monkeypatch.setattr(_telemetry.Span, "end", lambda self, err=None: ended.append(err))

    async def cancel(enqueue: Any) -> None:
        task = asyncio.ensure_future(enqueue)
        while not silent.asked:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with pawl.App(silent.address) as app:
        asyncio.run(cancel(app.call("a").aenqueue()))
        assert len(ended) == 1 and ended[0] is not None
        silent.asked.clear()
        asyncio.run(cancel(app.aenqueue_many([app.call("a")])))
        assert len(ended) == 2 and ended[1] is not None


def test_a_call_that_would_block_the_event_loop_is_refused(silent: Silent) -> None:
    async def refuse(call: Any, twin: str) -> None:
        with pytest.raises(RuntimeError, match=f"would block the event loop: use {twin}$"):
            call()

    with pawl.App(silent.address) as app:
        task = app.task("t")(print_nothing)
        for call, twin in (
            (task.enqueue, "aenqueue"),
            (app.call("t").enqueue, "aenqueue"),
            (lambda: app.enqueue_many([app.call("t")]), "aenqueue_many"),
            (app.ref("t").result, "aresult"),
            (app.ref("t").wait_ended, "await_ended"),
            (lambda: app.admin.workers.list(), "alist"),
            (lambda: app.admin.queues.pause("q"), "apause"),
        ):
            asyncio.run(refuse(call, twin))
        asyncio.run(refuse(pawl.Worker(app).run, "asyncio.to_thread\\(worker.run\\)"))
        assert not silent.asked
        silent.go.set()
        assert asyncio.run(in_a_thread(task)).id == "t"


def print_nothing() -> None:
    """A handler."""


async def in_a_thread(task: pawl.Task[[], None]) -> pawl.Ref[None]:
    """Enqueues a task without blocking the loop."""
    return await asyncio.to_thread(task.enqueue)
