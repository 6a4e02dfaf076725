"""Claim: a task in the hands of its handler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pawl import _convert, models
from pawl.outcome import Poison
from pawl.v1 import worker_pb2


@dataclass(frozen=True, eq=False)
class Claim:
    """A task in the hands of its handler, under a lease. Its fields are for reading."""

    id: str
    type: str
    queue: str
    payload: bytes
    content_type: str
    priority: str
    attempt: int
    """1 for the first. Failures and lost leases count, releases and snoozes do not."""
    max_attempts: int
    """A failure of this attempt is the last."""
    token: str
    fence: int
    """Grows with each claim of the task: guard your own writes with it."""
    lease: float
    """Its length in seconds. The worker extends it."""
    timeout: float
    """The time limit of this run in seconds; 0 if there is none."""
    headers: Mapping[str, str]
    key: str
    tags: Sequence[str]
    idempotency_key: str
    created_at: datetime | None
    ready_at: datetime | None
    group_id: str
    """The group that the task is a member of; "" if none."""

    def decode_payload(self) -> Any:
        """Decodes the payload from JSON. One that is not JSON raises Poison."""
        if self.content_type not in ("", _convert.JSON):
            raise Poison(f"payload of type {self.type!r} is {self.content_type!r}, not JSON")
        try:
            return _convert.decode(self.payload)
        except ValueError as err:
            raise Poison(f"payload of type {self.type!r}: {err}") from None


def claim_of(p: worker_pb2.ClaimedTask) -> Claim:
    """Converts a claimed task from the API."""
    return Claim(
        id=p.task_id,
        type=p.type,
        queue=p.queue,
        payload=p.payload,
        content_type=p.content_type,
        priority=models.priority_word(p.priority),
        attempt=p.attempt,
        max_attempts=p.max_attempts,
        token=p.claim_token,
        fence=p.fence,
        lease=_convert.seconds_of(p.lease),
        timeout=_convert.seconds_of(p.timeout),
        headers=dict(p.headers),
        key=p.key,
        tags=tuple(p.tags),
        idempotency_key=p.idempotency_key,
        created_at=_convert.time_of(p.created_at),
        ready_at=_convert.time_of(p.ready_at),
        group_id=p.group_id,
    )
