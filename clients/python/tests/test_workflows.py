"""Chains and groups."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any

import pytest

import pawl
from pawl.testing import working

from waiting import eventually


def test_a_chain_takes_results_along(app: pawl.App, queue: str) -> None:
    @app.task("fetch", queue=queue)
    def fetch(url: str) -> dict[str, int]:
        return {"size": len(url)}

    @app.task("resize", queue=queue)
    def resize(width: int) -> int:
        parent = pawl.current().parent
        assert parent is not None and parent.group_id == ""
        return int(pawl.current().parent_result()["size"]) + width

    @app.task("mail", queue=queue)
    def mail() -> Any:
        return pawl.current().parent_result()

    @app.task("alone", queue=queue)
    def alone() -> None:
        pawl.current().parent_result()

    with working(app, queue):
        ref = fetch.call("abc").then(resize.call(100).then(mail.call()), mail.options(delay=3600).call()).enqueue()
        assert ref.result(20) == {"size": 3}
        resized, later = ref.info().then
        assert (resized.state, resized.type, later.state, later.type) == ("created", "resize", "created", "mail")
        assert app.ref(resized.task_id).result(20) == 103
        (mailed,) = app.ref(resized.task_id).info().then
        assert app.ref(mailed.task_id).result(20) == 103
        info = app.ref(later.task_id).info()
        assert info.state == "scheduled" and info.parent is not None and info.parent.task_id == ref.id
        failed = alone.options(max_attempts=1).enqueue().wait_ended(20).last_failure
        assert failed is not None and (failed.type, "has no parent" in failed.message) == ("LookupError", True)


def test_a_chain_that_cannot_be_names_where(app: pawl.App, queue: str) -> None:
    call = app.call("t", queue=queue)
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        call.then(call, call.then(app.call("t", priority="odd"))).enqueue()
    assert refused.value.field == "then[1].then[0].priority"
    with pytest.raises(pawl.InvalidArgumentError) as refused:  # by the broker
        call.then(call.options(group_id=str(uuid.uuid4()))).enqueue()
    assert refused.value.field == "then[0].group_id"
    deep = call
    for _ in range(20):
        deep = call.then(deep)
    assert deep.enqueue().info().state == "ready"
    with pytest.raises(pawl.InvalidArgumentError, match="21 tasks"):
        call.then(deep)


def test_a_group_counts_and_enqueues_what_completes_it(app: pawl.App, queue: str) -> None:
    @app.task("part", queue=queue, max_attempts=1)
    def part(n: int) -> int:
        if n == 3:
            raise ValueError("three")
        return n * n

    @app.task("report", queue=queue)
    def report() -> Any:
        counts = pawl.current().parent_result()
        return {m.task_id: m.decode_result() for m in app.group(counts["group_id"]).members() if m.state == "succeeded"}

    group = app.enqueue_group([part.call(n) for n in range(5)], name="squares", on_complete=report.call(), on_success=report.call(), on_death=report.call())
    refs = [ref for ref in group.tasks if isinstance(ref, pawl.Ref)]
    assert len(refs) == 5 and not group.duplicate
    info = group.info()
    assert (info.name, info.state, info.open, info.counts.members, info.counts.pending) == ("squares", "running", False, 5, 5)
    assert info.on_complete is not None and info.on_complete.state == "waiting"
    with working(app, queue):
        info = group.wait_ended(20)
        assert info.state == "complete"
        assert (info.counts.succeeded, info.counts.dead, info.counts.pending) == (4, 1, 0)
        assert info.on_complete is not None and info.on_death is not None and info.on_success is not None
        assert (info.on_complete.state, info.on_death.state, info.on_success.state) == ("created", "created", "dropped")
        assert app.ref(info.on_complete.task_id).result(20) == {refs[n].id: n * n for n in (0, 1, 2, 4)}
    with pytest.raises(pawl.WrongStateError):
        group.cancel()
    assert refs[0].info().group_id == group.id


def test_a_group_takes_members_until_it_is_complete(app: pawl.App, queue: str) -> None:
    go = threading.Event()

    @app.task("part", queue=queue)
    def part(n: int) -> None:
        assert go.wait(30)
        if n == 0:
            part.options(group_id=pawl.current().group_id).enqueue(7)

    request = str(uuid.uuid4())
    group = app.enqueue_group([part.call(0)], open=True, request_id=request)
    again = app.enqueue_group([part.call(0)], open=True, request_id=request)
    assert (again.id, again.duplicate) == (group.id, True)
    (added,) = group.add([part.call(1)])
    assert isinstance(added, pawl.Ref) and added.info().group_id == group.id
    with pytest.raises(pawl.BatchError, match="1 of 2") as refused:
        group.add([part.options(unique=pawl.Unique(queue, on_conflict="reject")).call(n) for n in (2, 3)])
    assert isinstance(refused.value.results[0], pawl.Ref) and isinstance(refused.value.results[1], pawl.ConflictError)
    with pytest.raises(pawl.InvalidArgumentError) as bad:  # by the broker, for the whole call
        group.add([part.call(2), part.options(timeout=-1).call(3)])
    assert bad.value.field == "tasks[1].timeout"
    with working(app, queue):
        go.set()
        eventually(lambda: group.info().counts.succeeded == 4)
        with pytest.raises(TimeoutError, match="has not ended after 0.1 s: 0 tasks are pending"):
            group.wait_ended("100ms")
        with pytest.raises(TimeoutError, match="has not ended"):
            group.wait_ended(0)
        assert group.close().state == "complete"
    with pytest.raises(pawl.BatchError) as late:
        group.add([part.call(1)])
    assert isinstance(late.value.results[0], pawl.WrongStateError)


def test_a_group_is_cancelled_with_its_members(app: pawl.App, queue: str) -> None:
    group = app.enqueue_group([app.call("t", n, queue=queue) for n in range(150)], retention=3600)
    assert group.cancel("wrong file").state == "cancelled"
    assert asyncio.run(group.await_ended("20s")).counts.cancelled == 150
    assert [member.state for member in group.members()] == ["cancelled"] * 150


def test_a_bad_group_names_where(app: pawl.App, queue: str) -> None:
    good, bad = app.call("t", queue=queue), app.call("t", queue=queue, delay="soon")
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.enqueue_group([good, bad])
    assert refused.value.field == "tasks[1].delay"
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.enqueue_group([good], on_death=bad)
    assert refused.value.field == "on_death.delay"
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        app.enqueue_group([good], name="\ud800")
    assert refused.value.field == "name"
    with pytest.raises(pawl.NotFoundError):
        app.group(str(uuid.uuid4())).info()


def test_groups_have_twins_for_event_loops(app: pawl.App, queue: str) -> None:
    async def run() -> None:
        group = await app.aenqueue_group([app.call("t", queue=queue).then(app.call("u", queue=queue))], open=True)
        await group.aadd([app.call("t", queue=queue)])
        assert [member.type async for member in group.amembers()] == ["t", "t"]
        assert (await group.ainfo()).open
        assert not (await group.aclose()).open
        assert (await group.acancel()).state == "cancelled"

    asyncio.run(run())
