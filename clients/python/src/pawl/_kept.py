"""The contents of a task's checkpoint: the handler's own bytes, and the results of steps. It does not know claims or calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pawl import _convert, errors
from pawl._limits import MAX_CHECKPOINT

WRAPPED = b'{"pawl_encrypted":"'
"""The start of encrypted bytes where the broker requires JSON."""

_STEPS, _OWN = "pawl_steps", "checkpoint"


@dataclass(frozen=True)
class Kept:
    """Without steps, a checkpoint is the handler's own, byte for byte. The first step turns it into an object around both, which
    programs without this package can read too:

    {"pawl_steps": {"charge": "ch_7"}, "checkpoint": {"page": 3}}
    """

    own: bytes = b""
    steps: Mapping[str, bytes] = field(default_factory=dict)
    """The result of each step as JSON."""

    def with_own(self, own: bytes) -> Kept:
        """Returns a copy with another checkpoint of the handler."""
        return Kept(own, self.steps)

    def with_step(self, name: str, result: bytes) -> Kept:
        """Returns a copy with the result of another step."""
        return Kept(self.own, {**self.steps, name: result})

    def check_room(self) -> None:
        """Raises an error if no step can be stored next to the handler's checkpoint."""
        if self.own and _loads(self.own) is _NOT_JSON:
            raise errors.invalid("checkpoint", "is not JSON, so no step result can be stored with it")

    def encode(self) -> bytes:
        """The inverse of kept_of. If the handler's own checkpoint would be read as a container, or as encrypted, it is put into one."""
        if not self.steps and kept_of(self.own).own == self.own and not self.own.startswith(WRAPPED):
            data = self.own
        else:
            steps = b",".join(_dumps(name) + b":" + result for name, result in self.steps.items())
            own = b',"%s":%s' % (_OWN.encode(), self.own) if self.own else b""
            data = b'{"%s":{%s}%s}' % (_STEPS.encode(), steps, own)
        if len(data) > MAX_CHECKPOINT:
            beside = f", with {len(self.steps)} steps and the handler's own {len(self.own)} bytes" if self.steps else ""
            raise errors.invalid("checkpoint", f"{len(data)} bytes{beside}; at most {MAX_CHECKPOINT}")
        return data


def kept_of(checkpoint: bytes) -> Kept:
    """Parses a checkpoint. If it is not a container, it is the handler's own."""
    value = _loads(checkpoint)
    if not isinstance(value, dict) or not {_STEPS} <= value.keys() <= {_STEPS, _OWN} or not isinstance(value[_STEPS], dict):
        return Kept(checkpoint)
    own = _dumps(value[_OWN]) if _OWN in value else b""
    return Kept(own, {name: _dumps(result) for name, result in value[_STEPS].items()})


_NOT_JSON: Any = object()


def _loads(data: bytes) -> Any:
    try:
        return json.loads(data, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _refuse(constant: str) -> None:
    raise ValueError(constant)  # NaN and the infinities


def _dumps(value: Any) -> bytes:
    return _convert.encode("checkpoint", value)
