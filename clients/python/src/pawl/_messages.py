"""Converts protobuf messages to dataclasses and back: fields by name, durations as seconds, times as datetimes, enums as words."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from pawl import _convert, errors

T = TypeVar("T")
M = TypeVar("M", bound=Message)


def read(cls: type[T], message: Message) -> T:
    """Converts a message to a dataclass. The message must have all its fields."""
    kinds: Mapping[str, type[Any] | None] = _kinds(typing.cast(Any, cls))
    return cls(**{name: _read_field(kind, message, name) for name, kind in kinds.items()})


@functools.cache
def _kinds(cls: type[Any]) -> Mapping[str, type[Any] | None]:
    """Returns the fields of a dataclass, each with the dataclass it contains."""
    hints = typing.get_type_hints(cls)
    return {field.name: _dataclass_in(hints[field.name]) for field in dataclasses.fields(cls)}


def _dataclass_in(hint: Any) -> type[Any] | None:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return hint
    return next((found for arg in typing.get_args(hint) if (found := _dataclass_in(arg))), None)


def is_repeated(field: Any) -> bool:
    """Reports whether a field is a list. Descriptors of protobuf 7.34 have no label, and older ones have only that."""
    known = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if known is None else known)


def _read_field(kind: type[Any] | None, message: Any, name: str) -> Any:
    field = message.DESCRIPTOR.fields_by_name[name]
    value = getattr(message, name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: _read_value(kind, field.message_type.fields_by_name["value"], each) for key, each in value.items()}
    if is_repeated(field):
        return tuple(_read_value(kind, field, each) for each in value)
    if field.has_presence and not message.HasField(name):
        return 0.0 if field.message_type is Duration.DESCRIPTOR else None
    return _read_value(kind, field, value)


def _read_value(kind: type[Any] | None, field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return _words(field.enum_type).word(value)
    if isinstance(value, Duration):
        return _convert.seconds_of(value)
    if isinstance(value, Timestamp):
        return _convert.time_of(value)
    return read(kind, value) if kind is not None else value


def write(value: Any, message: Message, path: str = "") -> None:
    """Copies a dataclass into a message. Empty fields are left out, so that the broker's defaults apply."""
    for field in dataclasses.fields(value):
        given = getattr(value, field.name)
        if given or (given is not None and _is_optional(message, field.name)):
            _write_field(given, message, field.name, f"{path}{field.name}")


def _is_optional(message: Any, name: str) -> bool:
    """Reports whether zero differs from unset. For a duration it does not."""
    field = message.DESCRIPTOR.fields_by_name[name]
    return bool(field.has_presence and field.message_type is None)


def _write_field(given: Any, message: Any, name: str, path: str) -> None:
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        for key, each in given.items():
            write(each, getattr(message, name)[key], f"{path}[{key!r}].")
    elif is_repeated(field):
        words = _words(field.enum_type) if field.enum_type is not None else None
        getattr(message, name).extend(words.number(path, each) if words else each for each in _convert.strings(path, given))
    elif field.enum_type is not None:
        _convert.set_field(message, name, _words(field.enum_type).number(path, given))
    elif field.message_type is Duration.DESCRIPTOR:
        getattr(message, name).CopyFrom(_convert.duration(path, given))
    elif field.message_type is Timestamp.DESCRIPTOR:
        getattr(message, name).CopyFrom(_convert.timestamp(path, given))
    elif field.message_type is not None and isinstance(given, str):
        if field.message_type.name != "Rate":
            raise errors.invalid(path, f"{given!r:.64} is a text, not an object")
        if given != "none":
            limit, period = _convert.rate_limit(path, given)
            getattr(message, name).limit = limit
            getattr(message, name).period.CopyFrom(_convert.duration(path, period))
    elif field.message_type is not None:
        getattr(message, name).SetInParent()
        write(given, getattr(message, name), f"{path}.")
    else:
        _convert.set_field(message, name, _convert.per_second(path, given) if field.cpp_type == field.CPPTYPE_DOUBLE else given)


@functools.cache
def _words(enum: Any) -> _convert.Words:
    prefix = re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"
    return _convert.Words(_Enum(enum), prefix)


class _Enum:
    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def items(self) -> list[tuple[str, Any]]:
        return [(value.name, value.number) for value in self._descriptor.values]


def request(cls: type[M], fields: Mapping[str, Any]) -> M:
    """Makes a message of its fields. Those that are None are left out."""
    out: M = cls()
    for name, given in fields.items():
        if given is not None:
            _write_field(given, out, name, name)
    return out
