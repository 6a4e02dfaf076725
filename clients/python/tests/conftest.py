"""One broker for the tests that do not kill it. PAWL_BINARY is the path of the program; if unset, it is built."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import pawl
from pawl import testing


@pytest.fixture(scope="session")
def binary(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The pawl program."""
    given = os.environ.get("PAWL_BINARY")
    if given:
        return given
    out = tmp_path_factory.mktemp("bin") / "pawl"
    subprocess.run(["go", "build", "-o", str(out), "./cmd/pawl"], cwd=Path(__file__).parents[3], check=True)
    return str(out)


@pytest.fixture(scope="session")
def broker(binary: str) -> Iterator[testing.Broker]:
    """A broker that all tests share. Each test uses its own queues."""
    with testing.Broker(binary) as running:
        yield running


@pytest.fixture
def app(broker: testing.Broker) -> Iterator[pawl.App]:
    """An app of the shared broker."""
    with pawl.App(broker.address) as made:
        yield made


@pytest.fixture
def queue() -> str:
    """A queue that no other test uses."""
    return f"q-{uuid.uuid4().hex[:12]}"
