"""The worker's stream: what the worker sends when streams break, endings are refused, and tasks arrive at the wrong moment."""

from __future__ import annotations

import contextlib
import logging
import math
import sys
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import duration_pb2

import pawl
from pawl import _telemetry, _work, testing
from pawl.v1 import task_pb2, worker_pb2

from scripted import ScriptedBroker, Stream, answer_to
from waiting import eventually


class World:
    """A worker at a scripted broker. Its handler for type t waits until it is told how to end."""

    def __init__(self, concurrency: int) -> None:
        self.broker = ScriptedBroker()
        self.app = pawl.App(self.broker.address)
        self.go = threading.Event()
        self.began = threading.Semaphore(0)
        self.claims: list[pawl.Claim] = []
        self.result: object = None
        self.app.task("t")(self._handle)
        self.worker = pawl.Worker(self.app, "q", concurrency=concurrency, drain_timeout=5)
        self.raised: list[BaseException] = []
        self.thread = threading.Thread(target=self._work)
        self.thread.start()

    def _handle(self) -> object:
        self.claims.append(pawl.current())
        self.began.release()
        assert self.go.wait(20)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def _work(self) -> None:
        try:
            self.worker.run()
        except pawl.PawlError as err:
            self.raised.append(err)

    def close(self) -> None:
        """Ends the worker and the broker."""
        self.go.set()
        self.worker.stop()
        self.thread.join(30)
        assert not self.thread.is_alive()
        assert not self.worker._run._claims  # no claim is left behind
        self.broker.close()
        self.app.close()


@pytest.fixture
def world() -> Iterator[World]:
    """A worker of two slots."""
    made = World(2)
    yield made
    made.close()


def opened(world: World) -> Stream:
    """Waits for a stream, checks its first frame, and returns it."""
    stream = world.broker.stream()
    first = stream.receive()
    assert first is not None and first.hello.types == ["t"] and first.hello.slots == 2
    return stream


def test_free_slots_are_granted_and_granted_again(world: World) -> None:
    stream = world.broker.stream()
    first = stream.receive()
    assert first is not None and first.grant == 2
    world.go.set()
    stream.push("a")
    settles = stream.settles()
    assert [ack.claim_token for ack in settles.acks] == ["a"]
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    stream.break_off()
    first = world.broker.stream().receive()
    assert first is not None and first.grant == 2  # grants of the broken stream no longer count


def test_a_stream_whose_broker_is_slow_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_work, "_PROBE_AFTER", 0.02)
    probed = threading.Semaphore(0)
    probe = _work.Run._probe

    def counted(*args: Any) -> None:
        probe(*args)
        probed.release()

    monkeypatch.setattr(_work.Run, "_probe", counted)
    world = World(2)
    stream = opened(world)
    world.go.set()
    stream.push("a")
    settles = stream.settles()
    assert all(probed.acquire(timeout=20) for _ in range(5))
    session: Any = world.worker._run._session
    heard = session.frames
    stream.answers.put(worker_pb2.WorkResponse())  # which is not the answer
    eventually(lambda: session.frames > heard)
    while probed.acquire(blocking=False):
        pass
    assert all(probed.acquire(timeout=5) for _ in range(5))
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    eventually(lambda: session.probe_at == math.inf)
    stream.push("b")
    assert [ack.claim_token for ack in stream.settles().acks] == ["b"]
    world.close()


def test_endings_wait_only_for_their_own_shard(world: World) -> None:
    stream = opened(world)
    world.go.set()
    frames = {}
    for token in ("a.1", "b.1"):  # the shard does not answer, and has room for two frames
        stream.push(token)
        frames[token] = stream.settles()
        assert [ack.claim_token for ack in frames[token].acks] == [token]
    stream.push("c.1")
    assert all(world.began.acquire(timeout=20) for _ in range(3))
    for token in ("d.2", "e.2"):
        stream.push(token)
        settles = stream.settles()
        assert [ack.claim_token for ack in settles.acks] == [token]
        stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(frames["a.1"])))
    assert [ack.claim_token for ack in stream.settles().acks] == ["c.1"]


def test_a_refusal_that_overtakes_confirms_no_later_lease(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    run = world.worker._run
    held = run._claims["a"]

    def extension() -> worker_pb2.SettleRequest:
        with run._lock:
            held.due = 0.0
            run._sweep_at(0.0)
        return stream.settles()

    frames = [extension(), extension()]
    first, second = held.unanswered
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(frames[1], "unavailable")))
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(frames[0])))
    eventually(lambda: held.lease_end >= first + held.lease)
    assert first < second and held.lease_end == first + held.lease
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(extension())))
    eventually(lambda: held.lease_end == held.extended + held.lease)  # no time of a refused extension is left
    extension()
    stream.break_off()
    stream = opened(world)
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(stream.settles())))
    eventually(lambda: held.lease_end == held.extended + held.lease)  # nor one of an extension over an earlier stream


def test_what_is_not_confirmed_is_told_over_the_next_stream(world: World) -> None:
    stream = opened(world)
    stream.push("a", "b")
    world.go.set()
    told = {ack.claim_token for ack in stream.settles().acks}
    stream.break_off()
    stream = world.broker.stream()
    first = stream.receive()
    assert first is not None and first.grant == 2
    told_again: set[str] = set()
    while told_again != {"a", "b"}:
        settles = stream.settles()
        told_again |= {ack.claim_token for ack in settles.acks}
        stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    assert told <= told_again
    assert len(world.claims) == 2


def test_a_new_stream_extends_what_runs_and_stops_what_is_lost(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    stream.break_off()
    stream = world.broker.stream()
    first = stream.receive()
    assert first is not None and first.grant == 1  # the handler continues
    settles = stream.settles()
    assert [extend.claim_token for extend in settles.extends] == ["a"]
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles, "stale_claim")))
    eventually(lambda: isinstance(world.claims[0].interrupted, pawl.LeaseLost))
    stream.push("b")
    world.go.set()
    settles = stream.settles()
    assert [ack.claim_token for ack in settles.acks] == ["b"]  # the end of a lost claim is not reported


def test_a_task_that_is_pushed_twice_runs_once(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    stream.push("a")
    stream.push("b")
    assert world.began.acquire(timeout=20)
    assert [claim.token for claim in world.claims] == ["a", "b"]


def test_a_task_that_comes_into_the_drain_is_given_back(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    world.worker.stop()
    while True:
        frame = stream.receive()
        assert frame is not None
        if frame.quiet:
            break
    stream.push("b")
    settles = stream.settles()
    assert [release.claim_token for release in settles.releases] == ["b"]
    world.go.set()
    settles = stream.settles()
    assert [ack.claim_token for ack in settles.acks] == ["a"]


def test_a_task_beyond_the_slots_is_given_back(world: World) -> None:
    stream = opened(world)
    stream.push("a", "b", "c")
    assert [release.claim_token for release in stream.settles().releases] == ["c"]


def test_a_type_that_nobody_asked_for_stays_away(world: World) -> None:
    stream = opened(world)
    stream.push("a", type="unknown")
    (release,) = stream.settles().releases
    assert (release.claim_token, release.delay.seconds) == ("a", 30)


@pytest.mark.parametrize("code", ["unavailable", "rate_limited", "internal"])
def test_an_end_that_the_broker_could_not_take_is_told_again(world: World, code: str) -> None:
    stream = opened(world)
    stream.push("a")
    world.go.set()
    settles = stream.settles()
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles, code)))
    assert [ack.claim_token for ack in stream.settles().acks] == ["a"]


def test_a_result_that_is_refused_makes_a_dead_letter_and_one_that_is_refused_again_is_dropped(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    world.result = "too large"
    world.go.set()
    settles = stream.settles()
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles, "payload_too_large")))
    settles = stream.settles()
    assert [(fail.claim_token, fail.outcome) for fail in settles.fails] == [("a", worker_pb2.FAIL_OUTCOME_DEAD)]
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles, "invalid_argument")))
    stream.push("b")
    settles = stream.settles()
    assert ([fail.claim_token for fail in settles.fails], [ack.claim_token for ack in settles.acks]) == ([], ["b"])


def test_what_the_last_stream_does_not_confirm_is_told_by_a_call(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    world.go.set()
    assert len(stream.settles().acks) == 1
    world.worker.stop()  # no answers
    told = world.broker.settled.get(timeout=20)
    assert [ack.claim_token for ack in told.acks] == ["a"]
    world.thread.join(20)
    assert not world.raised


def stopped_without_answers(world: World) -> None:
    """Stops a worker whose stream does not answer for a task."""
    stream = opened(world)
    stream.push("a")
    world.result = "done"
    world.go.set()
    assert len(stream.settles().acks) == 1
    world.worker.stop()


def test_what_the_last_call_cannot_settle_is_told_again(world: World) -> None:
    world.broker.settle_refusals = ["unavailable", "rate_limited", "internal"]
    stopped_without_answers(world)
    for _ in range(4):
        assert [ack.claim_token for ack in world.broker.settled.get(timeout=20).acks] == ["a"]
    world.thread.join(20)
    assert not world.raised and world.broker.settled.empty()


def test_a_result_that_the_last_call_refuses_makes_a_dead_letter(world: World) -> None:
    world.broker.settle_refusals = ["payload_too_large"]
    stopped_without_answers(world)
    assert len(world.broker.settled.get(timeout=20).acks) == 1
    (fail,) = world.broker.settled.get(timeout=20).fails
    assert (fail.claim_token, fail.outcome) == ("a", worker_pb2.FAIL_OUTCOME_DEAD)
    world.thread.join(20)
    assert not world.raised


def test_what_even_the_last_calls_do_not_settle_is_an_error(world: World) -> None:
    world.broker.settle_refusals = ["unavailable"] * 1000
    stopped_without_answers(world)
    world.thread.join(20)
    assert [type(err) for err in world.raised] == [pawl.UnavailableError]
    assert "the outcomes of 1 tasks are unconfirmed" in str(world.raised[0])
    world.worker._run._claims.clear()


def test_what_every_stream_refuses_is_told_by_a_call(world: World) -> None:
    stream = opened(world)
    stream.push("a", "b")
    world.go.set()
    settles = stream.settles()
    world.worker.stop()
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles, "unavailable")))
    while (frame := stream.receive()) is not None:
        if frame.HasField("settle"):
            stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(frame.settle, "unavailable")))
    assert {ack.claim_token for ack in world.broker.settled.get(timeout=20).acks} == {"a", "b"}
    world.thread.join(20)
    assert not world.raised


def test_a_lease_that_is_not_confirmed_ends(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    run, (claim,) = world.worker._run, world.claims
    held = run._claims["a"]
    end = held.lease_end
    frames = []
    for now in (end - 20, end - 10):
        with run._lock:
            held.due = now
            run._sweep(now)
        frames.append(stream.settles())
        assert [extend.claim_token for extend in frames[-1].extends] == ["a"]
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(frames[0], "unavailable")))  # the other has no answer
    eventually(lambda: len(held.unanswered) == 1)
    with run._lock:
        run._sweep(end - 0.1)
    assert claim.interrupted is None
    with run._lock:
        run._sweep(end)
    assert isinstance(claim.interrupted, pawl.LeaseLost) and held.lease_end == end
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(frames[1])))  # too late
    stream.break_off()
    stream = opened(world)
    stream.push("b")
    assert world.began.acquire(timeout=20)
    assert isinstance(claim.interrupted, pawl.LeaseLost) and held.lease_end == end
    world.result = RuntimeError("stopped")
    world.go.set()
    settles = stream.settles()
    assert not settles.extends
    releases = {release.claim_token for release in settles.releases}
    while "a" not in releases:  # the broker may have kept the claim
        settles = stream.settles()
        assert not settles.extends
        releases |= {release.claim_token for release in settles.releases}


def test_a_claim_that_the_broker_gives_away_is_not_reported(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    stream.answers.put(worker_pb2.WorkResponse(lost=[worker_pb2.LostClaim(task_id="id-a", claim_token="a", reason="expired")]))
    eventually(lambda: isinstance(world.claims[0].interrupted, pawl.LeaseLost))
    stream.break_off()
    stream = opened(world)
    stream.push("b")
    assert world.began.acquire(timeout=20)
    world.go.set()
    settles = stream.settles()
    assert not settles.extends and [ack.claim_token for ack in settles.acks] == ["b"]


def test_a_quiet_worker_grants_nothing_until_it_resumes(world: World) -> None:
    stream = opened(world)
    stream.answers.put(worker_pb2.WorkResponse(quiet=worker_pb2.QuietNotice(quiet=True, reason="deploy", version=7)))
    stream.push("a")
    world.go.set()
    settles = stream.settles()
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    stream.break_off()
    stream = world.broker.stream()
    first = stream.receive()
    assert first is not None and (first.grant, first.hello.quiet_version) == (0, 7)
    stream.answers.put(worker_pb2.WorkResponse(quiet=worker_pb2.QuietNotice(quiet=False, version=8)))
    frame = stream.receive()
    assert frame is not None and frame.grant == 2


@pytest.mark.parametrize("part", ["_receive", "_sweep"])
def test_a_worker_whose_threads_fail_ends(world: World, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("a bug")

    stream = opened(world)
    monkeypatch.setattr(world.worker._run, part, fail)
    stream.push("a", timeout=duration_pb2.Duration(nanos=1))
    world.worker._run._next_sweep = 0  # which is due
    with world.worker._run._lock:
        world.worker._run._tick.notify_all()
    world.thread.join(30)
    assert [type(err) for err in world.raised] == [pawl.InternalError]
    monkeypatch.undo()
    world.worker._run._claims.clear()


def test_a_broker_that_drains_is_left_in_good_order(world: World) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    stream.answers.put(worker_pb2.WorkResponse(draining=True))
    frame = stream.receive()
    assert frame is not None and frame.quiet
    assert stream.receive() is None
    first = world.broker.stream().receive()
    assert first is not None and first.grant == 1  # the handler continues


def test_a_stream_whose_connection_another_worker_closes_is_opened_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = opened(world)
    connection = world.app._caller.connection
    metadata = connection.metadata
    closed: list[object] = []

    def slow() -> object:
        if not closed:
            closed.append(connection.channel(stream=True)[0])
            connection.discard(closed[0])
        return metadata()

    monkeypatch.setattr(connection, "metadata", slow)
    first.break_off()
    opened(world)
    assert closed


class Undescribed(Exception):
    """Its text can't be told."""

    def __str__(self) -> str:
        raise SystemExit("no text")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exception_that_cannot_be_described_fails_its_attempt(world: World) -> None:
    stream = opened(world)
    world.result = Undescribed()
    stream.push("a", timeout=duration_pb2.Duration(nanos=1_000_000))
    eventually(lambda: world.claims and world.claims[0].interrupted)
    world.go.set()
    (failed,) = stream_fails(stream)
    assert (failed.claim_token, failed.outcome) == ("a", worker_pb2.FAIL_OUTCOME_RETRY) and "Undescribed" in failed.error.message


def stream_fails(stream: Stream) -> list[worker_pb2.FailRequest]:
    """Waits for failures, and confirms them."""
    while True:
        settles = stream.settles()
        stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
        if settles.fails:
            return list(settles.fails)


@pytest.mark.parametrize(("data", "content_type"), [("text", "text/plain"), (b"text", b"text/plain"), (b"text", "\ud800"), (None, "")])
def test_a_raw_result_of_a_wrong_type_fails_its_attempt(world: World, data: Any, content_type: Any) -> None:
    stream = opened(world)
    stream.push("a")
    assert world.began.acquire(timeout=20)
    with contextlib.suppress(pawl.InvalidArgumentError):
        world.claims[0].set_raw_result(data, content_type)
        assert isinstance(data, bytes) and isinstance(content_type, str)
        world.go.set()
        (failed,) = stream_fails(stream)
        assert failed.claim_token == "a" and "a result that cannot be sent" in failed.error.message
        return
    world.go.set()  # the handler has ignored the refusal
    settles = stream.settles()
    assert [ack.result for ack in settles.acks] == [b""]
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))


def test_a_coroutine_that_is_interrupted_before_its_first_step_frees_its_slot() -> None:
    broker = ScriptedBroker()
    app = pawl.App(broker.address)
    blocked, go = threading.Event(), threading.Event()

    @app.task("t")
    async def handle() -> None:
        blocked.set()
        assert go.wait(20)  # blocks the loop

    worker = pawl.Worker(app, "q", concurrency=2)
    thread = threading.Thread(target=worker.run)
    thread.start()
    stream = broker.stream()
    stream.push("a")
    assert blocked.wait(20)
    stream.push("b", timeout=duration_pb2.Duration(nanos=1_000_000))
    eventually(lambda: any(held.cause for held in list(worker._run._claims.values())))
    go.set()
    fails: list[worker_pb2.FailRequest] = []
    acks: list[worker_pb2.AckRequest] = []
    while not (fails and acks):
        settles = stream.settles()
        stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
        fails += settles.fails
        acks += settles.acks
    assert [(each.claim_token, each.error.type) for each in fails] == [("b", "timeout")] and acks[0].claim_token == "a"
    assert worker._run._busy == 0
    worker.stop()
    thread.join(20)
    broker.close()
    app.close()


class Hostile:
    """A part of OpenTelemetry into which the program has plugged something that raises. It also needs the worker's lock, as what reads
    pawl.current().interrupted does."""

    def __init__(self, worker: list[pawl.Worker]) -> None:
        self._worker = worker
        self.called = 0

    def __getattr__(self, name: str) -> Any:
        def fail(*args: Any, **kwargs: Any) -> Any:
            self.called += 1
            for worker in self._worker:
                assert worker._run._lock.acquire(timeout=5), "called with the lock held"
                worker._run._lock.release()
            raise RuntimeError(name)

        return fail


@pytest.mark.parametrize("begins", [True, False])
def test_telemetry_that_raises_harms_nothing(begins: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    broker = ScriptedBroker()
    app = pawl.App(broker.address)
    workers: list[pawl.Worker] = []
    hostile = Hostile(workers)
    for name in ("_carry", "_trace", "_context", "_metrics"):
        monkeypatch.setattr(_telemetry, name, hostile, raising=False)
    if begins:
        monkeypatch.setattr(_telemetry, "_begin", lambda *args, **kwargs: _telemetry.Span(hostile))
        monkeypatch.setattr(_telemetry, "_origin", lambda headers: None)
        monkeypatch.setattr(_telemetry, "_instruments", lambda: SimpleNamespace(consumed=SimpleNamespace(add=lambda *args: None)))
    _telemetry.Batch([task_pb2.TaskSpec()], ("", 0)).answered([None])
    _telemetry.Batch([task_pb2.TaskSpec()], ("", 0)).failed(RuntimeError())
    _telemetry.sending(task_pb2.TaskSpec(), ("", 0)).end()

    @app.task("t")
    def handle() -> str:
        return "done"

    worker = pawl.Worker(app, "q", concurrency=1)
    workers.append(worker)
    thread = threading.Thread(target=worker.run)
    thread.start()
    stream = broker.stream()
    for token in ("a", "b"):
        stream.push(token)
        settles = stream.settles()
        assert [(ack.claim_token, ack.result) for ack in settles.acks] == [(token, b'"done"')]
        stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    eventually(lambda: not worker._run._claims)
    assert hostile.called
    worker.stop()
    thread.join(20)
    assert "the worker has failed" not in caplog.text and "lock held" not in caplog.text
    broker.close()
    app.close()


def test_the_log_is_written_without_the_lock(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(_work, "_DRAIN_GRACE", 0.05)
    world.worker._run._drain_timeout = 0.05
    said: list[str] = []
    blocked: list[str] = []

    class NeedsTheLock(logging.Handler):
        """Like a handler that asks why a claim is interrupted."""

        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.msg)
            if world.worker._run._lock.acquire(timeout=1):
                world.worker._run._lock.release()
            else:
                blocked.append(record.msg)

    caplog.set_level(logging.INFO, "pawl.worker")
    monkeypatch.setattr(logging.getLogger("pawl.worker"), "handlers", [NeedsTheLock()])
    stream = opened(world)
    stream.push("a", "b")
    assert world.began.acquire(timeout=20) and world.began.acquire(timeout=20)
    with world.worker._run._lock:
        world.worker._run._claims["a"].lease_end = 0.0
        world.worker._run._sweep_at(0.0)
    eventually(lambda: any("ended without confirmation" in each for each in said))
    world.worker.stop()
    released: set[str] = set()
    while released != {"a", "b"}:
        settles = stream.settles()
        stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(worker_pb2.SettleRequest(releases=settles.releases))))
        released |= {each.claim_token for each in settles.releases}
    world.thread.join(20)
    assert not blocked
    for part in ("ended without confirmation", "draining", "does not stop"):
        assert any(part in each for each in said), part


class Broken(logging.Filter):
    """A filter that raises."""

    def filter(self, record: logging.LogRecord) -> bool:
        raise RuntimeError("it is broken")


def test_a_filter_that_raises_ends_no_worker(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    run = world.worker._run
    caplog.set_level(logging.INFO, "pawl.worker")
    stream = opened(world)
    stream.push("a", "b")
    assert world.began.acquire(timeout=20) and world.began.acquire(timeout=20)
    assert ("_work.py", "_frames") in [(record.filename, record.funcName) for record in caplog.records]  # not where it is passed on
    monkeypatch.setattr(logging.getLogger("pawl.worker"), "filters", [Broken()])
    for due in ("a", "b"):  # a lapses, which is logged; b must still be extended
        with run._lock:
            run._claims["a"].lease_end = 0.0
            run._claims["b"].due = 0.0
            run._sweep_at(0.0)
        assert [each.claim_token for each in stream.settles().extends] == ["b"], due
    stream.answers.put(worker_pb2.WorkResponse(lost=[worker_pb2.LostClaim(claim_token="b", reason="expired")]))
    eventually(lambda: run._claims["b"].cause)
    world.go.set()
    settles = stream.settles()
    assert [each.claim_token for each in settles.acks] == ["a"]
    stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    world.worker.stop()
    world.thread.join(20)
    assert not world.thread.is_alive() and not world.raised


def test_a_function_for_the_token_that_exits_ends_the_worker() -> None:
    raised: list[BaseException] = []
    with pawl.App("127.0.0.1:1", token=lambda: sys.exit("no token")) as app:
        app.task("t")(lambda: None)

        def run() -> None:
            with pytest.raises(pawl.InternalError, match="no token") as caught:
                pawl.Worker(app).run()
            raised.append(caught.value)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(20)
        assert raised


def test_within_does_not_limit_a_worker() -> None:
    broker = ScriptedBroker()
    with pawl.App(broker.address) as app:

        @app.task("t")
        def handle() -> str:
            pawl.current().checkpoint(1)
            return "done"

        with testing.working(app.within(0.1), "q"):
            stream = broker.stream()
            stream.push("a")
            broker.extended.get(timeout=20)
            time.sleep(0.3)
            broker.extend_answers.put(worker_pb2.ExtendResponse())
            settles = stream.settles()
            assert [ack.result for ack in settles.acks] == [b'"done"']
            stream.answers.put(worker_pb2.WorkResponse(settled=answer_to(settles)))
    broker.close()
