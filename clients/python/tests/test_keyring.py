"""Encryption: this SDK reads what the Go SDK encrypts, and encrypts the same way; the broker sees no plaintext."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pawl
from pawl import testing
from pawl.keyring import Forged, Key, Keyring, Unreadable

pytest.importorskip("cryptography")

VECTORS = json.loads((Path(__file__).parents[3] / "test/conformance/outside/keyring.json").read_text())
OLD, NEW, OTHER = Key("old", b"o" * 32), Key("new", b"n" * 32), Key("other", b"x" * 32)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda v: "/".join(v["place"]))
def test_go_and_python_make_and_read_the_same(vector: dict[str, Any]) -> None:
    ring = Keyring([Key(vector["key"], base64.b64decode(vector["secret"]))])
    data, sealed = base64.b64decode(vector["data"]), base64.b64decode(vector["sealed"])
    assert ring.open(vector["place"], sealed) == (data, vector["content_type"])
    assert ring.seal(vector["place"], vector["request"], vector["content_type"], data) == (sealed, vector["sealed_as"])


def test_what_was_changed_or_put_elsewhere_is_forged() -> None:
    ring = Keyring([NEW, OLD])
    sealed, _ = Keyring([OLD]).seal(["payload", "ns", "q", "t"], "r", "", b"secret")
    assert ring.open(["payload", "ns", "q", "t"], sealed) == (b"secret", "")
    for place, data in ((["payload", "ns", "q2", "t"], sealed), (["payload", "ns", "q", "t"], sealed[:-1] + b"\0"), (["payload", "ns", "q", "t"], b"\1\2")):
        with pytest.raises(Forged):
            ring.open(place, data)
    with pytest.raises(Unreadable, match="'old', which the keyring lacks") as lacks:
        Keyring([NEW]).open(["payload", "ns", "q", "t"], sealed)
    assert not isinstance(lacks.value, Forged)


@pytest.mark.parametrize("keys", [[], [Key("a b", b"x" * 32)], [Key("a", b"short")], [OLD, OLD]])
def test_bad_keys_are_refused(keys: list[Key]) -> None:
    with pytest.raises(pawl.InvalidArgumentError, match="keys"):
        Keyring(keys)


@pytest.fixture
def sealed(broker: testing.Broker) -> Iterator[pawl.App]:
    """An app with a keyring."""
    with pawl.App(broker.address, keyring=Keyring([NEW, OLD])) as made:
        yield made


def test_the_broker_sees_nothing_and_handlers_all(app: pawl.App, sealed: pawl.App, queue: str) -> None:
    attempts = []

    @sealed.task("order", queue=queue, retry=pawl.Retry(initial=0.01, jitter=0))
    def order(card: str) -> dict[str, str]:
        claim = pawl.current()
        paid = claim.step("pay", lambda: f"paid with {card}")
        assert claim.once("mail", lambda: f"mail about {card}") == f"mail about {card}"
        claim.checkpoint({"card": claim.last_checkpoint(card)})
        attempts.append(claim.attempt)
        if claim.attempt == 1:
            raise RuntimeError("once more")
        return {"paid": paid}

    @sealed.task("receipt", queue=queue)
    def receipt(to: str) -> str:
        return f"{to}: {pawl.current().parent_result()['paid']}"

    ref = order.call("4711").then(receipt.call("a@example.com")).enqueue()
    seen = app.ref(ref.id).info()
    assert seen.content_type == "application/vnd.pawl.encrypted; key=new" and b"4711" not in seen.payload
    assert sealed.ref(ref.id).info().decode_payload() == {"card": "4711"}
    assert sealed.admin.tasks.discard(order.call("4712").enqueue().id).decode_payload() == {"card": "4712"}
    with testing.working(sealed, queue):
        assert ref.result(20) == {"paid": "paid with 4711"}
        next_id = sealed.ref(ref.id).info().then[0].task_id
        assert sealed.ref(next_id).result(20) == "a@example.com: paid with 4711"
    seen = app.ref(ref.id).info()
    assert attempts == [1, 2] and seen.result_content_type.endswith("key=new") and b"4711" not in seen.result + seen.checkpoint


@pytest.mark.parametrize("encrypts", [False, True])
def test_a_checkpoint_that_looks_encrypted_is_the_handlers_own(app: pawl.App, sealed: pawl.App, queue: str, encrypts: bool) -> None:
    own, one = {"pawl_encrypted": "mine"}, sealed if encrypts else app

    @one.task("alike", queue=queue, retry=pawl.Retry(initial=0.01, jitter=0))
    def alike() -> Any:
        claim = pawl.current()
        if claim.attempt == 1:
            claim.checkpoint(own)
            raise RuntimeError("once more")
        return claim.last_checkpoint(None)

    ref = alike.call().enqueue()
    with testing.working(one, queue):
        assert ref.result(20) == own


def test_an_encrypted_checkpoint_needs_a_keyring(app: pawl.App, sealed: pawl.App, queue: str) -> None:
    saved = threading.Event()

    def save(claim: pawl.Claim) -> None:
        claim.checkpoint(1)
        saved.set()
        raise pawl.Snooze(0.1)

    ref = app.call("saved", {}, queue=queue, max_attempts=1).enqueue()  # the payload is not encrypted
    sealed.handler("saved")(save)
    with testing.working(sealed, queue):
        assert saved.wait(20)
    app.handler("saved")(lambda claim: None)
    with testing.working(app, queue):
        info = ref.wait_ended(20)
    assert info.state == "dead" and info.last_failure is not None
    assert "checkpoint: it is encrypted, and the app has no keyring" in info.last_failure.message


def test_repeats_are_known(sealed: pawl.App, queue: str) -> None:
    call = sealed.call("order", {"n": 1}, queue=queue, idempotency_key="o-1")
    first = call.enqueue()
    assert call.enqueue().id == first.id
    unique = sealed.call("order", {"n": 2}, queue=queue, unique=pawl.Unique())
    assert unique.enqueue().id == unique.enqueue().id


def test_what_cannot_be_encrypted_is_nobody_elses_error(sealed: pawl.App, queue: str) -> None:
    async def main() -> list[Any]:
        good = [sealed.call("t", n, queue=queue).aenqueue() for n in range(10)]
        bad = sealed.call("t", b"", queue=queue, content_type="x/" + 254 * "y").aenqueue()
        return await asyncio.gather(*good[:5], bad, *good[5:], return_exceptions=True)

    answers = asyncio.run(main())
    refused = answers.pop(5)
    assert isinstance(refused, pawl.InvalidArgumentError) and refused.field == "content_type"
    assert [isinstance(each, pawl.Ref) for each in answers] == 10 * [True]


def test_groups_and_schedules(app: pawl.App, sealed: pawl.App, queue: str) -> None:
    group = sealed.enqueue_group([sealed.call("row", {"n": n}, queue=queue) for n in range(2)])
    made = group.tasks[0]
    assert isinstance(made, pawl.Ref) and made.info().decode_payload() == {"n": 0}
    assert app.ref(made.id).info().content_type.endswith("key=new")
    sealed.schedules.put(queue, sealed.call("nightly", {"full": True}, queue=queue), every=3600)
    assert sealed.schedules.get(queue).task.decode_payload() == {"full": True}
    assert app.schedules.get(queue).task.content_type.endswith("key=new")
    assert sealed.schedules.put(queue, sealed.call("nightly", {"full": True}, queue=queue), every=3600).change == "unchanged"


@pytest.mark.parametrize(
    ("ring", "state", "said"),
    [
        (None, "dead", "the app has no keyring"),
        (Keyring([OTHER]), "dead", "which the keyring lacks"),
        (Keyring([Key("new", b"?" * 32)]), "poisoned", "it is not what was encrypted"),
    ],
)
def test_what_cannot_be_read(broker: testing.Broker, sealed: pawl.App, queue: str, ring: Keyring | None, state: str, said: str) -> None:
    ref = sealed.call("order", {"card": "4711"}, queue=queue, max_attempts=1).enqueue()
    with pawl.App(broker.address, keyring=ring) as app:
        app.handler("order")(lambda claim: None)
        with testing.working(app, queue):
            info = app.ref(ref.id).wait_ended(20)
    assert info.state == state and info.last_failure is not None and said in info.last_failure.message


def test_only_encrypted(broker: testing.Broker, app: pawl.App, queue: str) -> None:
    ref = app.call("order", {"card": "4711"}, queue=queue).enqueue()
    with pawl.App(broker.address, keyring=Keyring([NEW], only_encrypted=True)) as strict:
        strict.handler("order")(lambda claim: None)
        with testing.working(strict, queue):
            assert strict.ref(ref.id).wait_ended(20).state == "poisoned"
