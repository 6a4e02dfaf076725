"""Plays test/conformance/outside/traces.json, whose format is described there in doc.go, against the claims of a worker, in fake time."""

from __future__ import annotations

import contextvars
import json
import types
from pathlib import Path
from typing import Any, cast

import pytest

from pawl import _convert, _work, outcome
from pawl._held import Held, Phase
from pawl.v1 import task_pb2, worker_pb2

TRACES: list[dict[str, Any]] = json.loads((Path(__file__).parents[3] / "test/conformance/outside/traces.json").read_text())
KINDS = ("ack", "fail", "release", "extend")
CAUSES = {outcome.Cancelled: "cancelled", outcome.LeaseLost: "lease_lost", outcome.TimedOut: "timed_out", outcome.Draining: "draining"}


class Unreadable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it can't be read")


class Player:
    """A run without threads and stream, whose handlers end when a trace says so."""

    def __init__(self, slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.began = self.now
        self.session: _work._Session | None = None
        self.sent = self.nothing()
        self.started: dict[str, Held] = {}
        monkeypatch.setattr(_work, "time", types.SimpleNamespace(monotonic=lambda: self.now, time_ns=lambda: 1))
        caller = types.SimpleNamespace(encryption=None, connection=types.SimpleNamespace(server=""))
        self.run = _work.Run(cast(Any, caller), worker_pb2.WorkHello(), {}, concurrency=slots, drain_timeout=10)
        monkeypatch.setattr(self.run, "_start", lambda held: self.started.update({held.name.token: held}))
        monkeypatch.setattr(self.run, "_probe", lambda *_: None)

    @staticmethod
    def nothing() -> dict[str, Any]:
        return {"hello": False, "quiet": False, "grant": 0, **{kind: [] for kind in KINDS}}

    def play(self, steps: list[dict[str, Any]]) -> None:
        for at, step in enumerate(steps):
            self.sent = self.nothing()
            until = self.began + step.get("at", 0)
            while self.now < until:
                self.now = min(self.now + 0.01, until)
                self.sweep()
            self.happens(step)
            self.sweep()
            self.check(f"step {at}", step)

    def sweep(self) -> None:
        """Does what the keeper and the sender of the stream do."""
        with self.run._lock:
            if self.run._next_sweep <= self.now:
                self.run._sweep(self.now)
            while self.session is not None and (frame := self.run._next_frame()) is not None:
                self.add(frame)

    def add(self, frame: worker_pb2.WorkRequest) -> None:
        self.sent["hello"] |= frame.HasField("hello")
        self.sent["quiet"] |= frame.quiet
        self.sent["grant"] += frame.grant
        for kind in KINDS:
            self.sent[kind] += [each.claim_token for each in getattr(frame.settle, kind + "s")]

    def happens(self, step: dict[str, Any]) -> None:
        if "open" in step:
            self.session = _work._Session(self.now, float("inf"))
            with self.run._lock:
                self.add(self.run._attach(self.session))
        elif "break" in step:
            self.session = self.run._session = None
        elif "push" in step:
            lease = _convert.duration("lease", step.get("lease", 30))
            timeout = _convert.duration("timeout", step.get("timeout", 0))
            self.receive(
                tasks=[
                    worker_pb2.ClaimedTask(task_id=token, claim_token=token, type="t", queue="q", attempt=1, lease=lease, timeout=timeout)
                    for token in step["push"]
                ]
            )
        elif "answer" in step:
            self.receive(settled=answer(step["answer"]))
        elif "lost" in step:
            self.receive(lost=[worker_pb2.LostClaim(claim_token=token, reason=step["reason"]) for token in step["lost"]])
        elif "quiet" in step:
            self.receive(quiet=worker_pb2.QuietNotice(quiet=step["quiet"], version=1))
        elif "end" in step:
            for token, how in step["end"].items():
                handler = types.SimpleNamespace(arguments=lambda _: ((self.started[token], how), {}), fn=ends)
                contextvars.Context().run(self.run._run, self.started[token], cast(Any, handler))
        elif "progress" in step:
            self.run.set_progress(self.started[step["progress"]], task_pb2.Progress(percent=50))
        elif "drain" in step:
            self.run._quiet = True
        elif "stop" in step:
            with self.run._lock:
                self.run._interrupt_all()
        elif "abandon" in step:
            with self.run._lock:
                self.run._abandon()

    def receive(self, **fields: Any) -> None:
        assert self.session is not None
        self.run._receive(self.session, worker_pb2.WorkResponse(**fields))

    def check(self, at: str, step: dict[str, Any]) -> None:
        for kind in KINDS:
            self.sent[kind].sort()
        assert self.sent == {**self.nothing(), **step.get("sends", {})}, f"{at} sends"
        claims = self.run._claims
        if "holds" in step:
            assert {token: held.phase.name.lower() for token, held in claims.items()} == step["holds"], f"{at} holds"
        if "stopped" in step:
            told = {token: CAUSES[type(held.cause)] for token, held in claims.items() if held.cause is not None and held.phase is not Phase.ENDED}
            assert told == step["stopped"], f"{at} has stopped"
        if "busy" in step:
            assert self.run._busy == step["busy"], f"{at} has busy slots"


def answer(a: dict[str, Any]) -> worker_pb2.SettleResponse:
    out = worker_pb2.SettleResponse()
    for kind in KINDS:
        for token in a.get(kind, ()):
            each = getattr(out, kind + "s").add(task_id=token, claim_token=token)
            if "code" in a:
                wait = _convert.duration("retry_after", a.get("retry_after", 0))
                each.error.CopyFrom(task_pb2.Error(code=a["code"], reason=a.get("reason", ""), retry_after=wait))
    return out


def ends(held: Held, how: str) -> Any:
    """The function of a handler."""
    if how == "returns":
        return None
    if how == "returns what cannot be sent":
        return object()
    if how == "stops":
        assert held.cause is not None
        raise held.cause
    raise {"fails": ValueError("boom"), "fails without words": Unreadable(), "snoozes": outcome.Snooze(60)}[how]


@pytest.mark.parametrize("trace", TRACES, ids=[trace["name"] for trace in TRACES])
def test_traces(trace: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Player(trace["slots"], monkeypatch).play(trace["steps"])
