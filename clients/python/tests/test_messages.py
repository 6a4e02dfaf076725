"""Messages and the dataclasses that stand for them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pawl import _messages
from pawl.v1 import task_pb2

FIELDS = task_pb2.TaskSpec.DESCRIPTOR.fields_by_name


@pytest.mark.parametrize(
    ("field", "want"),
    [
        (FIELDS["tags"], True),
        (FIELDS["type"], False),
        (SimpleNamespace(label=3, LABEL_REPEATED=3), True),
        (SimpleNamespace(label=1, LABEL_REPEATED=3), False),
        (SimpleNamespace(is_repeated=True), True),  # protobuf 7.34 has no label
        (SimpleNamespace(is_repeated=False), False),
    ],
)
def test_lists_are_known_by_what_each_version_of_protobuf_says(field: Any, want: bool) -> None:
    assert _messages.is_repeated(field) is want
