"""Checkpoints, steps, and effects that several tasks share."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import grpc
import pytest

import pawl
from pawl.testing import working
from pawl.v1 import task_pb2, worker_pb2

from scripted import ScriptedBroker
from waiting import eventually

T = TypeVar("T")

AT_ONCE = pawl.Retry(initial=0, max=0, jitter=0)


def test_a_checkpoint_is_there_for_the_next_attempt(app: pawl.App, queue: str) -> None:
    @app.task("pages", queue=queue, retry=AT_ONCE)
    def pages() -> Any:
        claim = pawl.current()
        assert claim.last_checkpoint("none") == ("none" if claim.attempt == 1 else {"page": 3})
        claim.checkpoint({"page": 2 + claim.attempt})
        assert app.ref(claim.id).info().checkpoint == b'{"page":%d}' % (2 + claim.attempt)
        if claim.attempt == 1:
            raise ValueError("crash")
        return claim.last_checkpoint()

    @app.task("apages", queue=queue, retry=AT_ONCE)
    async def apages() -> Any:
        claim = pawl.current()
        if claim.attempt == 2:
            return claim.last_checkpoint()
        await claim.acheckpoint([1])
        raise ValueError("crash")

    with working(app, queue):
        assert pages.enqueue().result(20) == {"page": 4}
        assert apages.enqueue().result(20) == [1]


def test_a_checkpoint_extends_the_lease(app: pawl.App, queue: str) -> None:
    ends: list[Any] = []

    @app.task("t", queue=queue)
    def task() -> None:
        ref = app.ref(pawl.current().id)
        ends.append(ref.info().lease_expires_at)
        time.sleep(0.05)
        pawl.current().checkpoint(1)
        ends.append(ref.info().lease_expires_at)

    with working(app, queue):
        task.enqueue().result(20)
    assert ends[0] < ends[1]


def test_steps_run_once_in_the_life_of_a_task(app: pawl.App, queue: str) -> None:
    ran: list[str] = []

    def note(name: str, result: T) -> T:
        ran.append(name)
        return result

    async def anote(name: str, result: T) -> T:
        return note(name, result)

    @app.task("order", queue=queue, retry=AT_ONCE)
    def order() -> Any:
        claim = pawl.current()
        charge = claim.step("charge", lambda: note("charge", ["ch_7", 1]))
        claim.checkpoint({"page": claim.attempt})
        claim.step("mail", lambda: note("mail", None))
        if claim.attempt == 1:
            kept = json.loads(app.ref(claim.id).info().checkpoint)
            assert kept == {"pawl_steps": {"charge": ["ch_7", 1], "mail": None}, "checkpoint": {"page": 1}}
            raise ValueError("behind the charge")
        return [charge, claim.step("charge", lambda: note("charge", "again"))]

    @app.task("aorder", queue=queue, retry=AT_ONCE)
    async def aorder() -> Any:
        claim = pawl.current()
        charge = await claim.astep("acharge", lambda: anote("acharge", "ch_8"))
        if claim.attempt == 1:
            raise ValueError("behind the charge")
        return charge

    with working(app, queue):
        assert order.enqueue().result(20) == [["ch_7", 1]] * 2
        assert aorder.enqueue().result(20) == "ch_8"
    assert ran == ["charge", "mail", "acharge"]


def test_a_step_that_fails_is_not_recorded(app: pawl.App, queue: str) -> None:
    ran: list[int] = []

    def charge() -> int:
        ran.append(pawl.current().attempt)
        if len(ran) == 1:
            raise ConnectionError("bank")
        return len(ran)

    @app.task("order", queue=queue, retry=AT_ONCE)
    def order() -> int:
        with pytest.raises(ConnectionError):
            pawl.current().step("charge", charge)
        return pawl.current().step("charge", charge)

    with working(app, queue):
        assert order.enqueue().result(20) == 2


def test_threads_at_the_same_step_wait_for_each_other(app: pawl.App, queue: str) -> None:
    ran: list[int] = []

    def slowly() -> int:
        time.sleep(0.1)
        ran.append(1)
        return len(ran)

    @app.task("order", queue=queue)
    def order() -> list[int]:
        claim = pawl.current()

        def other(n: int) -> int:
            return claim.step(f"other-{n}", lambda: n)

        with ThreadPoolExecutor(8) as pool:
            same = [pool.submit(lambda: claim.step("same", slowly)) for _ in range(4)]
            others = [pool.submit(other, n) for n in range(4)]
            assert [each.result() for each in others] == [0, 1, 2, 3]
            return [each.result() for each in same]

    with working(app, queue):
        ref = order.enqueue()
        assert ref.result(20) == [1] * 4
    assert len(ran) == 1


@pytest.mark.parametrize("result", [object(), "x" * 70_000])
def test_a_result_that_cannot_be_recorded_makes_a_dead_letter(app: pawl.App, queue: str, result: object) -> None:
    ran: list[int] = []

    def charge() -> object:
        ran.append(1)
        return result

    @app.task("order", queue=queue, retry=AT_ONCE)
    def order() -> None:
        pawl.current().step("charge", charge)

    @app.task("effect", queue=queue, retry=AT_ONCE)
    def effect() -> None:
        pawl.current().once(queue, charge)

    with working(app, queue):
        for task in (order, effect):
            info = task.enqueue().wait_ended(20)
            assert (info.state, info.attempts) == ("dead", 1)
            assert info.last_failure is not None and "cannot be recorded" in info.last_failure.message
    assert len(ran) == 2


def test_bad_names_are_refused_before_anything_runs(app: pawl.App, queue: str) -> None:
    @app.task("bad", queue=queue)
    def bad() -> None:
        claim = pawl.current()
        for name in ("", "x" * 257, "ä" * 129, "\ud800", 7):
            with pytest.raises(pawl.InvalidArgumentError):
                claim.step(name, never)  # type: ignore[arg-type]
            with pytest.raises(pawl.InvalidArgumentError):
                claim.once(name, never)  # type: ignore[arg-type]
        for ttl in (0.5, 366 * 86_400):
            with pytest.raises(pawl.InvalidArgumentError) as refused:
                claim.once("k", never, ttl=ttl)
            assert refused.value.field == "ttl"
        with pytest.raises(pawl.InvalidArgumentError) as refused:
            claim.checkpoint("x" * 65_536)
        assert refused.value.field == "checkpoint"
        assert claim.step("x" * 256, lambda: 1) == 1

    with working(app, queue):
        info = bad.options(max_attempts=1).enqueue().wait_ended(20)
        assert info.state == "succeeded", info.last_failure


def never() -> None:
    """Must not run."""
    raise AssertionError("it runs")


def test_an_effect_is_had_once_among_tasks(app: pawl.App, queue: str) -> None:
    ran: list[str] = []

    def pay() -> dict[str, int]:
        ran.append(pawl.current().id)
        if len(ran) == 1:
            raise ConnectionError("bank")
        return {"receipt": 7}

    async def apay() -> dict[str, int]:
        return pay()

    @app.task("pay", queue=queue, retry=AT_ONCE)
    def task() -> Any:
        pawl.current().once("mail", lambda: None, ttl=3600)
        return pawl.current().once("payment/7", pay)

    @app.task("apay", queue=queue)
    async def atask() -> Any:
        return await pawl.current().aonce("payment/7", apay)

    with working(app, queue, concurrency=1):
        refs: list[pawl.Ref[Any]] = [task.enqueue(), task.enqueue(), atask.enqueue()]
        assert [ref.result(20) for ref in refs] == [{"receipt": 7}] * 3
    assert len(ran) == 2


def test_an_effect_that_fails_is_for_others_to_have(app: pawl.App, queue: str) -> None:
    failed, done = threading.Event(), threading.Event()

    @app.task("first", queue=queue)
    def first() -> str:
        claim = pawl.current()
        with pytest.raises(ConnectionError):
            claim.once("k", fail)
        failed.set()
        assert done.wait(30)
        return claim.once("k", lambda: "first")

    @app.task("second", queue=queue)
    def second() -> str:
        assert failed.wait(30)
        out = pawl.current().once("k", lambda: "second")
        done.set()
        return out

    with working(app, queue):
        assert [ref.result(40) for ref in (first.enqueue(), second.enqueue())] == ["second"] * 2


def fail() -> None:
    """Cannot reach the bank."""
    raise ConnectionError("bank")


def test_a_task_that_waits_for_another_in_vain_is_put_off(app: pawl.App, queue: str) -> None:
    holds, go = threading.Event(), threading.Event()

    @app.task("slow", queue=queue)
    def slow() -> str:
        def effect() -> str:
            holds.set()
            assert go.wait(30)
            return "slow"

        return pawl.current().once("k", effect)

    @app.task("late", queue=queue)
    def late() -> str:
        return pawl.current().once("k", lambda: "late")

    with working(app, queue, lease=1.0):
        first = slow.enqueue()
        assert holds.wait(20)
        second = late.enqueue()
        eventually(lambda: second.info().snoozes)
        assert second.info().failures == 0
        go.set()
        assert (first.result(20), second.result(20)) == ("slow", "slow")


def test_a_cancelled_task_stores_nothing_more(app: pawl.App, queue: str) -> None:
    raised: list[BaseException] = []

    @app.task("t", queue=queue)
    def task() -> None:
        app.ref(pawl.current().id).cancel()
        try:
            pawl.current().checkpoint(1)
        except pawl.Interrupted as err:
            raised.append(err)
            raise

    with working(app, queue):
        ref = task.enqueue()
        eventually(lambda: raised)
        assert isinstance(raised[0], pawl.Cancelled)
        assert ref.info().checkpoint == b""


class World:
    """A worker at a scripted broker, with one handler."""

    def __init__(self, handler: Any) -> None:
        self.broker = ScriptedBroker()
        self.app = pawl.App(self.broker.address)
        self.app.task("t")(handler)

    def __enter__(self) -> World:
        self._working = working(self.app, "q", drain_timeout=0)
        self.worker = self._working.__enter__()
        self.stream = self.broker.stream()
        return self

    def __exit__(self, *error: Any) -> None:
        self._working.__exit__(*error)
        self.broker.close()
        self.app.close()


def test_what_has_run_is_recorded_though_the_handler_is_told_to_stop() -> None:
    async def handler() -> None:
        await pawl.current().astep("charge", charge)

    async def charge() -> str:
        return "ch_7"

    with World(handler) as world:
        world.stream.push("a")
        request = world.broker.extended.get(timeout=20)
        assert json.loads(request.checkpoint) == {"pawl_steps": {"charge": "ch_7"}}
        world.worker.stop()  # drains without waiting, and cancels the coroutine
        eventually(lambda: all(held.cause for held in world.worker._run._claims.values()))
        world.broker.extend_answers.put(grpc.StatusCode.UNAVAILABLE)  # and recording needs a second try
        assert world.broker.extended.get(timeout=20) == request
        world.broker.extend_answers.put(worker_pb2.ExtendResponse())
        assert [release.claim_token for release in world.stream.settles().releases] == ["a"]


def test_the_worker_knows_that_a_checkpoint_extends_the_lease() -> None:
    def handler() -> None:
        pawl.current().checkpoint(1)
        ends.append(next(iter(claims.values())).lease_end)

    ends: list[float] = []
    with World(handler) as world:
        claims = world.worker._run._claims
        world.stream.push("a")
        assert world.broker.extended.get(timeout=20).checkpoint == b"1"
        before = next(iter(claims.values())).lease_end
        world.broker.extend_answers.put(worker_pb2.ExtendResponse())
        assert [ack.claim_token for ack in world.stream.settles().acks] == ["a"]
        assert ends[0] > before


def test_a_checkpoint_of_a_claim_that_is_gone_stops_the_handler() -> None:
    def handler() -> None:
        try:
            pawl.current().checkpoint(1)
        except pawl.PawlError as err:
            raised.append(err)
        except pawl.Interrupted as err:
            raised.append(err)
        raised.append(pawl.current().interrupted)

    raised: list[BaseException | None] = []
    with World(handler) as world:
        world.stream.push("a")
        world.broker.extend_answers.put(task_pb2.Error(code="stale_claim", reason="reclaimed", holder="w7"))
        eventually(lambda: len(raised) == 2)
    assert [type(each) for each in raised] == [pawl.LeaseLost, pawl.LeaseLost]
    assert raised[0] is not None and isinstance(raised[0].__cause__, pawl.StaleClaimError) and raised[0].__cause__.holder == "w7"


def test_a_checkpoint_that_is_no_json_leaves_no_room_for_steps() -> None:
    raised: list[pawl.InvalidArgumentError] = []

    def handler() -> None:
        try:
            pawl.current().step("charge", never)
        except pawl.InvalidArgumentError as err:
            raised.append(err)

    with World(handler) as world:
        world.stream.push("a", checkpoint=b"\x00")
        assert len(world.stream.settles().acks) == 1
        assert "not JSON" in str(raised[0])


def test_a_coroutine_that_gives_up_waiting_leaves_its_step(app: pawl.App, queue: str) -> None:
    async def slow() -> int:
        await asyncio.sleep(60)
        return 0

    async def fast() -> int:
        return 1

    @app.task("t", queue=queue)
    async def task() -> int:
        claim = pawl.current()
        with pytest.raises(asyncio.TimeoutError) as first:
            await asyncio.wait_for(claim.astep("k", slow), 0.1)
        with pytest.raises(asyncio.TimeoutError) as second:
            await asyncio.wait_for(claim.aonce("k", slow), 0.1)
        assert first.value.__cause__ and second.value.__cause__  # which keep the frames of abandoned generators alive
        return await claim.astep("k", fast) + await claim.aonce("k", fast)

    with working(app, queue):
        assert task.enqueue().result(20) == 2


def test_a_step_that_exits_is_left(app: pawl.App, queue: str) -> None:
    @app.task("t", queue=queue)
    def task() -> int:
        claim = pawl.current()
        try:
            return claim.step("k", leave)
        except SystemExit as err:
            assert err.__traceback__  # which keeps the frames of the step alive
            return claim.step("k", lambda: 1)

    def leave() -> int:
        raise SystemExit(3)

    with working(app, queue):
        assert task.enqueue().result(20) == 1
