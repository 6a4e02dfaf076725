"""Runs the stories of test/conformance/outside against the Python SDK. Their format is described there."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import outside_calls
import pawl
from pawl import testing

ROOT = Path(__file__).parents[3] / "test" / "conformance" / "outside"
_TIMEOUT = 120.0
_POLL = 0.015


class Untrue(Exception):
    """A story does not hold for this SDK."""


def features() -> list[dict[str, Any]]:
    """Returns the rows of the table of features of the SDKs."""
    return list(json.loads((ROOT / "features.json").read_text()))


def stories() -> Iterator[dict[str, Any]]:
    """Returns all stories, with "@" replaced by their names."""
    for path in sorted((ROOT / "stories").glob("*.json")):
        for raw in json.loads(path.read_text()):
            yield json.loads(json.dumps(raw, ensure_ascii=False).replace("@", raw["name"]))


def lacks(story: Mapping[str, Any], player: str = "python") -> str:
    """Returns which of a story's features the SDK lacks."""
    return next((f["id"] for f in features() if f["id"] in story["about"] and not f[player]), "")


def differs(where: str, want: Any, got: Any) -> str:
    """Returns where got differs from want, or "" if it does not."""
    if isinstance(want, dict) and want:
        if not isinstance(got, dict):
            return f"{where}: got {got!r}, want {want!r}"
        return next((d for name, value in want.items() if (d := differs(f"{where}.{name}", value, got.get(name)))), "")
    if isinstance(want, list) and want:
        if not isinstance(got, (list, tuple)) or len(got) != len(want):
            return f"{where}: got {got!r}, want {want!r}"
        return next((d for at, (w, g) in enumerate(zip(want, got)) if (d := differs(f"{where}[{at}]", w, g))), "")
    return "" if want == got or not want and not got else f"{where}: got {got!r}, want {want!r}"


def seconds(text: str) -> float:
    """Parses a duration in a story."""
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|s|m|h)", text))


class Play:
    """A story being run."""

    def __init__(self, app: pawl.App) -> None:
        self.app = app
        self._uuid = str(uuid.uuid4())
        self._ids: dict[str, str] = {}
        self._gates: dict[str, threading.Event] = {}
        self._runs: dict[str, int] = {}
        self._script: dict[str, list[list[dict[str, Any]]]] = {}
        self._lock = threading.Lock()
        self._wrong: Exception | None = None
        self._working: list[Any] = []

    def tell(self, story: Mapping[str, Any]) -> None:
        """Runs all steps. Raises Untrue where the story does not hold."""
        try:
            for at, step in enumerate(story["steps"]):
                try:
                    self._step(step)
                except Untrue as err:
                    raise self._wrong or Untrue(f"step {at + 1}, {step['do']}: {err}") from None
        finally:
            self._stop()
        if self._wrong is not None:
            raise self._wrong
        for type, runs in self._script.items():
            if self._runs.get(type, 0) != len(runs):
                raise Untrue(f"the handler of {type!r} ran {self._runs.get(type, 0)} times, want {len(runs)}")

    def _step(self, step: Mapping[str, Any]) -> None:
        given = self._resolve(step.get("with", {}))
        own: dict[str, Callable[[], None]] = {
            "worker": lambda: self._start(given),
            "stop": self._stop,
            "open": lambda: self._gate(given["gate"]).set(),
            "await": lambda: self._await(given["gate"]),
        }
        if step["do"] in own:
            own[step["do"]]()
            return
        end = time.monotonic() + _TIMEOUT
        while True:
            got, diff = self._judge(step, given)
            if not diff:
                self._bind(step, got)
                return
            if not step.get("until") or time.monotonic() > end or self._wrong:
                raise Untrue(diff)
            time.sleep(_POLL)

    def _judge(self, step: Mapping[str, Any], given: dict[str, Any]) -> tuple[Any, str]:
        want = step.get("refused")
        try:
            got = outside_calls.CALLS[step["do"]](self.app, given)
        except pawl.PawlError as err:
            return None, differs("refusal", self._resolve(want), outside_calls.refused(err)) if want else f"refused: {err}"
        if want:
            return got, f"not refused, want {want}: {got}"
        return got, differs("answer", self._resolve(step["gives"]), got) if "gives" in step else ""

    def _resolve(self, value: Any) -> Any:
        """Replaces names by their values."""
        if isinstance(value, dict):
            return {key: self._resolve(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self._resolve(each) for each in value]
        if isinstance(value, str):
            if value.startswith("$"):
                return self._ids.get(value[1:], value)
            value = re.sub(r"\$\{(.*?)\}", lambda name: self._ids.get(name[1], name[0]), value)
            return {"%uuid": self._uuid, "%1MiB": "x" * (1 << 20)}.get(value, value)
        return value

    def _bind(self, step: Mapping[str, Any], got: Any) -> None:
        name = step.get("as")
        if isinstance(name, str):
            self._ids[name] = got.get("task_id") or got.get("group_id") or got["operation_id"]
        elif name:
            self._ids.update({each: item["task_id"] for each, item in zip(name, got)})
        if step.get("members"):
            self._ids.update({each: item["task_id"] for each, item in zip(step["members"], got["tasks"])})

    def _gate(self, name: str) -> threading.Event:
        with self._lock:
            return self._gates.setdefault(name, threading.Event())

    def _await(self, name: str) -> None:
        end = time.monotonic() + _TIMEOUT
        gate = self._gate(name)
        while not gate.wait(0.05):
            if self._wrong or time.monotonic() > end:
                raise Untrue(f"the gate {name!r} was not opened")

    def _start(self, given: dict[str, Any]) -> None:
        for type, runs in given["handlers"].items():
            self._script[type] = runs
            self.app.handler(type)(self._handle)
        settings = {"name": given["name"]} if "name" in given else {}
        working = testing.working(
            self.app, given["queues"], concurrency=given.get("concurrency", 4), drain_timeout=seconds(given.get("drain_timeout", "10s")), **settings
        )
        working.__enter__()
        self._working.append(working)

    def _stop(self) -> None:
        working, self._working = self._working, []
        for each in working:
            each.__exit__(None, None, None)

    # Handlers

    def _handle(self, claim: pawl.Claim) -> Any:
        with self._lock:
            n = self._runs.get(claim.type, 0)
            self._runs[claim.type] = n + 1
        try:
            if n >= len(self._script[claim.type]):
                raise Untrue(f"the handler of {claim.type!r} ran {n + 1} times, want {len(self._script[claim.type])}")
            run = self._resolve(self._script[claim.type][n])
            for action in run:
                done = self._act(claim, dict(action, last=action is run[-1]))
                if done is not None:
                    return done[0]
            return None
        except Untrue as err:
            self._wrong = self._wrong or Untrue(f"run {n + 1} of {claim.type!r}: {err}")
            raise pawl.DeadLetter(str(err)) from err
        finally:
            self._gate(f"{claim.type} ended").set()

    def _act(self, claim: pawl.Claim, action: dict[str, Any]) -> tuple[Any] | None:
        """Performs one action. The handler's result comes in a tuple; its exceptions are raised."""
        verb = next(each for each in _ACTIONS if each in action)
        return _ACTIONS[verb](self, claim, action)

    def _sees(self, claim: pawl.Claim, action: dict[str, Any]) -> None:
        _same("claim", action["sees"], outside_calls.claim(claim))

    def _effect(self, claim: pawl.Claim, action: dict[str, Any]) -> None:
        ran = []

        def fn() -> Any:
            ran.append(True)
            if "fails" in action:
                raise RuntimeError(action["fails"])
            return action.get("runs")

        try:
            got = claim.step(action["step"], fn) if "step" in action else claim.once(action["once"], fn)
        finally:
            if bool(ran) != ("runs" in action or "fails" in action):
                raise Untrue(f"ran: {ran}, action {action}")
        _same("effect", action["gives"], got)

    def _checkpoint(self, claim: pawl.Claim, action: dict[str, Any]) -> None:
        try:
            claim.checkpoint(action["checkpoint"])
        except pawl.Interrupted as err:
            _is_why(action.get("interrupted"), err)
            raise
        if "interrupted" in action:
            raise Untrue(f"the checkpoint was taken, want {action['interrupted']}")

    def _interrupted(self, claim: pawl.Claim, action: dict[str, Any]) -> None:
        end = time.monotonic() + _TIMEOUT
        while (why := claim.interrupted) is None:
            if time.monotonic() > end:
                raise Untrue("was not interrupted")
            time.sleep(_POLL)
        _is_why(action["interrupted"], why)
        if action.get("last"):
            raise why


def _raises(make: Callable[[dict[str, Any]], Exception]) -> Callable[[Play, pawl.Claim, dict[str, Any]], None]:
    def act(play: Play, claim: pawl.Claim, action: dict[str, Any]) -> None:
        raise make(action)

    return act


def _failure(action: dict[str, Any]) -> Exception:
    if "retry_in" in action:
        return pawl.RetryIn(seconds(action["retry_in"]), action["fails"])
    return RuntimeError(action["fails"])


def _returns(play: Play, claim: pawl.Claim, action: dict[str, Any]) -> tuple[Any]:
    if "content_type" in action:
        claim.set_raw_result(base64.b64decode(action["returns"]), action["content_type"])
        return (None,)
    return (action["returns"],)


def _same(what: str, want: Any, got: Any) -> None:
    if diff := differs(what, want, got):
        raise Untrue(diff)


def _is_why(want: str | None, got: pawl.Interrupted) -> None:
    names = {"cancelled": pawl.Cancelled, "draining": pawl.Draining, "timed_out": pawl.TimedOut}
    if want is None or not isinstance(got, names[want]):
        raise Untrue(f"interrupted by {got!r}, want {want}")


_ACTIONS: dict[str, Callable[[Play, pawl.Claim, dict[str, Any]], tuple[Any] | None]] = {
    "step": Play._effect,
    "once": Play._effect,
    "fails": _raises(_failure),
    "dead": _raises(lambda a: pawl.DeadLetter(a["dead"])),
    "discards": _raises(lambda a: pawl.Discard(a["discards"])),
    "poisons": _raises(lambda a: pawl.Poison(a["poisons"])),
    "snoozes": _raises(lambda a: pawl.Snooze(seconds(a["snoozes"]))),
    "returns": _returns,
    "sees": Play._sees,
    "parent": lambda play, claim, a: _same("parent", a["parent"], claim.parent_result()),
    "opens": lambda play, claim, a: play._gate(a["opens"]).set(),
    "holds": lambda play, claim, a: play._await(a["holds"]),
    "progress": lambda play, claim, a: claim.progress(a["progress"], a.get("message", "")),
    "checkpoint": Play._checkpoint,
    "last_checkpoint": lambda play, claim, a: _same("checkpoint", a["last_checkpoint"], claim.last_checkpoint()),
    "interrupted": Play._interrupted,
}


def run_at(text: str) -> datetime:
    """Parses a time such as "+1h"."""
    return datetime.now(timezone.utc) + timedelta(seconds=seconds(text))
