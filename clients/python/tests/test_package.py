"""The package as shipped."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.skipif(importlib.util.find_spec("build") is None or importlib.util.find_spec("wheel") is None, reason="needs python3-build and python3-wheel")
def test_a_wheel_builds_and_runs(tmp_path: Path) -> None:
    source, wheels, installed = tmp_path / "source", tmp_path / "wheels", tmp_path / "installed"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "tests"))
    subprocess.run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels, source], check=True, capture_output=True)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    assert (installed / "pawl" / "py.typed").exists() and (installed / "pawl" / "v1" / "task_pb2.pyi").exists()
    assert any("Apache License" in path.read_text() for path in installed.glob("*.dist-info/**/LICENSE"))
    command = [sys.executable, "-W", "error", "-m", "pawl.cli", "--help"]
    said = subprocess.run(command, env=dict(os.environ, PYTHONPATH=str(installed)), cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout.startswith("usage: pawl-worker")


def has_generators() -> bool:
    """Reports whether the protobuf code can be regenerated here identically: other versions generate it differently."""
    if not (shutil.which("protoc") and shutil.which("protoc-gen-mypy")):
        return False
    return "3.21." in subprocess.run(["protoc", "--version"], capture_output=True, text=True).stdout


@pytest.mark.skipif(not has_generators(), reason="needs Debian's protobuf-compiler 3.21 and mypy-protobuf")
def test_the_generated_code_is_what_the_protos_say(tmp_path: Path) -> None:
    subprocess.run([ROOT / "generate.sh", tmp_path], check=True)
    made, kept = tmp_path / "pawl" / "v1", ROOT / "src" / "pawl" / "v1"
    files = {path.name: path.read_text() for path in made.iterdir()}
    assert files == {path.name: path.read_text() for path in kept.iterdir() if path.is_file()}
