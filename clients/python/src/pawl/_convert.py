"""Converts Python values to those of the API and back: enums, times, durations, JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, Union

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from pawl import errors

Seconds = Union[float, timedelta, str]
"""A duration: a number of seconds, a timedelta, or a text such as "90s", "1h30m" or "250ms". A day is "24h"."""

JSON = "application/json"


class _Enum(Protocol):
    def items(self) -> list[tuple[str, Any]]: ...


class Words:
    """Translates the values of a protobuf enum to the words that REST uses, and back."""

    def __init__(self, enum: _Enum, prefix: str) -> None:
        names = {number: name[len(prefix) :].lower() for name, number in enum.items() if number != 0}
        self._words: Mapping[int, str] = names
        self._numbers: Mapping[str, int] = {word: number for number, word in names.items()}

    def word(self, number: int) -> str:
        """Returns the word, or "" for an unspecified value and for values of newer brokers."""
        return self._words.get(number, "")

    def number(self, field: str, word: str) -> Any:
        """Returns the value for protobuf. It is Any because the stubs have a separate type for each enum."""
        number = self._numbers.get(word)
        if number is None:
            raise errors.invalid(field, f"{word!r} is not one of {', '.join(self._numbers)}")
        return number


def duration(field: str, value: Seconds) -> Duration:
    """Returns a duration for protobuf. The broker decides whether it may be negative."""
    if isinstance(value, timedelta):
        out = Duration()
        out.FromTimedelta(value)
        return out
    if isinstance(value, str):
        value = _parse(field, value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise errors.invalid(field, f'{value!r} is neither a number of seconds, nor a timedelta, nor a text such as "90s"')
    if not math.isfinite(value) or abs(value) > 10_000 * 366 * 86_400:
        raise errors.invalid(field, f"{value!r} seconds are beyond 10,000 years")
    whole = math.trunc(value)
    return Duration(seconds=whole, nanos=round((value - whole) * 1e9))


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


def _parse(field: str, value: str) -> float:
    if not re.fullmatch(rf"-?(?:{_PART.pattern})+", value):
        raise errors.invalid(field, f'{value!r} is not a duration: want numbers followed by ms, s, m or h, such as "1h30m"')
    total = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(value))
    return -total if value.startswith("-") else total


_RATE_FORMS = "50/s, 30/m, 1000/h or 100/10s"


def rate(field: str, text: str) -> tuple[float, float]:
    """Parses a rate as the command line does, such as "100/1m": how many in how many seconds. A number alone is per second."""
    number, slash, unit = text.replace(" ", "").partition("/")
    unit = unit if slash else "s"
    unit = unit if unit[:1].isdecimal() else f"1{unit}"
    try:
        n = float(number.replace(",", "").replace("_", "?"))
        per = float(unit[:-1]) * 86_400 if unit.endswith("d") else _parse(field, unit)
    except ValueError:
        n = per = 0.0
    if not (0 < n <= 1e15 and 0 < per < math.inf):
        raise errors.invalid(field, f"{text!r:.64} is not a rate such as {_RATE_FORMS}")
    return n, per


def per_second(field: str, value: float | str) -> float:
    """Returns a rate as a number per second."""
    if not isinstance(value, str):
        return value
    n, per = rate(field, value)
    return n / per


def rate_limit(field: str, text: str) -> tuple[int, float]:
    """Parses the rate of a limit, which is a whole number in some seconds."""
    n, per = rate(field, text)
    if n != math.trunc(n) or n >= 2**31:
        raise errors.invalid(field, f"{text!r:.64}: a limit is a whole number of tasks; use a longer period for few tasks, such as 1/10s")
    return int(n), per


def seconds(field: str, value: Seconds) -> float:
    """Returns a duration as a number of seconds."""
    return seconds_of(duration(field, value))


def seconds_of(p: Duration) -> float:
    """Returns a protobuf duration as a number of seconds."""
    return float(p.seconds + p.nanos / 1e9)


def timestamp(field: str, value: datetime) -> Timestamp:
    """Returns a time for protobuf. A naive time is refused, because its time zone is unknown."""
    if not isinstance(value, datetime):
        raise errors.invalid(field, f"{value!r} is not a datetime")
    if value.tzinfo is None:
        raise errors.invalid(field, f"{value.isoformat()} has no time zone")
    out = Timestamp()
    out.FromDatetime(value.astimezone(timezone.utc))
    return out


def time_of(p: Timestamp) -> datetime | None:
    """Returns a protobuf time in UTC, or None if it is not set."""
    if p.seconds == 0 and p.nanos == 0:
        return None
    return datetime.fromtimestamp(p.seconds, timezone.utc) + timedelta(microseconds=p.nanos // 1000)


def strings(field: str, value: Sequence[str]) -> Sequence[str]:
    """Checks a list of strings. To Python, a string is a list of its characters."""
    if isinstance(value, str):
        raise errors.invalid(field, f"{value!r} is a string, not a list of them")
    return value


def set_field(message: Any, name: str, value: Any) -> None:
    """Sets a field. Protobuf refuses values of the wrong type, numbers out of range and lone surrogates."""
    try:
        setattr(message, name, value)
    except (TypeError, ValueError) as err:
        raise errors.invalid(name, f"{value!r}: {err}") from None


def encode(field: str, value: Any) -> bytes:
    """Encodes a value as JSON, without spaces. It refuses what JSON does not have: NaN, infinite numbers and lone surrogates."""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as err:  # UnicodeEncodeError of a lone surrogate is a ValueError
        raise errors.invalid(field, f"cannot be encoded as JSON: {err}") from err


def decode(data: bytes) -> Any:
    """Decodes JSON. Empty data is None."""
    return json.loads(data) if data else None


def decode_as(what: str, data: bytes, content_type: str) -> Any:
    """Decodes data with a content type from JSON. ValueError if it is something else."""
    if content_type not in ("", JSON):
        raise ValueError(f"{what} is {content_type!r}, not JSON")
    try:
        return decode(data)
    except ValueError as err:
        raise ValueError(f"{what}: {err}") from None


def cut(text: str, limit: int) -> str:
    """Truncates a text to limit bytes of UTF-8, without lone surrogates, for which protobuf would refuse the whole message."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")
