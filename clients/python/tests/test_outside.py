"""The stories that must hold for all SDKs and REST, and the Python column of the table of features of the SDKs."""

from __future__ import annotations

import importlib
import re
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import outside
import pawl
from pawl import testing

STORIES = list(outside.stories())


@pytest.fixture(scope="module")
def told(broker: testing.Broker) -> Any:
    """Runs all stories concurrently, because they spend most of their time waiting."""

    def tell(story: dict[str, Any]) -> None:
        with pawl.App(broker.address) as app:
            outside.Play(app).tell(story)

    with ThreadPoolExecutor(len(STORIES)) as pool:
        yield {s["name"]: pool.submit(tell, s) for s in STORIES if not outside.lacks(s)}


@pytest.mark.parametrize("story", STORIES, ids=lambda s: str(s["name"]))
def test_story(story: dict[str, Any], told: dict[str, Future[None]]) -> None:
    if missing := outside.lacks(story):
        pytest.skip(f"Python has no {missing}")
    try:
        told[story["name"]].result()
    except outside.Untrue as err:
        pytest.fail(f"{story['says']}\n{err}", pytrace=False)


@pytest.mark.parametrize("feature", [f for f in outside.features() if f["python"]], ids=lambda f: str(f["id"]))
def test_the_table_names_what_there_is(feature: dict[str, Any]) -> None:
    if extra := re.fullmatch(r"pawl\[(\w+)\]", str(feature["python"])):
        assert f"\n{extra[1]} = [" in (Path(__file__).parents[1] / "pyproject.toml").read_text()
        return
    module, *names = str(feature["python"]).split(".")
    found: Any = importlib.import_module(module)
    for at, name in enumerate(names):
        if not hasattr(found, name) and isinstance(found, type):
            assert name in found.__annotations__, feature["python"]
            return
        if not hasattr(found, name):
            importlib.import_module(".".join([module, *names[: at + 1]]))
        found = getattr(found, name)
