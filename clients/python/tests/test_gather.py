"""Concurrent enqueues share requests, and none is lost when one of their callers gives up."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any, Union

import grpc
import pytest

import pawl
from pawl import _gather
from pawl.v1 import producer_pb2, task_pb2

_TIMEOUT = 120.0

Answer = Union[grpc.StatusCode, dict[str, task_pb2.Error], int, None]


class Request:
    """A batch that waits for the test's answer."""

    def __init__(self, batch: producer_pb2.EnqueueBatchRequest, metadata: dict[str, Any]) -> None:
        self.types = [task.type for task in batch.tasks]
        self.ids = {task.type: task.request_id for task in batch.tasks}
        self.actor = metadata.get("pawl-actor", "")
        self._batch = batch
        self._answer: futures.Future[Answer] = futures.Future()

    def answer(self, **refused: task_pb2.Error) -> None:
        """Accepts the tasks, except those of the given types."""
        self._answer.set_result(refused)

    def answer_only(self, n: int) -> None:
        """Accepts n tasks, and does not answer for the others."""
        self._answer.set_result(n)

    def fail(self, status: grpc.StatusCode) -> None:
        self._answer.set_result(status)

    def give_up(self) -> None:
        if not self._answer.done():
            self._answer.set_result(None)

    def serve(self, context: Any) -> producer_pb2.EnqueueBatchResponse:
        answer = self._answer.result(3 * _TIMEOUT)  # longer than a test waits
        if isinstance(answer, grpc.StatusCode):
            context.abort(answer, "as the test wants it")
        out = producer_pb2.EnqueueBatchResponse()
        for task in self._batch.tasks[: answer if isinstance(answer, int) else None]:
            if isinstance(answer, dict) and task.type in answer:
                out.results.add(error=answer[task.type])
            else:
                out.results.add(task=producer_pb2.Enqueued(task_id=f"id-{task.type}"))
        return out


class Broker:
    """Shows each batch that arrives to the test."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[Request] = queue.SimpleQueue()
        self._all: list[Request] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(10))
        method = grpc.unary_unary_rpc_method_handler(
            self._enqueue, producer_pb2.EnqueueBatchRequest.FromString, producer_pb2.EnqueueBatchResponse.SerializeToString
        )
        handler = grpc.method_handlers_generic_handler("pawl.v1.ProducerService", {"EnqueueBatch": method})
        self._server.add_generic_rpc_handlers((handler,))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def _enqueue(self, batch: producer_pb2.EnqueueBatchRequest, context: Any) -> producer_pb2.EnqueueBatchResponse:
        request = Request(batch, dict(context.invocation_metadata()))
        self._all.append(request)
        self._requests.put(request)
        return request.serve(context)

    def request(self) -> Request:
        """Waits for the next batch."""
        return self._requests.get(timeout=_TIMEOUT)

    @property
    def quiet(self) -> bool:
        """Reports whether the test has seen every batch that has arrived."""
        return self._requests.empty()

    def close(self) -> None:
        for request in self._all:
            request.give_up()  # otherwise its thread would wait
        self._server.stop(None)


@pytest.fixture
def broker() -> Iterator[Broker]:
    out = Broker()
    yield out
    out.close()


class Callers:
    """Enqueues tasks, each in its own thread, in a known order."""

    def __init__(self, app: pawl.App) -> None:
        self.app = app
        self._pool = futures.ThreadPoolExecutor(50)

    def enqueue(self, type_: str, queue: str = "") -> futures.Future[str]:
        if queue:
            return self._pool.submit(lambda: self.app.call(type_, queue=queue).enqueue().id)
        waiting, busy = self._in_line(), self._busy()
        out = self._pool.submit(lambda: self.app.call(type_).enqueue().id)
        if busy:
            _until(lambda: self._in_line() > waiting)
        return out

    def _in_line(self) -> int:
        return len(in_line(self.app))

    def _busy(self) -> bool:
        return any(lane.requests == 2 for lane in self.app._caller.gatherer._lanes.values())


def in_line(app: pawl.App) -> list[str]:
    """Returns the types of the tasks that wait."""
    return [one.task.type for lane in list(app._caller.gatherer._lanes.values()) for one in list(lane.waiting)]


def _until(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never happens")


def occupied(broker: Broker, callers: Callers) -> list[tuple[futures.Future[str], Request]]:
    """Brings the requests in flight to their limit."""
    out = []
    for name in ("first", "second"):
        future = callers.enqueue(name)
        out.append((future, broker.request()))
    return out


async def aoccupied(broker: Broker, app: pawl.App) -> tuple[list[asyncio.Future[Any]], list[Request]]:
    """Async version of occupied."""
    sent: list[asyncio.Future[Any]] = [asyncio.ensure_future(app.call(name).aenqueue()) for name in ("first", "second")]
    return sent, [await asyncio.to_thread(broker.request) for _ in sent]


def test_a_lone_enqueue_goes_out_at_once(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        for (future, request), name in zip(occupied(broker, callers), ("first", "second")):
            assert request.types == [name]
            request.answer()
            assert future.result(_TIMEOUT) == f"id-{name}"


def test_enqueues_that_wait_go_together_in_their_order(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        (first, request), (second, other) = occupied(broker, callers)
        names = [f"t{n}" for n in range(10)]
        waiting = [callers.enqueue(name) for name in names]
        assert broker.quiet
        request.answer()
        together = broker.request()
        assert together.types == names and len(set(together.ids.values())) == 10
        together.answer(t3=task_pb2.Error(code="queue_full", message="full", field="queue"))
        for name, future in zip(names, waiting):
            if name == "t3":
                with pytest.raises(pawl.QueueFullError, match="full") as refused:
                    future.result(_TIMEOUT)
                assert refused.value.field == "queue"
            else:
                assert future.result(_TIMEOUT) == f"id-{name}"
        other.answer()
        assert (first.result(_TIMEOUT), second.result(_TIMEOUT)) == ("id-first", "id-second")


def test_each_queue_has_requests_of_its_own(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        (first, request), (second, other) = occupied(broker, callers)
        third = callers.enqueue("third")
        answered = callers.enqueue("a", queue="live")
        live = broker.request()
        assert live.types == ["a"]
        live.answer()
        assert answered.result(_TIMEOUT) == "id-a"
        assert list(app._caller.gatherer._lanes) == [""]  # idle ones leave nothing behind
        request.answer()
        other.answer()
        last = broker.request()
        assert last.types == ["third"]
        last.answer()
        assert [future.result(_TIMEOUT) for future in (first, second, third)] == ["id-first", "id-second", "id-third"]


def test_a_request_has_a_limit(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        (_, request), (_, other) = occupied(broker, callers)
        large = {"x": "y" * (3 << 19)}
        pool = futures.ThreadPoolExecutor(3)
        for name in ("a", "b", "c"):
            pool.submit(app.call(name, large).enqueue)
            _until(lambda: name in in_line(app))
        request.answer()
        two = broker.request()
        assert two.types == ["a", "b"]
        other.answer()
        one = broker.request()
        assert one.types == ["c"]
        two.answer()
        one.answer()


def test_only_the_unavailable_is_repeated(broker: Broker) -> None:
    with pawl.App(broker.address, retry_for=10) as app:
        callers = Callers(app)
        (_, request), (_, other) = occupied(broker, callers)
        waiting = {name: callers.enqueue(name) for name in ("a", "b", "c")}
        request.answer()
        together = broker.request()
        together.answer(a=task_pb2.Error(code="unavailable", message="no leader"))  # the task whose caller has sent them all
        assert waiting["b"].result(_TIMEOUT) == "id-b" and waiting["c"].result(_TIMEOUT) == "id-c"
        again = broker.request()
        assert again.types == ["a"] and again.ids["a"] == together.ids["a"]
        again.answer()
        other.answer()
        assert waiting["a"].result(_TIMEOUT) == "id-a"


def test_nobody_waits_for_the_repeats_of_others(broker: Broker) -> None:
    with pawl.App(broker.address, retry_for=10) as app:
        callers = Callers(app)
        (_, request), (_, other) = occupied(broker, callers)
        waiting = {name: callers.enqueue(name) for name in ("a", "b")}
        request.answer()
        broker.request().answer(b=task_pb2.Error(code="unavailable", message="no leader"))
        again = broker.request()
        assert again.types == ["b"]
        assert waiting["a"].result(_TIMEOUT) == "id-a"
        again.answer()
        other.answer()


def test_many_that_wait_make_more_requests(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        sent = occupied(broker, callers)
        names = [f"t{n}" for n in range(15)]
        waiting = [callers.enqueue(name) for name in names]
        assert broker.quiet
        last = futures.ThreadPoolExecutor(1).submit(app.call("last").enqueue)
        together = broker.request()
        assert together.types == [*names, "last"]
        for each in (together, *(request for _, request in sent)):
            each.answer()
        assert [future.result(_TIMEOUT) for future in waiting] == [f"id-{name}" for name in names]
        assert last.result(_TIMEOUT).id == "id-last"


def test_a_failure_is_that_of_all_in_the_request(broker: Broker) -> None:
    with pawl.App(broker.address, retry_for=0) as app:
        callers = Callers(app)
        (first, request), (_, other) = occupied(broker, callers)
        waiting = [callers.enqueue(name) for name in ("a", "b")]
        request.fail(grpc.StatusCode.UNAVAILABLE)
        broker.request().fail(grpc.StatusCode.PERMISSION_DENIED)
        with pytest.raises(pawl.UnavailableError):
            first.result(_TIMEOUT)
        raised = []
        for future in waiting:
            with pytest.raises(pawl.PermissionDeniedError) as err:
                future.result(_TIMEOUT)
            raised.append(err.value)
        assert raised[0] is not raised[1]  # otherwise their tracebacks would be mixed up
        other.answer()


def test_an_answer_that_leaves_tasks_out_is_a_failure(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        (_, request), (_, other) = occupied(broker, callers)
        waiting = [callers.enqueue(name) for name in ("a", "b")]
        request.answer()
        broker.request().answer_only(1)
        for future in waiting:
            with pytest.raises(pawl.InternalError, match="a batch of 2 tasks got 1 answers"):
                future.result(_TIMEOUT)
        other.answer()


def test_an_answer_that_leaves_tasks_of_a_batch_out_fails_its_tasks(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        many = futures.ThreadPoolExecutor(1).submit(app.enqueue_many, [app.call("a"), app.call("b")])
        broker.request().answer_only(1)
        with pytest.raises(pawl.BatchError) as refused:
            many.result(_TIMEOUT)
        assert [type(result) for result in refused.value.results] == [pawl.InternalError] * 2


def test_requests_that_succeed_allow_repeats(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        budget = app._caller._budget
        for _ in range(10):
            budget.take(budget._last)
        future = Callers(app).enqueue("a")
        broker.request().answer()
        assert future.result(_TIMEOUT) == "id-a" and budget._tokens > 0


def test_close_ends_those_who_wait(broker: Broker) -> None:
    app = pawl.App(broker.address)
    callers = Callers(app)
    occupied(broker, callers)
    waiting = [callers.enqueue(name) for name in ("a", "b")]
    app.close()
    for future in waiting:
        with pytest.raises(pawl.ClientClosedError):
            future.result(_TIMEOUT)


def test_each_actor_has_requests_of_its_own(broker: Broker) -> None:
    with pawl.App(broker.address) as app:
        callers = Callers(app)
        occupied(broker, callers)
        acting = app._caller.acting("alice")
        assert acting.gatherer is not app._caller.gatherer


def test_a_caller_that_gives_up_takes_its_task_with_it(broker: Broker) -> None:
    async def main() -> None:
        with pawl.App(broker.address) as app:
            _, requests = await aoccupied(broker, app)
            waiting = {name: asyncio.ensure_future(app.call(name).aenqueue()) for name in ("a", "b", "c")}
            await asyncio.sleep(0)
            waiting["b"].cancel()
            await asyncio.wait([waiting["b"]])
            requests[0].answer()
            together = await asyncio.to_thread(broker.request)
            assert together.types == ["a", "c"]
            together.answer()
            requests[1].answer()
            assert [(await waiting[name]).id for name in ("a", "c")] == ["id-a", "id-c"]

    asyncio.run(main())


def test_when_the_sender_gives_up_another_sends(broker: Broker) -> None:
    async def main() -> None:
        with pawl.App(broker.address) as app:
            _, requests = await aoccupied(broker, app)
            waiting = {name: asyncio.ensure_future(app.call(name).aenqueue()) for name in ("a", "b", "c")}
            await asyncio.sleep(0)
            requests[0].answer()
            together = await asyncio.to_thread(broker.request)
            assert together.types == ["a", "b", "c"]
            waiting["a"].cancel()
            again = await asyncio.to_thread(broker.request)
            assert again.types == ["b", "c"]
            assert all(again.ids[name] == together.ids[name] for name in "bc")  # so that no task is created twice
            again.answer()
            assert [(await waiting[name]).id for name in ("b", "c")] == ["id-b", "id-c"]
            requests[1].answer()
            together.answer()

    asyncio.run(main())


def test_a_turn_that_nobody_takes_goes_to_the_next(broker: Broker) -> None:
    async def main() -> None:
        with pawl.App(broker.address) as app:
            sent, requests = await aoccupied(broker, app)
            a, b = (asyncio.ensure_future(app.call(name).aenqueue()) for name in ("a", "b"))
            await asyncio.sleep(0)
            sent[0].cancel()  # its request ends in the loop's next turn, and so does the wait of a
            while in_line(app)[:1] in ([], ["a"]):
                await asyncio.sleep(0)
            a.cancel()
            taken = await asyncio.to_thread(broker.request)
            assert taken.types == ["b"]
            taken.answer()
            assert (await b).id == "id-b"
            for request in requests:
                request.answer()

    asyncio.run(main())


def test_a_task_whose_caller_has_left_is_not_sent_again() -> None:
    gatherer = _gather.Gatherer()
    tasks = [_gather.Waiting(task_pb2.TaskSpec(type=name)) for name in "abcd"]
    for each in tasks:
        gatherer.join(each)
    first, _, sends, other = tasks
    gatherer.end(first, [])
    assert gatherer.take(sends) == [sends, other]
    gatherer.leave(other)
    gatherer.end(sends, [other])  # otherwise it would get a turn that nobody takes
    assert not other.sends and gatherer._lanes[""].requests == 1


def test_a_request_has_at_most_so_many_tasks() -> None:
    gatherer = _gather.Gatherer()
    tasks = [_gather.Waiting(task_pb2.TaskSpec()) for _ in range(20 + _gather.MAX_TASKS)]
    for each in tasks:
        gatherer.join(each)
    first = tasks[0]
    assert gatherer.take(first) == [first, *(each for each in tasks if not each.sends)][: _gather.MAX_TASKS]


def test_a_forked_process_does_not_wait_for_its_parent() -> None:
    gatherer = _gather.Gatherer()
    tasks = [_gather.Waiting(task_pb2.TaskSpec(type=name)) for name in "abcd"]
    for each in tasks[:3]:
        gatherer.join(each)
    assert [each.sends for each in tasks] == [True, True, False, False]
    gatherer._pid = -1  # as in a child
    gatherer.join(tasks[3])
    assert tasks[3].sends
