"""Schedules."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import pawl
from pawl.testing import working

from waiting import eventually

STATES = ("scheduled", "ready", "claimed", "retrying", "succeeded")


def test_a_schedule_enqueues_again_and_again(app: pawl.App, queue: str) -> None:
    @app.task("tick", queue=queue)
    def tick(kind: str) -> str:
        return f"{kind} of {pawl.current().headers['pawl-schedule']}"

    with working(app, queue):
        app.schedules.put(queue, tick.call("day"), every=1)
        eventually(lambda: len([t for t in app.schedules.history(queue) if t.outcome == "fired"]) >= 2)
        fired = next(t for t in app.schedules.history(queue) if t.outcome == "fired")
        assert app.ref(fired.task_id).result(20) == f"day of {queue}"
        assert fired.planned_at is not None and fired.count == 1 and fired.late >= 0
        app.schedules.delete(queue)
    with pytest.raises(pawl.NotFoundError):
        app.schedules.get(queue)


def test_what_a_schedule_says_comes_back(app: pawl.App, queue: str) -> None:
    call = app.call(
        "report",
        {"kind": "day"},
        queue=queue,
        priority="high",
        max_attempts=3,
        retry=pawl.Retry(initial=1, factor=3, max=60, jitter=0.5),
        timeout=timedelta(hours=1),
        expires_in=7200,
        retention=60,
        key="k",
        cost=2,
        tags=["a"],
        headers={"b": "c"},
        unique=pawl.Unique("u", states=STATES, on_conflict="reject"),
    ).then(app.call("mail", queue=queue, delay=5))

    def put(**more: Any) -> pawl.ScheduleChange:
        return app.schedules.put(
            queue, call, cron="30 2 * * *", time_zone="Europe/Berlin", jitter=300, missed="skip", overlap="allow", owner="tests", **more
        )

    assert put(dry_run=True).change == "created"
    with pytest.raises(pawl.NotFoundError):
        app.schedules.get(queue)
    made = put()
    assert (made.change, made.before) == ("created", None)
    again = put()
    assert (again.change, again.schedule.next_run_at) == ("unchanged", made.schedule.next_run_at)
    with pytest.raises(pawl.ConflictError):
        app.schedules.put(queue, call, every=60, create_only=True)

    schedule = app.schedules.get(queue)
    assert (schedule.name, schedule.cron, schedule.time_zone, schedule.jitter) == (queue, "30 2 * * *", "Europe/Berlin", 300)
    assert (schedule.missed, schedule.overlap, schedule.owner, schedule.every) == ("skip", "allow", "tests", 0)
    assert (schedule.task.type, schedule.task.decode_payload()) == ("report", {"kind": "day"})
    assert schedule.task.options == {
        "queue": queue,
        "priority": "high",
        "max_attempts": 3,
        "retry": pawl.Retry(1, 3, 60, 0.5),
        "timeout": 3600,
        "expires_in": 7200,
        "retention": 60,
        "key": "k",
        "cost": 2,
        "tags": ("a",),
        "headers": {"b": "c"},
        "unique": pawl.Unique("u", STATES, "reject"),
    }
    (follower,) = schedule.task.then
    assert (follower.type, follower.options) == ("mail", {"queue": queue, "priority": "normal", "delay": 5})
    assert len(schedule.coming) == 4 and schedule.pause is None and schedule.last is None

    changed = app.schedules.put(queue, call, every=timedelta(minutes=1), if_etag=schedule.etag)
    assert changed.change == "updated" and changed.before is not None and changed.before.cron == "30 2 * * *"
    with pytest.raises(pawl.ConflictError):
        app.schedules.put(queue, call, every=90, if_etag=schedule.etag)


def test_pause_trigger_and_resume(app: pawl.App, queue: str) -> None:
    app.schedules.put(queue, app.call("t", queue=queue), cron="@yearly")
    paused = app.schedules.pause(queue, "moving")
    assert paused.pause is not None and paused.pause.reason == "moving" and paused.next_run_at is None
    ref = app.schedules.trigger(queue)
    assert ref.info().type == "t"
    (tick,) = app.schedules.history(queue)
    assert (tick.outcome, tick.task_id, tick.planned_at) == ("triggered", ref.id, None)
    assert app.schedules.resume(queue).pause is None
    assert queue in [schedule.name for schedule in app.schedules.list()]


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({}, "cron"),  # by the broker
        ({"cron": "61 * * * *"}, "cron"),  # by the broker
        ({"cron": "@daily", "time_zone": "Nowhere"}, "time_zone"),  # by the broker
        ({"cron": "@daily", "missed": "twice"}, "missed"),
        ({"cron": "@daily", "overlap": "some"}, "overlap"),
        ({"every": "hourly"}, "every"),
        ({"every": 1.5}, "every"),  # by the broker
        ({"every": 60, "jitter": float("inf")}, "jitter"),
        ({"every": 60, "owner": 3}, "owner"),
    ],
)
def test_bad_schedules_name_their_field(app: pawl.App, queue: str, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.schedules.put(queue, app.call("t"), **settings)
    assert refused.value.field == field


def test_the_task_of_a_schedule_has_no_time_of_its_own(app: pawl.App, queue: str) -> None:
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.schedules.put(queue, app.call("t", delay=5), every=60)
    assert refused.value.field == "task.delay"
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.schedules.put(queue, app.call("t", priority="odd"), every=60)
    assert refused.value.field == "task.priority"


def test_schedules_have_twins_for_event_loops(app: pawl.App, queue: str) -> None:
    async def run() -> None:
        schedules = app.schedules
        assert (await schedules.aput(queue, app.call("t", queue=queue), every=3600)).change == "created"
        assert (await schedules.aget(queue)).every == 3600
        assert (await schedules.apause(queue)).pause is not None
        ref = await schedules.atrigger(queue)
        assert [tick.task_id async for tick in schedules.ahistory(queue)] == [ref.id]
        assert (await schedules.aresume(queue)).pause is None
        assert queue in [schedule.name async for schedule in schedules.alist()]
        await schedules.adelete(queue)

    asyncio.run(run())
