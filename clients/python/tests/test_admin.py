"""What the stories of test_outside.py do not cover of the operators' calls: settings survive a round trip, and errors name the field."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import pawl
from pawl import _convert, _operate, _rpc, admin
from pawl.v1 import call_pb2

SETTINGS = admin.QueueSettings(
    weights=admin.PriorityWeights(7, 2, 1),
    retry=pawl.Retry(initial=1.5, factor=3, max=60.0, jitter=0.0),
    max_attempts=3,
    lease=45.0,
    timeout=10.0,
    retention=admin.Retention(succeeded=60.0, discarded=61.0, cancelled=62.0, dead=63.0, poisoned=64.0),
    max_length=1000,
    max_running=7,
    rate=admin.Rate(10, 1.0, 20),
    per_key=admin.KeyRules(max_running=2, rate=admin.Rate(1, 2.0, 3)),
    keys={"vip": admin.KeyRules(max_running=5, rate=admin.Rate(4, 1.0, 4), weight=9)},
    max_wait=30.0,
    breaker=admin.Breaker(failure_rate=40, window=30.0, min_attempts=10, hold=5.0, max_hold=50.0, probes=2),
    breakers={"job": admin.Breaker(off=True)},
)


def test_settings_come_back_as_they_were_put(app: pawl.App, queue: str) -> None:
    put = app.admin.queues.put(queue, SETTINGS)
    assert put.settings == SETTINGS
    again = app.admin.queues.put(queue, replace(put.settings, max_attempts=4), if_version=put.version)
    assert again.settings == replace(SETTINGS, max_attempts=4)
    with pytest.raises(pawl.ConflictError):
        app.admin.queues.put(queue, SETTINGS, if_version=put.version)


RATES = {"50": (50, 1), "50/s": (50, 1), "30/m": (30, 60), "1,000/h": (1000, 3600), "100/10s": (100, 10), "10/1m": (10, 60), "5 / 1d": (5, 86_400)}


def test_rates_are_texts_too(app: pawl.App, queue: str) -> None:
    for text, (limit, period) in RATES.items():
        put = app.admin.queues.put(queue, admin.QueueSettings(rate=text, keys={"vip": admin.KeyRules(rate=text)}))
        want = admin.Rate(limit, float(period), limit)
        assert (put.settings.rate, put.settings.keys["vip"].rate) == (want, want)
        assert _convert.per_second("rate", text) == limit / period
    assert app.admin.queues.put(queue, admin.QueueSettings(rate="none")).settings.rate is None
    spec = admin.OperationSpec("cancel", admin.Filter(queue=queue), rate="30/m")
    assert app.admin.operations.start(spec).spec.rate == 0.5
    for text in ("", "abc", "/s", "5/", "5/0s", "0/s", "-1/s", "NaN", "Inf/s", "5/s/s", "5/week", "1_0/s", "1e16/s"):
        calls: tuple[tuple[str, Callable[[str], object]], ...] = (
            ("settings.rate", lambda text: app.admin.queues.put(queue, admin.QueueSettings(rate=text or " "))),
            ("spec.rate", lambda text: app.admin.operations.start(replace(spec, rate=text or " "))),
        )
        for field, call in calls:
            with pytest.raises(pawl.InvalidArgumentError, match="is not a rate such as 50/s, 30/m, 1000/h or 100/10s") as refused:
                call(text)
            assert refused.value.field == field
    with pytest.raises(pawl.InvalidArgumentError, match="a limit is a whole number of tasks; use a longer period"):
        app.admin.queues.put(queue, admin.QueueSettings(rate="0.5/s"))
    with pytest.raises(pawl.InvalidArgumentError, match="settings.retry: 'fast' is a text"):
        app.admin.queues.put(queue, admin.QueueSettings(retry="fast"))  # type: ignore[arg-type]


def test_what_is_wrong_is_named(app: pawl.App, queue: str) -> None:
    with pytest.raises(pawl.InvalidArgumentError, match="key_order") as refused:
        app.admin.queues.put(queue, admin.QueueSettings(key_order="random"))
    assert refused.value.field == "settings.key_order"
    with pytest.raises(pawl.InvalidArgumentError, match="filter.states"):
        list(app.admin.tasks.list(admin.Filter(states=["alive"])))
    with pytest.raises(pawl.InvalidArgumentError, match="not a list"):
        list(app.admin.tasks.list(admin.Filter(states="dead")))
    with pytest.raises(pawl.InvalidArgumentError, match="type: is empty: leave it out"):
        list(app.admin.tasks.list(admin.Filter(queue=queue, type="")))  # or it would select all types
    with pytest.raises(pawl.InvalidArgumentError, match="key: is empty: leave it out"):
        app.admin.queues.pause(queue, key="")
    with pytest.raises(pawl.NotFoundError):
        app.admin.queues.get(queue)
    for name in ("", "x" * 257, "zoë", "a\nb"):
        with pytest.raises(pawl.InvalidArgumentError, match="is not 1 to 256 characters"):
            app.admin.with_actor(name)


def test_lists_and_twins(app: pawl.App, queue: str) -> None:
    app.call("job", queue=queue).enqueue()
    assert [q.queue for q in app.admin.queues.list(queue)] == [queue]
    assert [t.type for t in app.admin.tasks.list(admin.Filter(queue=queue, states=["ready"]))] == ["job"]

    async def twins() -> list[str]:
        await app.admin.queues.apause(queue, "why not", type="job")
        return [q.queue async for q in app.admin.queues.alist(queue)]

    assert asyncio.run(twins()) == [queue]

    async def acting() -> str:
        return (await app.admin.with_actor("lena").queues.apause(queue)).paused_by

    assert asyncio.run(acting()) == "lena"
    app.schedules.with_actor("lena").put(queue, app.call("job", queue=queue), every=60)
    paused = app.schedules.with_actor("lena").pause(queue).pause
    assert paused is not None and paused.by == "lena"
    app.schedules.delete(queue)
    app.admin.queues.resume(queue, type="job")
    assert app.admin.operations.preview(admin.OperationSpec("discard", admin.Filter(queue=queue))) == admin.OperationPreview(1, False)
    assert app.admin.queues.purge(queue) == 1


@pytest.mark.parametrize("again", [False, True])
def test_calls_that_a_retry_would_not_repeat_are_not_retried(again: bool) -> None:
    tries = 0

    def perform(action: _rpc.Action) -> object:
        nonlocal tries
        if isinstance(action, _rpc.Pause):
            return None
        assert isinstance(action, _rpc.Send)
        tries += 1
        if tries > 1:
            return action.method.response()
        raise pawl.UnavailableError("shard 2 did not answer in time")  # or it and others have done their part

    with pawl.App("127.0.0.1:1") as app:
        calls: list[_rpc.Op[Any]] = [
            _operate.put_queue(app._caller, "q", SETTINGS, None if again else 7),
        ]
        if not again:
            calls += [
                _operate.purge(app._caller, "q", ""),
                _operate.delete_queue(app._caller, "q"),
                _operate.retry_task(app._caller, "id", ()),
                _operate.run_now(app._caller, "id"),
                _operate.discard_task(app._caller, "id", "", ()),
            ]
        for call in calls:
            tries = 0
            with contextlib.suppress(pawl.UnavailableError):
                _rpc._drive(call, perform)
            assert tries == (2 if again else 1)


def test_incomplete_lists() -> None:
    missing = [call_pb2.Missing(shard=3, reason="has no leader"), call_pb2.Missing(node="n1", reason="is away")]
    again = [call_pb2.Missing(shard=3, reason="did not answer in time")]
    answers: dict[str, Any] = {"": _rpc.Listed([1], "a", missing), "a": _rpc.Listed([2], "", again)}
    got: list[int] = []

    class Caller:
        def run(self, page: Any) -> Any:
            return page

        async def arun(self, page: Any) -> Any:
            return page

    pages: Any = _rpc.Caller.pages
    apages: Any = _rpc.Caller.apages

    async def read() -> None:
        async for item in apages(Caller(), answers.get):
            got.append(item)

    with pytest.raises(pawl.IncompleteError, match="unavailable: the list is incomplete: shard 3 has no leader, and 1 more$") as ended:
        for item in pages(Caller(), answers.get):
            got.append(item)
    assert ended.value.missing == [admin.Missing("", 3, "has no leader"), admin.Missing("n1", 0, "is away")]
    with pytest.raises(pawl.UnavailableError, match="the list is incomplete: shard 3 has no leader, and 1 more$"):
        asyncio.run(read())
    assert got == [1, 2, 1, 2]
