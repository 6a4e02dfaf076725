"""Producers: what arrives at the broker, and what is refused."""

from __future__ import annotations

import asyncio
import json
import uuid
from datetime import datetime, timedelta, timezone
from typing import Any, Callable, cast

import pytest

import pawl


def test_a_task_is_stored_with_all_that_was_said_of_it(app: pawl.App, queue: str) -> None:
    @app.task(
        "mail.welcome",
        queue=queue,
        priority="high",
        max_attempts=7,
        retry=pawl.Retry(initial=timedelta(seconds=5)),
        tags=["mail"],
        headers={"a": "1"},
        cost=3,
    )
    def welcome(to: str, name: str = "you") -> str:
        return f"{name} at {to}"

    due = datetime.now(timezone.utc) + timedelta(hours=1)
    ref = welcome.options(run_at=due, key="tenant-1", tags=["new"], headers={"b": "2"}).enqueue("a@example.com")

    info = ref.info()
    assert (ref.state, ref.duplicate, ref.created_at) == ("scheduled", False, info.created_at)
    assert (info.type, info.queue, info.state, info.status) == ("mail.welcome", queue, "scheduled", "queued")
    assert (info.priority, info.max_attempts, info.cost, info.key) == ("high", 7, 3, "tenant-1")
    assert (set(info.tags), info.headers) == ({"mail", "new"}, {"a": "1", "b": "2"})
    assert info.run_at is not None and abs(info.run_at - due) < timedelta(milliseconds=1)
    assert info.payload == b'{"to":"a@example.com"}'
    assert welcome("b", name="B") == "B at b"


def test_arguments_travel_by_name_as_a_go_struct_has_them(app: pawl.App) -> None:
    @app.task
    def report(year: int, parts: list[str], **more: Any) -> None:
        pass

    assert json.loads(report.call(2026, ["ä", "<b>"], draft=True).payload) == {"year": 2026, "parts": ["ä", "<b>"], "draft": True}
    with pytest.raises(TypeError, match="parts"):
        report.enqueue(2026)  # type: ignore[call-arg]
    with pytest.raises(pawl.InvalidArgumentError, match="payload"):
        report.enqueue(2026, [object()])  # type: ignore[list-item]
    with pytest.raises(pawl.InvalidArgumentError, match="payload"):
        report.enqueue(2026, ["\ud800"])
    with pytest.raises(pawl.InvalidArgumentError, match="payload"):
        report.enqueue(2026, [float("nan")])  # type: ignore[list-item]


def test_a_function_without_names_for_its_arguments_is_refused(app: pawl.App) -> None:
    with pytest.raises(TypeError, match=r"\*args"):

        @app.task
        def one(*args: int) -> None:
            pass

    with pytest.raises(ValueError, match="two handlers for the type 'twice'"):
        app.task("twice")(lambda: None)
        app.task("twice")(lambda: None)


def test_an_idempotency_key_is_one_task(app: pawl.App, queue: str) -> None:
    call = app.call("t", {"n": 1}, queue=queue, idempotency_key="k")
    first, again = call.enqueue(), call.enqueue()
    assert (again.id, first.duplicate, again.duplicate) == (first.id, False, True)
    with pytest.raises(pawl.ConflictError):
        app.call("t", {"n": 2}, queue=queue, idempotency_key="k").enqueue()


def test_a_unique_key_is_one_task_at_a_time(app: pawl.App, queue: str) -> None:
    call = app.call("t", queue=queue, unique="report-7")
    assert call.enqueue().id == call.enqueue().id
    with pytest.raises(pawl.ConflictError):
        call.options(unique=pawl.Unique("report-7", on_conflict="reject")).enqueue()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"priority": "urgent"}, "priority"),
        ({"delay": "1d"}, "delay"),
        ({"delay": "1h 30m"}, "delay"),
        ({"delay": "1"}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": 1e300}, "delay"),
        ({"delay": True}, "delay"),
        ({"run_at": datetime(2026, 1, 1)}, "run_at"),
        ({"run_at": "tomorrow"}, "run_at"),
        ({"queue": 7}, "queue"),
        ({"queue": "\ud800"}, "queue"),
        ({"max_attempts": 1 << 40}, "max_attempts"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"cost": 0}, "cost"),
        ({"idempotency_key": ""}, "idempotency_key"),
        ({"request_id": ""}, "request_id"),
        ({"tags": "mail"}, "tags"),
        ({"tags": [1]}, "tags"),
        ({"headers": {"a": 1}}, "headers"),
        ({"retry": 3}, "retry"),
        ({"unique": ""}, "unique"),
        ({"unique": pawl.Unique("k", on_conflict="maybe")}, "unique.on_conflict"),
        ({"unique": pawl.Unique("k", states=["asleep"])}, "unique.states"),
        ({"request_id": "seven"}, "request_id"),  # by the broker
        ({"timeout": 0}, "timeout"),  # by the broker
    ],
)
def test_bad_options_name_their_field(app: pawl.App, queue: str, options: dict[str, Any], field: str) -> None:
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.call("t", **cast(pawl.Options, {"queue": queue, **options})).enqueue()
    assert refused.value.field == field
    assert refused.value.code == "invalid_argument"


def test_an_unknown_option_is_refused_before_the_call(app: pawl.App) -> None:
    with pytest.raises(TypeError, match="'retries' is not an option"):
        app.task(retries=3)  # type: ignore[call-overload]
    with pytest.raises(pawl.InvalidArgumentError, match="cannot be combined with delay"):
        app.call("t", delay=1, run_at=datetime.now(timezone.utc))


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"priority": 9}, "priority"),
        ({"unique": True}, "unique"),
        ({"retry": {"initial": 1}}, "retry"),
        ({"retry": pawl.Retry(initial="soon")}, "retry.initial"),
        ({"timeout": "1 hour"}, "timeout"),
        ({"queue": 7}, "queue"),
        ({"max_attempts": "3"}, "max_attempts"),
        ({"headers": ["a"]}, "headers"),
    ],
)
def test_bad_options_are_refused_where_the_task_is_defined(app: pawl.App, options: dict[str, Any], field: str) -> None:
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.task(**cast(pawl.Options, options))
    assert refused.value.field == field


def test_durations_may_be_texts(app: pawl.App, queue: str) -> None:
    spec = app.call("t", timeout="1h30m", expires_in="-2m", retry=pawl.Retry(initial="1.5s", max="250ms"))._spec()
    assert [p.ToTimedelta() for p in (spec.timeout, spec.expires_in, spec.retry.initial, spec.retry.max)] == [
        timedelta(hours=1, minutes=30),
        timedelta(minutes=-2),
        timedelta(seconds=1.5),
        timedelta(milliseconds=250),
    ]
    info = app.call("t", queue=queue, delay="24h").enqueue().info()
    assert info.state == "scheduled"
    with pytest.raises(TimeoutError, match="after 0.01 s"):
        app.ref(info.id).wait_ended("10ms")
    with pytest.raises(pawl.InvalidArgumentError, match="timeout"):
        app.within("-1s")
    app.task("t")(lambda: None)
    for settings in ({"lease": "999ms"}, {"lease": "13h"}, {"drain_timeout": "-1s"}):
        with pytest.raises(pawl.InvalidArgumentError, match=next(iter(settings))):
            pawl.Worker(app, **settings)  # type: ignore[arg-type]
    pawl.Worker(app, lease="1s", drain_timeout="1m")


def test_who_knows_celery_is_told_what_pawl_has(app: pawl.App) -> None:
    @app.task
    def add(a: int, b: int = 0) -> int:
        return a + b

    untyped: Any = add
    guesses: list[tuple[Callable[[], Any], str]] = [
        (lambda: untyped.delay(1), r"enqueue\(\.\.\.\)"),
        (lambda: untyped.apply_async((1,), countdown=10), r"options\(delay=\.\.\.\)"),
        (lambda: untyped.s(1), "then"),
        (lambda: cast(Any, app.ref("a")).get(timeout=1), r"result\(timeout"),
        (lambda: cast(Any, app).conf, "pawl.testing"),
        (lambda: cast(Any, app).send_task("t"), r"app\.call"),
        (lambda: cast(Any, pawl).chain, "then"),
        (lambda: cast(Any, pawl).Celery("t"), r"pawl\.App"),
    ]
    for attempt, hint in guesses:
        with pytest.raises(AttributeError, match=hint):
            attempt()
    for option, hint in (("bind", r"pawl\.current"), ("max_retries", "use max_attempts;"), ("rate_limit", "pawl queue set"), ("link_error", "on_death")):
        with pytest.raises(TypeError, match=f"'{option}' is not an option of a task: .*{hint}"):
            cast(Any, app).task(**{option: 1})
    for wrong, hint in (("countdown", "delay"), ("eta", "run_at"), ("priority", "priority")):
        with pytest.raises(TypeError, match=rf"options go before, add\.options\({hint}=\.\.\.\)\.enqueue"):
            untyped.enqueue(1, **{wrong: 10})
    with pytest.raises(TypeError, match="unexpected keyword argument 'c'$"):
        untyped.enqueue(1, c=10, countdown=1)
    for name in ("nothing", "__wrapped_by__"):
        for thing in (untyped, app, app.ref("a"), pawl):
            with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
                getattr(thing, name)
    with pytest.raises(TypeError, match=r"\(1, 2\) is not a mapping"):
        untyped.enqueue_many([(1, 2)])
    with pytest.raises(pawl.InvalidArgumentError, match="datetime is not JSON serializable") as refused:
        untyped.enqueue(1, datetime.now())
    assert refused.value.field == "payload.b"


def test_delay_and_run_at_replace_each_other(app: pawl.App, queue: str) -> None:
    soon = app.call("t", queue=queue, run_at=datetime.now(timezone.utc) + timedelta(days=1)).options(delay=60)
    info = soon.enqueue().info()
    assert info.run_at is not None and info.created_at is not None
    assert info.run_at - info.created_at == timedelta(seconds=60)


def test_many_tasks_go_in_few_requests(app: pawl.App, queue: str) -> None:
    @app.task("many", queue=queue)
    def many(n: int) -> None:
        pass

    refs = many.enqueue_many({"n": n} for n in range(2500))
    assert len({ref.id for ref in refs}) == 2500
    assert refs[1234].info().decode_payload() == {"n": 1234}


def test_a_bad_task_does_not_sink_the_others(app: pawl.App, queue: str) -> None:
    calls = [app.call("t", 1, queue=queue), app.call("t", 2, queue=queue, timeout=-1), app.call("t", 3, queue=queue)]
    with pytest.raises(pawl.BatchError, match="1 of 3 tasks were not enqueued; item 1: invalid_argument") as refused:
        app.enqueue_many(calls)
    first, second, third = refused.value.results
    assert isinstance(second, pawl.InvalidArgumentError) and second.field == "timeout"
    assert (first.info().decode_payload(), third.info().decode_payload()) == (1, 3)


def test_other_content_types_are_sent_as_they_are(app: pawl.App, queue: str) -> None:
    info = app.call("t", b"\x00\xff", content_type="application/octet-stream", queue=queue).enqueue().info()
    assert (info.payload, info.content_type) == (b"\x00\xff", "application/octet-stream")
    with pytest.raises(pawl.InvalidArgumentError, match="must be bytes"):
        app.call("t", {"a": 1}, content_type="text/plain")


def test_too_large_a_payload_is_refused(app: pawl.App, queue: str) -> None:
    with pytest.raises(pawl.PayloadTooLargeError):  # by the broker
        app.call("t", "x" * (2 << 20), queue=queue).enqueue()
    with pytest.raises(pawl.PayloadTooLargeError, match="exceed the message limit"):  # before the call
        app.call("t", "x" * (16 << 20), queue=queue).enqueue()


def test_tasks_that_are_not_there(app: pawl.App) -> None:
    ref = app.ref(str(uuid.uuid4()))
    calls: list[Callable[[], pawl.TaskInfo]] = [ref.info, ref.cancel, ref.wait_ended]
    for call in calls:
        with pytest.raises((pawl.NotFoundError, pawl.InvalidArgumentError)):
            call()


def test_cancel_and_wait(app: pawl.App, queue: str) -> None:
    ref = app.call("t", queue=queue).enqueue()
    with pytest.raises(TimeoutError, match="still ready"):
        ref.wait_ended(timeout=0.05)
    assert ref.cancel("not needed").state == "cancelled"
    assert ref.cancel().state == "cancelled"
    assert ref.wait_ended().state == "cancelled"
    with pytest.raises(pawl.TaskEndedError, match="is cancelled") as ended:
        ref.result()
    assert ended.value.task.id == ref.id


def test_event_loops_have_twins_of_all_calls(app: pawl.App, queue: str) -> None:
    @app.task("twin", queue=queue)
    async def twin(n: int) -> int:
        return n + 1

    async def produce() -> None:
        assert await twin(1) == 2
        refs = await asyncio.gather(*(twin.aenqueue(n) for n in range(50)))
        assert len({ref.id for ref in refs}) == 50
        assert len(await twin.aenqueue_many({"n": n} for n in range(3))) == 3
        assert (await refs[7].ainfo()).decode_payload() == {"n": 7}
        with pytest.raises(TimeoutError):
            await refs[0].await_ended(timeout=0.05)
        waiting = asyncio.create_task(refs[0].aresult())
        assert (await refs[0].acancel()).state == "cancelled"
        with pytest.raises(pawl.TaskEndedError):
            await waiting
        with pytest.raises(pawl.InvalidArgumentError):
            await twin.options(timeout=-1).aenqueue(1)
        endless = asyncio.create_task(refs[1].await_ended())
        await asyncio.sleep(0.05)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless

    asyncio.run(produce())
    asyncio.run(produce())  # on another loop
