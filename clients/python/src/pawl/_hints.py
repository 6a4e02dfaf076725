"""What a program that knows Celery looks for, and what Pawl has instead. It is only for error messages."""

from __future__ import annotations

from collections.abc import Mapping

RENAMED: Mapping[str, str] = {
    "countdown": "delay",
    "eta": "run_at",
    "expires": "expires_in",
    "max_retries": "max_attempts",
    "soft_time_limit": "timeout",
    "task_id": "idempotency_key",
    "time_limit": "timeout",
}
"""Options of Celery that have another name here."""

OPTIONS: Mapping[str, str] = {
    **{name: f"use {ours}" for name, ours in RENAMED.items()},
    "acks_late": "a task is always acknowledged after it has run",
    "autoretry_for": "every exception is retried, up to max_attempts; raise pawl.DeadLetter for one that is not",
    "bind": "pawl.current() is the claim of the task that runs",
    "cron": "use app.schedules.put",
    "default_retry_delay": "use retry=pawl.Retry(initial=...)",
    "ignore_result": "what the function returns is the result; None is none",
    "link": "use call(...).then(...)",
    "link_error": "use app.enqueue_group([call], on_death=...)",
    "name": "the type is the first argument: @app.task('mail.welcome')",
    "on_failure": "use app.enqueue_group([call], on_death=...)",
    "rate_limit": "it is a setting of the queue: app.admin.queues.put, or pawl queue set mail --rate 10/1m",
    "retry_backoff": "use retry=pawl.Retry(...)",
    "retry_jitter": "use retry=pawl.Retry(jitter=...)",
}
"""For the options of a task."""

TASK: Mapping[str, str] = {
    "apply": "call the function itself",
    "apply_async": "use enqueue(...), and options(delay=...).enqueue(...) for options",
    "delay": "use enqueue(...); options(delay=...).enqueue(...) delays it",
    "map": "use enqueue_many([...])",
    "retry": "raise any exception, or pawl.RetryIn(seconds), in the function",
    "s": "use call(...), and call(...).then(...) for a chain",
    "si": "use call(...), and call(...).then(...) for a chain",
    "signature": "use call(...), and call(...).then(...) for a chain",
    "starmap": "use enqueue_many([...])",
}
"""For a task."""

REF: Mapping[str, str] = {
    "failed": "use info().state",
    "get": "use result(timeout=...)",
    "ready": "use info().ended",
    "revoke": "use cancel()",
    "status": "use info().state",
    "successful": "use info().state",
    "wait": "use wait_ended(timeout=...)",
}
"""For a reference to a task."""

APP: Mapping[str, str] = {
    "autodiscover_tasks": "import the modules with the tasks in the one that pawl-worker loads",
    "conf": "App(...) and PAWL_... in the environment have the connection, app.admin.queues the settings; pawl.testing is for tests",
    "control": "use app.admin.workers",
    "on_after_configure": "use app.schedules.put",
    "send_task": "use app.call(type, payload).enqueue()",
    "start": "use pawl.Worker(app).run()",
    "worker_main": "use pawl.Worker(app).run()",
}
"""For an app."""

MODULE: Mapping[str, str] = {
    "Celery": "use pawl.App()",
    "chain": "use call(...).then(call(...))",
    "chord": "use app.enqueue_group([...], on_success=call(...))",
    "shared_task": "use app.task",
    "signature": "use app.call(type, payload)",
}
"""For this package."""


def missing(owner: str, hints: Mapping[str, str], name: str) -> AttributeError:
    """Returns the error for an attribute that is not there."""
    return AttributeError(f"{owner} has no attribute {name!r}" + (f": {hints[name]}" if name in hints else ""))
