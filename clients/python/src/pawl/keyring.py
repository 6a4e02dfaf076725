"""Encrypts the contents of tasks, with keys that the broker never sees: see docs/encryption.md. It needs the package cryptography.

    app = pawl.App(keyring=Keyring([Key("2026-11", secret)]))

The format is that of the Go SDK's package keyring, so that programs in all languages can read each other's tasks. It does not
know calls or tasks.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pawl import errors

_SECRET = 32
_SALT = 24
_NONCE = bytes(12)  # each message has its own key, so that no nonce is used twice with a key
_VERSION = 1
_MAX_KEYS = 100
_TYPE = "application/vnd.pawl.encrypted"
MAX_CONTENT_TYPE = 255
"""The length of the longest content type that can be encrypted, in bytes."""


@dataclass(frozen=True)
class Key:
    """A secret with which payloads and results are encrypted before they leave the program."""

    id: str
    """Letters, digits and . _ -, up to 64. It is not secret."""
    secret: bytes = field(repr=False)
    """32 random bytes."""


class Unreadable(Exception):
    """Encrypted data cannot be read because the keyring lacks its key. Another worker may have it."""


class Forged(Unreadable):
    """Encrypted data is not authentic: nobody with the keys encrypted it for this place."""


class Keyring:
    """Encrypts payloads, results and checkpoints with AES-256-GCM. Any thread may use it.

    The first key encrypts, and all keys decrypt, so that a key can be replaced. accept_from lists queues from which operators may have
    moved tasks: a payload is encrypted for its queue, and is otherwise considered forged in another. only_encrypted poisons tasks whose
    payloads are not encrypted.
    """

    def __init__(self, keys: Sequence[Key], *, accept_from: Sequence[str] = (), only_encrypted: bool = False) -> None:
        if not 1 <= len(keys) <= _MAX_KEYS:
            raise errors.invalid("keys", f"{len(keys)} keys, want 1 to {_MAX_KEYS}")
        self._keys: dict[str, bytes] = {}
        for at, key in enumerate(keys):
            if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", key.id):
                raise errors.invalid(f"keys[{at}].id", f"{key.id!r} is not letters, digits and . _ -, 1 to 64")
            if len(key.secret) != _SECRET:
                raise errors.invalid(f"keys[{at}].secret", f"has {len(key.secret)} bytes, want {_SECRET}")
            if key.id in self._keys:
                raise errors.invalid(f"keys[{at}].id", f"{key.id!r} is given twice")
            self._keys[key.id] = key.secret
        self._first = keys[0].id
        self._salts = _hkdf(keys[0].secret, b"", b"pawl salts v1")
        self.accept_from = tuple(accept_from)
        self.only_encrypted = only_encrypted
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as err:
            raise ImportError("a keyring needs the package cryptography: pip install 'pawl[encryption]'") from err
        self._aesgcm: Any = AESGCM
        self._invalid_tag = InvalidTag

    def seal(self, place: Sequence[str], request: str, content_type: str, data: bytes) -> tuple[bytes, str]:
        """Encrypts data for a place, and returns it with its new content type. The same data in the same request encrypts to the same
        bytes, so that the broker recognizes a retry."""
        kind = content_type.encode()
        if len(kind) > MAX_CONTENT_TYPE:
            raise errors.invalid("content_type", f"has {len(kind)} bytes, at most {MAX_CONTENT_TYPE} can be encrypted")
        plain = bytes([len(kind)]) + kind + data
        about = _about(place)
        salt = hmac.new(self._salts, b"".join(_uvarint(len(part)) + part for part in (about, request.encode(), plain)), hashlib.sha256)
        made = salt.digest()[:_SALT]
        cipher = self._aesgcm(_hkdf(self._keys[self._first], made, b"pawl message v1"))
        id = self._first.encode()
        return bytes([_VERSION, len(id)]) + id + made + cipher.encrypt(_NONCE, plain, about), f"{_TYPE}; key={self._first}"

    def open(self, place: Sequence[str], sealed: bytes) -> tuple[bytes, str]:
        """The inverse of seal: returns the data and its content type. Raises Unreadable or Forged."""
        if len(sealed) < 2 or sealed[0] != _VERSION or len(sealed) < 2 + sealed[1] + _SALT:
            raise Forged("it does not have the format of encrypted data")
        end = 2 + sealed[1]
        id = sealed[2:end].decode("utf-8", "replace")
        secret = self._keys.get(id)
        if secret is None:
            raise Unreadable(f"it is encrypted with key {id!r}, which the keyring lacks")
        cipher = self._aesgcm(_hkdf(secret, sealed[end : end + _SALT], b"pawl message v1"))
        try:
            plain = cipher.decrypt(_NONCE, sealed[end + _SALT :], _about(place))
        except self._invalid_tag:
            plain = b""
        if not plain or len(plain) < 1 + plain[0]:
            raise Forged(f"it is not what was encrypted for {list(place)} with key {id!r}")
        return plain[1 + plain[0] :], plain[1 : 1 + plain[0]].decode("utf-8", "replace")


def encrypted_with(content_type: str) -> str | None:
    """Returns the id of the key with which data of a content type is encrypted; None if it is not encrypted."""
    if not content_type.startswith(_TYPE):
        return None
    rest = content_type[len(_TYPE) :]
    return rest[len("; key=") :] if rest.startswith("; key=") else ("" if not rest else None)


NOT_ENCRYPTED = f"{_TYPE}; key="
"""Replaces the content type of a payload that is refused because it is not encrypted."""


def _about(place: Sequence[str]) -> bytes:
    return bytes([_VERSION]) + b"".join(_uvarint(len(part)) + part for part in (each.encode() for each in place))


def _uvarint(n: int) -> bytes:
    out = bytearray()
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF (RFC 5869) with SHA-256, for 32 bytes: one block."""
    prk = hmac.new(salt or bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(prk, info + b"\x01", hashlib.sha256).digest()
