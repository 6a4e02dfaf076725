"""Workers: outcomes of tasks, leases, cancellation, draining."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

import pawl
from pawl import _ending, _held, cli, testing
from pawl.testing import working
from pawl.v1 import worker_pb2

from waiting import eventually


def test_functions_and_coroutines_run_and_give_results(app: pawl.App, queue: str) -> None:
    @app.task("add", queue=queue)
    def add(a: int, b: int = 10) -> int:
        assert pawl.current().type == "add"
        return a + b

    @app.task("aadd", queue=queue)
    async def aadd(a: int, b: int = 10) -> dict[str, int]:
        await asyncio.sleep(0.01)
        assert pawl.current().type == "aadd"
        return {"sum": a + b}

    @app.task("nothing", queue=queue)
    def nothing() -> None:
        pass

    with working(app, queue):
        assert add.enqueue(1).result(10) == 11
        assert add.enqueue(1, b=2).result(10) == 3
        assert asyncio.run(result(aadd, 5)) == {"sum": 15}
        assert nothing.enqueue().wait_ended(10).result == b""
    with pytest.raises(LookupError):
        pawl.current()


async def result(task: pawl.AsyncTask[[int], dict[str, int]], n: int) -> dict[str, int]:
    """Enqueues a task and waits for it on an event loop."""
    return await (await task.aenqueue(n)).aresult(10)


def test_tasks_run_side_by_side_up_to_the_concurrency(app: pawl.App, queue: str) -> None:
    gate = threading.Barrier(4)
    now, most, lock = 0, 0, threading.Lock()

    @app.task("meet", queue=queue)
    def meet() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait(20)
        with lock:
            now -= 1

    with working(app, queue, concurrency=4):
        for ref in meet.enqueue_many({} for _ in range(40)):
            assert ref.wait_ended(30).state == "succeeded"
    assert most == 4


def test_thousands_of_coroutines_run_on_one_loop(app: pawl.App, queue: str) -> None:
    started = 0

    @app.task("sleep", queue=queue)
    async def sleep(n: int) -> int:
        nonlocal started
        started += 1
        while started < 1000:  # until all of them run at the same time
            await asyncio.sleep(0.01)
        return n

    with working(app, queue, concurrency=1000):
        refs = sleep.enqueue_many({"n": n} for n in range(1000))
        assert [ref.result(30) for ref in refs] == list(range(1000))


def test_what_handlers_raise_decides_what_becomes_of_tasks(app: pawl.App, queue: str) -> None:
    @app.task("raise", queue=queue, max_attempts=2, retry=pawl.Retry(initial=0, max=0))
    def raises(how: str) -> str:
        attempt = pawl.current().attempt
        if how == "retry" and attempt == 1:
            raise KeyError("not yet")
        if how == "fail":
            raise ValueError("never")
        if how == "retry_in" and attempt == 1:
            raise pawl.RetryIn(0.01, "soon")
        if how == "snooze" and not snoozed:
            snoozed.append(how)
            raise pawl.Snooze(0.01)
        if how == "dead":
            raise pawl.DeadLetter("no use") from OSError("disk")
        if how == "handled":
            try:
                raise OSError("disk")
            except OSError as err:
                raise pawl.DeadLetter(f"no use: {err}")  # noqa: B904
        if how == "wrapped":
            raise pawl.DeadLetter(KeyError("customer"))
        if how == "discard":
            raise pawl.Discard("too late")
        if how == "poison":
            raise pawl.Poison("unreadable")
        if how == "exit":
            raise SystemExit(3)
        if how == "result":
            return object()  # type: ignore[return-value]
        if how == "large":
            return "x" * (2 << 20)
        if how == "undescribed":
            raise Undescribed()
        return how

    snoozed: list[str] = []
    with working(app, queue):
        ends = {how: raises.enqueue(how) for how in ENDS}
        for how, (state, attempts, error) in ENDS.items():
            info = ends[how].wait_ended(20)
            assert (how, info.state, info.attempts) == (how, state, attempts)
            failure = info.last_failure
            assert error in (f"{failure.type}: {failure.message}" if failure else ""), how
        assert (stack := ends["fail"].info().last_failure) is not None
        assert 'raise ValueError("never")' in stack.stack
        assert ends["snooze"].info().snoozes == 1


class Undescribed(Exception):
    """An error that cannot be formatted."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ENDS = {
    "well": ("succeeded", 1, ""),
    "retry": ("succeeded", 2, "KeyError: 'not yet'"),
    "retry_in": ("succeeded", 2, "soon"),
    "snooze": ("succeeded", 1, ""),
    "fail": ("dead", 2, "ValueError: never"),
    "dead": ("dead", 1, "OSError: no use"),
    "handled": ("dead", 1, "OSError: no use: disk"),
    "wrapped": ("dead", 1, "KeyError: KeyError: 'customer'"),
    "discard": ("discarded", 1, "too late"),
    "poison": ("poisoned", 1, "unreadable"),
    "exit": ("dead", 2, "SystemExit: 3"),
    "result": ("dead", 1, "cannot be kept"),
    "large": ("dead", 1, "payload_too_large"),
    "undescribed": ("dead", 2, "cannot be described"),
}


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({}, "missing a required argument: 'to'"),
        (["a"], "want an object, got ['a']"),
    ],
)
def test_payloads_that_do_not_fit_are_poison(app: pawl.App, queue: str, payload: Any, says: str) -> None:
    @app.task("fit")
    def fit(to: str) -> None:
        pass

    with working(app, queue):
        info = app.call("fit", payload, queue=queue).enqueue().wait_ended(10)
        assert info.state == "poisoned" and info.last_failure is not None
        assert says in info.last_failure.message


def test_payloads_of_other_producers(app: pawl.App, queue: str) -> None:
    @app.task("fit")
    def fit(to: str) -> str:
        return to

    @app.handler("raw")
    def raw(claim: pawl.Claim) -> None:
        claim.set_raw_result(claim.payload[::-1], "application/octet-stream")

    with working(app, queue):
        newer = app.call("fit", {"to": "a", "more": 1}, queue=queue).enqueue()
        assert newer.result(10) == "a"
        ref = app.call("raw", b"\x01\x02", content_type="application/x", queue=queue).enqueue()
        other = ref.wait_ended(10)
        with pytest.raises(ValueError, match="is 'application/octet-stream', not JSON"):
            ref.result()
        with pytest.raises(ValueError, match="is 'application/x', not JSON"):
            other.decode_payload()
        assert (other.result, other.result_content_type) == (b"\x02\x01", "application/octet-stream")
        not_json = app.call("fit", b"\x01", content_type="application/x", queue=queue).enqueue().wait_ended(10)
        assert not_json.state == "poisoned"


def test_a_payload_that_is_encrypted_is_for_others(app: pawl.App, queue: str) -> None:
    @app.task("secret", max_attempts=1)
    def secret() -> None:
        raise AssertionError("it runs")

    @app.handler("raw")
    def raw(claim: pawl.Claim) -> None:
        raise AssertionError("it runs")

    with working(app, queue):
        for type in ("secret", "raw"):
            sealed = app.call(type, b"\x01", content_type="application/vnd.pawl.encrypted; key=k", queue=queue, max_attempts=1)
            info = sealed.enqueue().wait_ended(10)
            assert info.state == "dead" and info.last_failure is not None
            assert "encrypted" in info.last_failure.message


def test_leases_are_extended_while_handlers_run(app: pawl.App, queue: str) -> None:
    @app.task("slow", queue=queue)
    def slow() -> int:
        time.sleep(2.5)
        return pawl.current().attempt

    with working(app, queue, lease=1.0):
        assert slow.enqueue().result(20) == 1


def test_progress_is_told_while_a_handler_runs(app: pawl.App, queue: str) -> None:
    go = threading.Event()

    @app.task("far", queue=queue)
    def far() -> None:
        pawl.current().progress(41.5, "nearly\ud800")
        pawl.current().progress(200, "half")
        go.wait(20)

    with working(app, queue):
        ref = far.enqueue()
        eventually(lambda: ref.info().progress == pawl.Progress(100.0, "half"))
        go.set()
        ref.wait_ended(10)


def test_cancelled_handlers_are_told(app: pawl.App, queue: str) -> None:
    began: dict[str, threading.Event] = {"sync": threading.Event(), "aio": threading.Event()}
    causes: dict[str, Any] = {}

    @app.task("loop", queue=queue)
    def loop() -> None:
        began["sync"].set()
        try:
            while True:
                pawl.current().check()
                time.sleep(0.01)
        except pawl.Cancelled as err:
            causes["sync"] = err
            raise

    @app.task("aloop", queue=queue)
    async def aloop() -> None:
        began["aio"].set()
        try:
            await asyncio.sleep(60)
        finally:
            causes["aio"] = pawl.current().interrupted

    with working(app, queue):
        refs = {"sync": loop.enqueue(), "aio": aloop.enqueue()}
        for name, ref in refs.items():
            assert began[name].wait(10)
            ref.cancel("enough")
            eventually(lambda: isinstance(causes.get(name), pawl.Cancelled))
            assert ref.info().state == "cancelled"


def test_the_timeout_of_a_run_is_a_failure(app: pawl.App, queue: str, caplog: pytest.LogCaptureFixture) -> None:
    @app.task("long", queue=queue, timeout=0.3, max_attempts=1)
    def long() -> None:
        while True:
            pawl.current().check()
            time.sleep(0.01)

    @app.task("along", queue=queue, timeout=0.3, max_attempts=1)
    async def along() -> None:
        await asyncio.sleep(60)

    own = 0  # reported by the worker; if it is over 10 s late, the broker ends the run
    with working(app, queue):
        for ref in (long.enqueue(), along.enqueue()):
            info = ref.wait_ended(60)
            assert info.state == "dead" and info.last_failure is not None and info.last_failure.type == "timeout"
            if info.last_failure.message != "the run exceeded its timeout":
                assert info.last_failure.message == "timed out after 0.3 s"
                own += 1

    def logged() -> list[str]:
        return [record.getMessage() for record in list(caplog.records) if "failed" in record.getMessage()]

    if own == 2:
        eventually(lambda: len(logged()) >= 2)  # a worker logs the end of a run once its slot is free
        assert len(logged()) == 2 and all(said.endswith("failed: timed out after 0.3 s") for said in logged())


def test_a_handler_that_ignores_its_timeout_loses_its_lease(app: pawl.App, queue: str) -> None:
    end = threading.Event()

    @app.task("stuck", queue=queue, timeout=0.3, max_attempts=1)
    def stuck() -> None:
        end.wait(30)

    with working(app, queue, lease=1.0):
        info = stuck.enqueue().wait_ended(20)
        end.set()
        assert (info.state, info.attempt_log[0].outcome) == ("dead", "lease_lost")


def test_drain_lets_handlers_finish(app: pawl.App, queue: str) -> None:
    began = threading.Event()

    @app.task("finish", queue=queue)
    async def finish() -> str:
        began.set()
        await asyncio.sleep(0.5)  # an interruption would end it
        return "done"

    with working(app, queue, concurrency=1):
        first, second = finish.enqueue(), finish.enqueue()
        assert began.wait(10)
    assert first.result(0) == "done"
    info = second.info()
    assert (info.state, info.attempts - info.releases) in (("ready", 0), ("succeeded", 1))


def test_drain_gives_back_what_does_not_finish(app: pawl.App, queue: str) -> None:
    began = threading.Semaphore(0)
    end = threading.Event()

    @app.task("heeds", queue=queue)
    async def heeds() -> None:
        began.release()
        await asyncio.sleep(60)

    @app.task("ignores", queue=queue)
    def ignores() -> None:
        began.release()
        end.wait(30)

    refs = [heeds.enqueue(), ignores.enqueue()]
    with working(app, queue, drain_timeout=0.2):
        assert began.acquire(timeout=10) and began.acquire(timeout=10)
    end.set()
    for ref in refs:
        info = ref.info()
        assert (info.state, info.failures, info.releases) == ("ready", 0, 1)


def test_weights_and_order(app: pawl.App, queue: str) -> None:
    ran: list[str] = []

    @app.task("note")
    def note(which: str) -> None:
        ran.append(which)

    first, second = f"{queue}-1", f"{queue}-2"
    refs = []
    for which in (first, second):
        refs += app.enqueue_many(note.options(queue=which).call(which) for _ in range(40))
    with working(app, f"{second},{first}", concurrency=1):
        for ref in refs:
            ref.wait_ended(20)
    assert ran == [second] * 40 + [first] * 40


@pytest.mark.parametrize(
    ("queues", "settings", "field"),
    [
        ("", {}, "queues"),
        ("a,a", {}, "queues"),
        ("a=1,b", {}, "queues"),
        ("a=x", {}, "queues"),
        ([], {}, "queues"),
        ({"a": 1001}, {}, "queues.a"),
        ({"a": 0}, {}, "queues.a"),
        ("a", {"concurrency": 0}, "concurrency"),
        ("a", {"concurrency": 10_001}, "concurrency"),
        ("a", {"lease": 0.5}, "lease"),
        ("a", {"lease": 43_201}, "lease"),
        ("a", {"drain_timeout": -1}, "drain_timeout"),
        ("a", {"max_bytes": 0}, "max_bytes"),
        ("a", {"name": "x" * 257}, "name"),
    ],
)
def test_bad_settings_name_their_field(app: pawl.App, queues: Any, settings: dict[str, Any], field: str) -> None:
    app.task("one")(lambda: None)
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        pawl.Worker(app, queues, **settings)
    assert refused.value.field == field


def test_an_app_without_tasks_is_refused(app: pawl.App) -> None:
    with pytest.raises(pawl.InvalidArgumentError, match="0 types"):
        pawl.Worker(app)


def test_a_refused_worker_says_so(binary: str, queue: str) -> None:
    with testing.Broker(binary, flags=("--auth",)) as guarded, pawl.App(guarded.address) as app:
        app.task("one")(lambda: None)
        with pytest.raises(pawl.UnauthenticatedError):
            pawl.Worker(app).run()
        with pytest.raises(pawl.UnauthenticatedError):
            app.call("one", queue=queue).enqueue()


def plain(fn: Any) -> Any:
    """A decorator that knows no coroutines."""

    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return wrapper


def test_an_awaitable_that_a_function_returns_is_awaited(app: pawl.App, queue: str) -> None:
    cancelled = threading.Event()

    @app.task("wrapped", queue=queue)
    @plain
    async def wrapped(n: int) -> int:
        await asyncio.sleep(0.01)
        assert pawl.current().type == "wrapped"
        return n + 1

    @app.task("hangs", queue=queue, timeout=0.5, max_attempts=1)
    @plain
    async def hangs() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    @app.handler("fails")
    @plain
    async def fails(claim: pawl.Claim) -> None:
        raise pawl.DeadLetter("no")

    with working(app, queue):
        assert wrapped.enqueue(1).result(10) == 2
        assert app.call("fails", queue=queue).enqueue().wait_ended(10).state == "dead"
        assert hangs.enqueue().wait_ended(10).state == "dead" and cancelled.is_set()


def test_a_retry_that_a_handler_asks_for_is_logged_without_a_stack(caplog: pytest.LogCaptureFixture) -> None:
    claim = worker_pb2.ClaimedTask(task_id="a", type="t", attempt=1)
    held: Any = SimpleNamespace(task=claim, name=_ending.Name("a", "token"), cause=None)
    _held.log_end(held, _held.Phase.RUNNING, pawl.RetryIn(5, "busy"))
    try:
        try:
            raise ValueError("no such file")
        except ValueError as err:
            raise pawl.RetryIn("1m") from err
    except pawl.RetryIn as err:
        _held.log_end(held, _held.Phase.RUNNING, err)
    plain, caused = caplog.records
    assert (plain.getMessage(), plain.exc_info) == ("task a (t, attempt 1): failed, next attempt in 5 s: busy", None)
    assert caused.getMessage().endswith("next attempt in 1m: no such file") and caused.exc_info and caused.exc_info[0] is ValueError


def test_the_command_has_the_short_options_of_celery() -> None:
    args = cli._parser().parse_args(["tasks:app", "-c", "3", "-Q", "a,b", "--loglevel", "INFO"])
    assert (args.concurrency, args.queues, args.log_level) == (3, "a,b", "info")
