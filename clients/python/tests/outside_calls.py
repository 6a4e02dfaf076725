"""The calls of stories, made with the Python SDK. Parameters and results are as in REST."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import outside
import pawl
from pawl import admin

_DURATIONS = ("delay", "idempotency_ttl", "timeout", "expires_in", "retention")


def refused(err: pawl.PawlError) -> dict[str, Any]:
    """Returns an error as in REST."""
    return {"code": err.code, "reason": err.reason, "field": err.field, "state": err.state}


def call(app: pawl.App, given: Mapping[str, Any]) -> pawl.Call[Any]:
    """A task that a story describes."""
    options: dict[str, Any] = {name: outside.seconds(value) if name in _DURATIONS else value for name, value in given.items()}
    type, payload, content_type, then = options.pop("type"), options.pop("payload", None), options.pop("content_type", ""), options.pop("then", [])
    if content_type:
        payload = base64.b64decode(payload)
    if "run_at" in options:
        options["run_at"] = outside.run_at(options["run_at"])
    if "retry" in options:
        options["retry"] = retry(options["retry"])
    if "unique" in options:
        options["unique"] = pawl.Unique(**options["unique"])
    out: pawl.Call[Any] = app.call(type, payload, content_type=content_type, **options)
    return out.then(*(call(app, each) for each in then)) if then else out


def retry(given: Mapping[str, Any]) -> pawl.Retry:
    """A retry policy that a story describes."""
    return pawl.Retry(**{name: outside.seconds(value) if isinstance(value, str) else value for name, value in given.items()})


def calls(app: pawl.App, given: Sequence[Mapping[str, Any]]) -> list[pawl.Call[Any]]:
    """Returns many tasks that a story describes."""
    return [call(app, each) for each in given]


def ref(made: pawl.Ref[Any]) -> dict[str, Any]:
    """A task that was accepted."""
    return {"task_id": made.id, "state": made.state, "duplicate": made.duplicate}


def many(results: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns the results for many tasks."""
    return [{"refused": refused(each)} if isinstance(each, pawl.PawlError) else ref(each) if each else {} for each in results]


def data(value: bytes, content_type: str, decode: Callable[[], Any]) -> Any:
    """Returns a payload or a result as in REST."""
    if content_type not in ("", "application/json"):
        return base64.b64encode(value).decode()
    return decode()


def task(info: pawl.TaskInfo) -> dict[str, Any]:
    """Returns what the broker knows about a task."""
    out = dict(vars(info), task_id=info.id)
    out["payload"] = data(info.payload, info.content_type, info.decode_payload)
    out["result"] = data(info.result, info.result_content_type, info.decode_result)
    out["attempt_log"] = [dict(vars(a), error=vars(a.error) if a.error else None) for a in info.attempt_log]
    out["progress"] = vars(info.progress)
    out["then"] = [vars(f) for f in info.then]
    return out


def claim(of: pawl.Claim) -> dict[str, Any]:
    """Returns the claim of a handler."""
    out = dict(vars(of), task_id=of.id, parent=vars(of.parent) if of.parent else None)
    out["payload"] = data(of.payload, of.content_type, of.decode_payload)
    return out


def group(info: pawl.GroupInfo) -> dict[str, Any]:
    """Returns what the broker knows about a group."""
    followers = {name: vars(f) if (f := getattr(info, name)) else None for name in ("on_complete", "on_success", "on_death")}
    return dict(vars(info), group_id=info.id, counts=vars(info.counts), **followers)


def schedule(of: pawl.Schedule) -> dict[str, Any]:
    """Returns what the broker knows about a schedule."""
    return dict(
        vars(of),
        paused=of.pause is not None,
        paused_reason=of.pause.reason if of.pause else "",
        task={"type": of.task.type, "queue": of.task.options.get("queue", ""), "payload": of.task.decode_payload()},
    )


def _many(made: Callable[[], Sequence[Any]]) -> Any:
    try:
        return many(made())
    except pawl.BatchError as err:
        return many(err.results)


def _create_group(app: pawl.App, given: dict[str, Any]) -> Any:
    settings = {name: call(app, value) if name.startswith("on_") else value for name, value in given.items()}
    made = app.enqueue_group(calls(app, settings.pop("tasks")), **settings)
    return {"group_id": made.id, "duplicate": made.duplicate, "tasks": many(made.tasks)}


def _put_schedule(app: pawl.App, given: dict[str, Any]) -> Any:
    settings = {name: outside.seconds(value) if name == "every" else value for name, value in given.items()}
    change = app.schedules.put(settings.pop("name"), call(app, settings.pop("task")), **settings)
    return {"change": change.change, "schedule": schedule(change.schedule), "before": schedule(change.before) if change.before else None}


def queue(of: admin.Queue) -> dict[str, Any]:
    """Returns what the broker knows about a queue."""
    return dict(vars(of), depth=vars(of.depth) if of.depth else None, settings=vars(of.settings))


def _acting(app: pawl.App, given: dict[str, Any]) -> admin.Admin:
    return app.admin.with_actor(given["actor"]) if "actor" in given else app.admin


def _set_queue(app: pawl.App, given: dict[str, Any]) -> Any:
    settings = {name: retry(value) if name == "retry" else value for name, value in given["settings"].items()}
    return queue(app.admin.queues.put(given["queue"], admin.QueueSettings(**settings)))


def _explain(app: pawl.App, given: dict[str, Any]) -> Any:
    got = app.admin.tasks.explain(given["task"])
    return dict(vars(got), reasons=[vars(reason) for reason in got.reasons])


def operation(of: admin.Operation) -> dict[str, Any]:
    """Returns what the broker knows about an operation."""
    return dict(vars(of), action=of.spec.action)


def _start_operation(app: pawl.App, given: dict[str, Any]) -> Any:
    spec = admin.OperationSpec(given["action"], admin.Filter(**given["filter"]))
    return operation(app.admin.operations.start(spec, given["reason"]))


def _find_worker(app: pawl.App, given: dict[str, Any]) -> Any:
    found = next(each for each in app.admin.workers.list() if each.worker == given["worker"])
    return dict(vars(found), tasks=[vars(task) for task in found.tasks])


def _stats(app: pawl.App, given: dict[str, Any]) -> Any:
    return {"queue": given["queue"], "totals": vars(app.admin.queues.stats(given["queue"]).totals)}


CALLS: dict[str, Callable[[pawl.App, dict[str, Any]], Any]] = {
    "enqueue": lambda app, g: ref(call(app, g).enqueue()),
    "enqueue_many": lambda app, g: _many(lambda: app.enqueue_many(calls(app, g["tasks"]))),
    "get": lambda app, g: task(app.ref(g["task"]).info()),
    "wait": lambda app, g: task(app.ref(g["task"]).wait_ended()),
    "result": lambda app, g: app.ref(g["task"]).result(),
    "cancel": lambda app, g: task(app.ref(g["task"]).cancel(g.get("reason", ""))),
    "create_group": _create_group,
    "get_group": lambda app, g: group(app.group(g["group"]).info()),
    "wait_group": lambda app, g: group(app.group(g["group"]).wait_ended()),
    "add_to_group": lambda app, g: _many(lambda: app.group(g["group"]).add(calls(app, g["tasks"]))),
    "close_group": lambda app, g: group(app.group(g["group"]).close()),
    "cancel_group": lambda app, g: group(app.group(g["group"]).cancel(g.get("reason", ""))),
    "group_members": lambda app, g: [vars(m) for m in app.group(g["group"]).members()],
    "put_schedule": _put_schedule,
    "get_schedule": lambda app, g: schedule(app.schedules.get(g["name"])),
    "delete_schedule": lambda app, g: app.schedules.delete(g["name"]),
    "pause_schedule": lambda app, g: schedule(app.schedules.pause(g["name"], g.get("reason", ""))),
    "resume_schedule": lambda app, g: schedule(app.schedules.resume(g["name"])),
    "trigger_schedule": lambda app, g: ref(app.schedules.trigger(g["name"])),
    "set_queue": _set_queue,
    "get_queue": lambda app, g: queue(app.admin.queues.get(g["queue"])),
    "pause_queue": lambda app, g: queue(_acting(app, g).queues.pause(g["queue"], g.get("reason", ""))),
    "resume_queue": lambda app, g: queue(app.admin.queues.resume(g["queue"])),
    "purge_queue": lambda app, g: {"discarded": app.admin.queues.purge(g["queue"])},
    "queue_stats": _stats,
    "explain": _explain,
    "run_now": lambda app, g: task(app.admin.tasks.run_now(g["task"])),
    "retry_task": lambda app, g: task(app.admin.tasks.retry(g["task"])),
    "dead_groups": lambda app, g: {"groups": [vars(each) for each in app.admin.dead_letters.groups(g["queue"])]},
    "start_operation": _start_operation,
    "get_operation": lambda app, g: operation(app.admin.operations.get(g["operation"])),
    "find_worker": _find_worker,
}
