"""Traces: a task belongs to the trace of its producer, and so does what its handler enqueues. The programs run in their own processes, with the
real OpenTelemetry if it is installed, or else with the part in tests/otel."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pawl import testing

TESTS = Path(__file__).parent
IS_REAL = importlib.util.find_spec("opentelemetry") is not None and importlib.util.find_spec("opentelemetry.sdk") is not None


def spans(broker: testing.Broker, queue: str, story: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Runs a story of traced.py, and returns its output and its spans."""
    path = [str(TESTS.parent / "src"), *([] if IS_REAL else [str(TESTS / "otel")])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path), PAWL_SERVER=broker.address)
    done = subprocess.run([sys.executable, str(TESTS / "traced.py"), queue, story], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    said, *rest = (json.loads(line) for line in done.stdout.splitlines())
    return said, rest


def measured(of: list[dict[str, Any]], metric: str, operation: str) -> list[tuple[str | None, float]]:
    """Returns the measurements of an operation: for each error or none, how often or how many."""
    points = [each for each in of if each.get("metric") == metric and each["attributes"]["messaging.operation.name"] == operation]
    return sorted(((each["attributes"].get("error.type"), each["value"]) for each in points), key=str)


def named(name: str, of: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [span for span in of if span.get("name") == name]


def test_one_trace_from_the_request_to_what_handlers_enqueue(broker: testing.Broker, queue: str) -> None:
    said, got = spans(broker, queue, "chain")
    (request,) = named("request", got)
    sends, runs, acks = named(f"send {queue}", got), named(f"process {queue}", got), named(f"ack {queue}", got)
    by_parent = {span["parent"]: span for span in sends + runs}
    chain = [request]
    while chain[-1]["id"] in by_parent:
        chain.append(by_parent[chain[-1]["id"]])
    assert [span["name"].split()[0] for span in chain] == ["request", "send", "process", "send", "process", "send", "process"]
    assert {span["trace"] for span in got if "trace" in span} == {request["trace"]}
    assert {ack["parent"] for ack in acks} == {run["id"] for run in runs}
    send, process = chain[1], chain[2]
    assert said["traceparent"] == f"00-{send['trace']}-{send['id']}-01"
    assert (send["kind"], process["kind"], acks[0]["kind"]) == ("PRODUCER", "CONSUMER", "CLIENT")
    both = {
        "messaging.system": "pawl",
        "messaging.destination.name": queue,
        "messaging.message.id": said["task"],
        "messaging.message.body.size": 2,
        "pawl.task.type": "first",
        "server.address": "127.0.0.1",
        "server.port": int(broker.address.rpartition(":")[2]),
    }
    assert send["attributes"] == {**both, "messaging.operation.name": "send", "messaging.operation.type": "send"}
    assert process["attributes"] == {
        **both,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.client.id": "w-1",
        "pawl.task.attempt": 1,
        "pawl.task.outcome": "succeeded",
    }


def test_a_task_brings_the_trace_of_a_program_in_another_language(broker: testing.Broker, queue: str) -> None:
    _, got = spans(broker, queue, "foreign")
    known, unknown = named(f"process {queue}", got)
    assert (known["trace"], known["parent"]) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert unknown["parent"] == "" and unknown["trace"] != known["trace"]
    assert [span["links"] for span in named(f"send {queue}", got)] == [["b7ad6b7169203331"], []]


def test_tasks_of_a_batch_have_a_span_each(broker: testing.Broker, queue: str) -> None:
    said, got = spans(broker, queue, "batch")
    first, refused, member = named(f"create {queue}", got)
    send, group = named(f"send {queue}", got)
    assert send["links"] == [first["id"], refused["id"]] and group["links"] == [member["id"]]
    assert send["attributes"]["messaging.batch.message_count"] == 2
    assert first["attributes"]["messaging.message.id"] == said["tasks"][0]
    assert measured(got, "messaging.client.sent.messages", "send") == [(None, 3)]
    assert measured(got, "messaging.client.operation.duration", "send") == [(None, 2)]
    assert (refused["status"], refused["attributes"]["error.type"]) == ("ERROR", "invalid_argument")


def test_a_run_that_has_failed_has_its_error_and_no_other(broker: testing.Broker, queue: str) -> None:
    _, got = spans(broker, queue, "ends")
    runs = [(s["attributes"]["pawl.task.outcome"], s["attributes"].get("error.type"), s["status"], s["events"]) for s in named(f"process {queue}", got)]
    assert (runs[0][0], runs[0][2]) == ("failed", "ERROR")
    assert runs[1:] == [
        ("failed", "RuntimeError", "ERROR", 1),
        ("snoozed", None, "UNSET", 0),
        ("discarded", None, "UNSET", 0),
        ("dead", "pawl.outcome.DeadLetter", "ERROR", 1),
    ]
    assert measured(got, "messaging.client.consumed.messages", "process") == [(None, 5)]
    failed = sorted(["RuntimeError", "pawl.outcome.DeadLetter", runs[0][1]])
    assert measured(got, "messaging.process.duration", "process") == [*((each, 1) for each in failed), (None, 2)]
    assert measured(got, "messaging.client.operation.duration", "fail") == [(None, 4)]
    assert measured(got, "messaging.client.operation.duration", "release") == [(None, 1)]
    assert all(0 < each["sum"] < 20 for each in got if each.get("metric", "").endswith("duration"))
