"""The contents of checkpoints, as programs in other languages read and write them."""

from __future__ import annotations

import json

import pytest

import pawl
from pawl._kept import Kept, kept_of


def test_a_checkpoint_without_steps_is_the_handlers_own() -> None:
    for own in (b"", b'{"page": 3}', b"\x00\xff", b"[", b'{"pawl_steps": 1}', b'{"pawl_steps": {}, "more": 1}', b"[" * 100_000 + b"]" * 100_000):
        assert kept_of(own) == Kept(own)
    assert kept_of(b'{"page": 3}').encode() == b'{"page": 3}'
    assert kept_of(b"\x00\xff").encode() == b"\x00\xff"


def test_steps_lie_beside_the_handlers_own() -> None:
    kept = kept_of(b'{"pawl_steps": {"charge": "ch_7", "mail": null}, "checkpoint": {"page": 3}}')
    assert kept == Kept(b'{"page":3}', {"charge": b'"ch_7"', "mail": b"null"})
    assert kept_of(kept.encode()) == kept
    more = kept.with_step('"ä\n', b"[1,2]").with_own(b"4")
    assert json.loads(more.encode()) == {"pawl_steps": {"charge": "ch_7", "mail": None, '"ä\n': [1, 2]}, "checkpoint": 4}
    assert Kept().with_step("a", b"1").encode() == b'{"pawl_steps":{"a":1}}'


def test_a_checkpoint_that_looks_like_a_container_comes_back() -> None:
    for own in (b'{"pawl_steps":{"a":1}}', b'{"pawl_steps":{}}'):
        encoded = Kept().with_own(own).encode()
        assert encoded != own and kept_of(encoded) == Kept(own)


def test_a_checkpoint_that_looks_encrypted_comes_back() -> None:
    own = b'{"pawl_encrypted":"mine"}'
    encoded = Kept().with_own(own).encode()
    assert encoded == b'{"pawl_steps":{},"checkpoint":' + own + b"}" and kept_of(encoded) == Kept(own)
    assert Kept(b'{"pawl_encrypted":1}').encode() == b'{"pawl_encrypted":1}'


def test_room() -> None:
    with pytest.raises(pawl.InvalidArgumentError, match="65537 bytes; at most 65536"):
        Kept(b"x" * 65_537).encode()
    assert len(Kept(b"x" * 65_536).encode()) == 65_536
    with pytest.raises(pawl.InvalidArgumentError, match="with 1 steps"):
        Kept(b'"%s"' % (b"x" * 60_000)).with_step("a", b'"%s"' % (b"x" * 6_000)).encode()
    for own in (b"not json", b"NaN", b"{} {}"):
        with pytest.raises(pawl.InvalidArgumentError, match="not JSON"):
            Kept(own).check_room()
    Kept(b"null").check_room()
    Kept().check_room()
