"""The current context."""

from __future__ import annotations

import contextvars
from typing import Any


class Context(dict[str, Any]):
    """Values by name."""


_current: contextvars.ContextVar[Context] = contextvars.ContextVar("context", default=Context())


def get_current() -> Context:
    return _current.get()


def attach(context: Context) -> contextvars.Token[Context]:
    return _current.set(context)


def detach(token: contextvars.Token[Context]) -> None:
    _current.reset(token)
