"""The programs of docs/python.md and of the README run unchanged."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pawl import testing

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT.parents[1] / "docs" / "python.md").read_text()
README = (ROOT / "README.md").read_text()

DRIVERS = {
    "flask": """
from web import web
client = web.test_client()
answer = client.post("/signups", json={"email": "a@example.com"})
print(answer.status_code, client.get("/signups/" + answer.json["task"]).json)
""",
    "fastapi": """
import asyncio, api
from tasks import app
answer = asyncio.run(api.sign_up("a@example.com"))
print(202 if "/signups" in [route.path for route in api.api.routes] else 404, {"state": app.ref(answer["task"]).info().state})
""",
    "django": """
import django, tasks
from django.conf import settings
settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=[], DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}})
django.setup()
refs = []
enqueue = tasks.welcome.enqueue
tasks.welcome.enqueue = lambda *args: refs.append(enqueue(*args))
from django.test import RequestFactory
from views import sign_up
answer = sign_up(RequestFactory().post("/signups", {"email": "a@example.com"}))
print(answer.status_code, {"state": refs[0].info().state})
""",
}


def programs_of(page: str, directory: Path) -> set[str]:
    """Writes the programs of a page into a directory. They take the server's address from the environment."""
    blocks = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.DOTALL))
    assert 'pawl.App("127.0.0.1:7295")' in blocks["tasks.py"]  # the default address of a server
    for name, code in blocks.items():
        (directory / name).write_text(code.replace('pawl.App("127.0.0.1:7295")', "pawl.App()"))
    return set(blocks)


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory with the programs of the guide."""
    names = programs_of(GUIDE, tmp_path)
    assert names == {"tasks.py", "web.py", "api.py", "views.py", "conftest.py", "test_tasks.py"}
    return tmp_path


def run(*arguments: str, cwd: Path, **environment: str) -> str:
    """Runs Python, and returns its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=dict(os.environ, PYTHONPATH=str(ROOT / "src"), **environment),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("page", [README, GUIDE], ids=["README", "guide"])
def test_the_first_task(broker: testing.Broker, tmp_path: Path, page: str) -> None:
    programs_of(page, tmp_path)
    (command,) = re.findall(r"^pawl-worker (tasks:app .*?) *#", page, re.MULTILINE)
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"), PAWL_SERVER=broker.address)
    worker = subprocess.Popen([sys.executable, "-m", "pawl.cli", *command.split()], cwd=tmp_path, env=environment)
    try:
        assert run("tasks.py", cwd=tmp_path, PAWL_SERVER=broker.address) == "welcome, a@example.com\n"
    finally:
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


@pytest.mark.parametrize("framework", DRIVERS)
def test_web_frameworks(broker: testing.Broker, programs: Path, framework: str) -> None:
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"needs python3-{framework}")
    said = run("-c", DRIVERS[framework], cwd=programs, PAWL_SERVER=broker.address)
    assert said == "202 {'state': 'ready'}\n"


def test_tests_of_tasks(binary: str, programs: Path) -> None:
    assert "1 passed" in run("-m", "pytest", cwd=programs, PAWL_BINARY=binary)


def test_the_guide_names_all_options() -> None:
    import pawl

    table = GUIDE[GUIDE.index("| option |") : GUIDE.index("Durations are seconds")]
    named = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line)))
    assert named == set(pawl.Options.__annotations__)


@pytest.mark.parametrize(
    ("page", "call", "says"),
    [("celery", "send_receipt.options(delay=1).enqueue(42)", "receipt 42"), ("sqs", 'hello.enqueue("you")', "hello, you")],
)
def test_coming_from(broker: testing.Broker, page: str, call: str, says: str, tmp_path: Path) -> None:
    """The programs of the migration guides."""
    text = (ROOT.parents[1] / "docs" / f"coming-from-{page}.md").read_text()
    assert programs_of(text, tmp_path) == {"tasks.py"}
    assert call + ".result(timeout=10)" in text
    driver = f"import tasks; from pawl.testing import working\nwith working(tasks.app, 'mail'): print(tasks.{call}.result(timeout=10))"
    assert run("-c", driver, cwd=tmp_path, PAWL_SERVER=broker.address).strip() == says
