"""Payloads: each value is written in a notation that the broker takes for it, and what JSON does not have is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pawl import _convert, errors

VECTORS: list[dict[str, Any]] = json.loads((Path(__file__).parents[3] / "test/conformance/outside/payloads.json").read_text())


@pytest.mark.parametrize("vector", VECTORS, ids=[v["about"] for v in VECTORS])
def test_values_are_written_as_in_the_other_languages(vector: dict[str, Any]) -> None:
    equal = vector.get("equal", [])
    for text in equal:
        if "python" not in vector.get("inexact", []):
            assert _convert.encode("payload", json.loads(text)).decode() in equal
    for text in vector.get("refused", []):
        with pytest.raises(errors.InvalidArgumentError, match="payload: cannot be encoded as JSON"):
            _convert.encode("payload", json.loads(text))


@pytest.mark.parametrize("value", [math.nan, math.inf, [{"a": -math.inf}], {math.nan: 1}])
def test_numbers_that_json_does_not_have_are_refused(value: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="payload: cannot be encoded as JSON"):
        _convert.encode("payload", value)
