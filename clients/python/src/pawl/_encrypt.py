"""Encrypts the contents of requests, and decrypts those of responses, for a client with a keyring. The calls don't know about it,
so none can forget it.

What cannot be decrypted is left as it is: handlers get the reason, others can tell by the content type.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from google.protobuf.message import Message

from pawl import _messages
from pawl._kept import WRAPPED
from pawl.keyring import MAX_CONTENT_TYPE, NOT_ENCRYPTED, Forged, Keyring, Unreadable, encrypted_with
from pawl.v1 import chain_pb2, group_pb2, once_pb2, schedule_pb2, task_pb2, worker_pb2

M = TypeVar("M", bound=Message)


class Encryption:
    """The keyring of a client, and the namespace of its calls."""

    def __init__(self, keyring: Keyring, namespace: str) -> None:
        self.keyring = keyring
        self.namespace = namespace
        """"" until it is known."""

    def holds(self, request: Message) -> bool:
        """Reports whether a request or response has something to encrypt or decrypt."""
        return next(_parts(request, ""), None) is not None

    def seal(self, request: M) -> M:
        """Encrypts the contents of a request. The request itself is not changed, because it may be sent again."""
        out = copy.deepcopy(request)
        outer = f"schedule {out.spec.name}" if isinstance(out, schedule_pb2.PutScheduleRequest) else getattr(out, "request_id", "")
        for part, path in _parts(out, ""):
            if isinstance(part, task_pb2.TaskSpec):
                self._seal_spec(part, outer + path)
            elif isinstance(part, once_pb2.FinishOnceRequest):
                part.result = self._wrap(("once", self.namespace, part.key), part.result)
        return out

    def _seal_spec(self, spec: task_pb2.TaskSpec, request: str) -> None:
        if spec.HasField("unique") and not spec.unique.key:
            request = ""  # the broker derives the key from the payload
        elif spec.idempotency_key:
            request = f"idempotency {spec.idempotency_key}"
        elif spec.request_id:
            request = f"request {spec.request_id}"
        for at, then in enumerate(spec.then):
            self._seal_spec(then, f"{request} then {at}")
        if encrypted_with(spec.content_type) is None:
            place = ("payload", self.namespace, spec.queue or "default", spec.type)
            spec.payload, spec.content_type = self.keyring.seal(place, request, spec.content_type, spec.payload)

    def seal_result(self, ack: worker_pb2.AckRequest) -> None:
        """Encrypts a result in place."""
        if ack.result and encrypted_with(ack.content_type) is None:
            kind = ack.content_type.encode()[:MAX_CONTENT_TYPE].decode("utf-8", "ignore")
            ack.result, ack.content_type = self.keyring.seal(("result", self.namespace, ack.task_id), "", kind, ack.result)

    def seal_checkpoint(self, type: str, data: bytes) -> bytes:
        """Encrypts the checkpoint of a task of the given type."""
        return self._wrap(("checkpoint", self.namespace, type), data)

    def _wrap(self, place: tuple[str, ...], data: bytes) -> bytes:
        if not data:
            return data
        sealed, _ = self.keyring.seal(place, "", "", data)
        return WRAPPED + base64.b64encode(sealed) + b'"}'

    def _unwrap(self, place: tuple[str, ...], data: bytes) -> bytes:
        if not data.startswith(WRAPPED):
            return data
        try:
            sealed = base64.b64decode(json.loads(data)["pawl_encrypted"])
        except (ValueError, KeyError, TypeError) as err:
            raise Forged(f"it does not have the format of encrypted data: {err}") from None
        return self.keyring.open(place, sealed)[0]

    def open(self, request: Message | None, answer: Message) -> None:
        """Decrypts the contents of a response, as far as the keyring can."""
        for part, _ in _parts(answer, ""):
            if isinstance(part, task_pb2.TaskSpec):
                _quietly(lambda: self._open_payload(part, part.queue or "default"))
            elif isinstance(part, task_pb2.Task):
                _quietly(lambda: self._open_payload(part, part.queue))
                self._open_result(part, "result_content_type")
                _quietly(lambda: self._open_checkpoint(part))
            elif isinstance(part, group_pb2.GroupMember):
                self._open_result(part, "result_content_type")
            elif isinstance(part, chain_pb2.Parent):
                self._open_result(part, "content_type")
            elif isinstance(part, once_pb2.BeginOnceResponse) and isinstance(request, once_pb2.BeginOnceRequest):
                part.result = self._unwrap(("once", self.namespace, request.key), part.result)

    def open_claimed(self, task: worker_pb2.ClaimedTask) -> Unreadable | None:
        """Decrypts a claimed task in place, and returns why it can't be passed to its handler."""
        if task.HasField("parent"):
            self._open_result(task.parent, "content_type")
        if encrypted_with(task.content_type) is None and self.keyring.only_encrypted:
            task.payload, task.content_type = b"", NOT_ENCRYPTED
            return Forged("payload: it is not encrypted, but the keyring accepts only encrypted data (only_encrypted)")
        return _quietly(lambda: self._open_payload(task, task.queue), "payload") or _quietly(lambda: self._open_checkpoint(task), "checkpoint")

    def _open_payload(self, part: Any, queue: str) -> None:
        if encrypted_with(part.content_type) is None or not part.payload:
            return
        places = [("payload", self.namespace, each, part.type) for each in (queue, *self.keyring.accept_from)]
        for at, place in enumerate(places):
            try:
                part.payload, part.content_type = self.keyring.open(place, part.payload)
                return
            except Forged:
                if at == len(places) - 1:
                    raise Forged(f"it is not what was encrypted for queue {queue!r} and type {part.type!r}") from None

    def _open_result(self, part: Any, content_type: str) -> None:
        if encrypted_with(getattr(part, content_type)) is None or not part.result:
            return
        try:
            part.result, kind = self.keyring.open(("result", self.namespace, part.task_id), part.result)
        except Unreadable:
            return
        setattr(part, content_type, kind)

    def _open_checkpoint(self, part: Any) -> None:
        part.checkpoint = self._unwrap(("checkpoint", self.namespace, part.type), part.checkpoint)


def _quietly(fn: Callable[[], None], what: str = "") -> Unreadable | None:
    try:
        fn()
    except Unreadable as err:
        return type(err)(f"{what}: {err}")
    return None


_PARTS = (
    task_pb2.TaskSpec,
    task_pb2.Task,
    group_pb2.GroupMember,
    chain_pb2.Parent,
    once_pb2.BeginOnceResponse,
    once_pb2.FinishOnceRequest,
)


def _parts(message: Any, path: str) -> Iterator[tuple[Any, str]]:
    """Iterates over the parts of a message that hold encrypted contents, with their paths."""
    if isinstance(message, _PARTS):
        yield message, path
    if isinstance(message, task_pb2.TaskSpec):
        return  # its follow-up tasks are encrypted with it
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        if _messages.is_repeated(field):
            for at, each in enumerate(value):
                yield from _parts(each, f"{path}.{field.name}[{at}]")
        else:
            yield from _parts(value, f"{path}.{field.name}")
