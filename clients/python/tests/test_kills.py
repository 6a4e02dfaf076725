"""Real processes under kill -9: nothing that was enqueued is lost, and every task runs at least once.

PAWL_KILLS sets the number of kills.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import pawl
from pawl import testing

from waiting import eventually

KILLS = int(os.environ.get("PAWL_KILLS", "6"))  # of workers; half as many of the broker

Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def own(binary: str) -> Iterator[testing.Broker]:
    """A broker that the test can kill."""
    with testing.Broker(binary) as running:
        yield running


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """The file in which workers record what they run."""
    return tmp_path / "notes"


@pytest.fixture
def start(own: testing.Broker, notes: Path) -> Iterator[Start]:
    """Starts worker processes, which end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    here = Path(__file__).parent

    def run(*arguments: str, stderr: int | None = None, program: str = "") -> subprocess.Popen[bytes]:
        environment = dict(os.environ, PAWL_SERVER=own.address, NOTES=str(notes), PYTHONPATH=f"{here.parent / 'src'}:{here}")
        command = [sys.executable, "-m", "pawl.cli", "kill_app:app", *arguments]
        if program:
            command = [sys.executable, "-c", program]
        started.append(subprocess.Popen(command, env=environment, stderr=stderr))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()


def lines(notes: Path) -> list[str]:
    """Returns what the workers have recorded."""
    return notes.read_text().split() if notes.exists() else []


def test_kills_of_workers_and_broker_lose_no_task(own: testing.Broker, start: Start, notes: Path) -> None:
    with pawl.App(own.address) as app:
        workers = [start("--concurrency", "8", "--lease", "1"), start("--concurrency", "8", "--lease", "1")]
        refs: list[pawl.Ref[object]] = []
        for turn in range(KILLS):
            refs += app.enqueue_many(app.call(("note", "anote")[n % 2], {"n": len(refs) + n}) for n in range(300))
            eventually(lambda: len(lines(notes)) > 250 * turn)  # some of them are running right now
            workers[turn % 2].kill()
            workers[turn % 2] = start("--concurrency", "8", "--lease", "1")
            if turn % 2:
                own.kill()
                own.start()
        results = [ref.result(60) for ref in refs]
        assert results == list(range(300 * KILLS))
        assert set(lines(notes)) == {str(n) for n in range(300 * KILLS)}
        outcomes = {attempt.outcome for ref in refs for attempt in ref.info().attempt_log}
        assert outcomes & {"lease_lost", "leaderless"}  # the kills hit running tasks


def test_a_kill_behind_a_step_does_not_repeat_it(own: testing.Broker, start: Start, notes: Path) -> None:
    with pawl.App(own.address) as app:
        first = start("--lease", "5")
        ref = app.call("steps").enqueue()
        assert first.wait(30) == -signal.SIGKILL
        own.kill()  # what was recorded is on its disk
        own.start()
        start("--lease", "5")
        assert ref.result(60) == ["one", "two"]
        assert lines(notes) == ["one", "killed", "two"]


RUN = "import kill_app, pawl; pawl.Worker(kill_app.app, concurrency=1).run(); kill_app.note('after')"
HANDLES = "import signal; signal.signal(signal.SIGTERM, lambda *_: w.stop()); import kill_app, pawl; w = pawl.Worker(kill_app.app, concurrency=1); w.run()"


@pytest.mark.parametrize(("program", "after"), [("", []), (RUN, ["after"]), (HANDLES, [])])
def test_sigterm_drains(own: testing.Broker, start: Start, notes: Path, program: str, after: list[str]) -> None:
    with pawl.App(own.address) as app:
        worker = start("--concurrency", "1", program=program)
        first, second = app.call("slow", {"seconds": 1.0}).enqueue(), app.call("slow", {"seconds": 1.0}).enqueue()
        eventually(lambda: lines(notes) == ["begins"])
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
        assert lines(notes) == ["begins", "ends", *after]
        assert first.result(0) == "done"
        assert (second.info().state, second.info().failures, second.info().crashes) == ("ready", 0, 0)


def test_the_process_ends_while_the_broker_is_away(own: testing.Broker, start: Start) -> None:
    own.kill()
    worker = start(stderr=subprocess.PIPE)
    assert worker.stderr is not None
    with worker.stderr as said:
        assert any(b"reconnecting" in line for line in said)  # it takes signals, and pauses
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0


@pytest.mark.parametrize("program", ["", RUN])
def test_a_second_signal_ends_at_once(own: testing.Broker, start: Start, notes: Path, program: str) -> None:
    with pawl.App(own.address) as app:
        worker = start(program=program)
        app.call("slow", {"seconds": 60.0}).enqueue()
        eventually(lambda: lines(notes) == ["begins"])
        while worker.poll() is None:
            worker.send_signal(signal.SIGTERM)
            time.sleep(0.05)
        assert worker.returncode == -signal.SIGTERM
        assert lines(notes) == ["begins"]


@pytest.mark.parametrize("program", ["", RUN])
def test_sigterm_ends_a_process_that_a_handler_has_forked(own: testing.Broker, start: Start, program: str) -> None:
    with pawl.App(own.address) as app:
        start(program=program)
        assert app.call("forks").enqueue().result(30) == -signal.SIGTERM


def test_processes_share_the_work_and_are_started_again(own: testing.Broker, start: Start) -> None:
    with pawl.App(own.address) as app:
        supervisor = start("--processes", "3", "--concurrency", "1", "--lease", "1")

        def pids() -> set[object]:
            return {ref.result(60) for ref in app.enqueue_many(app.call("who") for _ in range(9))}

        eventually(lambda: len(pids()) == 3)
        first = pids()
        victim = next(iter(first))
        assert isinstance(victim, int)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(new := pids()) == 3 and victim not in new)
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(30) == 0


def test_processes_drain_when_their_supervisor_is_killed(own: testing.Broker, start: Start, notes: Path) -> None:
    with pawl.App(own.address) as app:
        supervisor = start("--processes", "2", "--concurrency", "1")
        pid = app.call("who").enqueue().result(30)
        ref = app.call("slow", {"seconds": 1.0}).enqueue()
        eventually(lambda: "begins" in lines(notes))
        supervisor.kill()
        assert ref.result(30) == "done"
        assert ref.info().crashes == 0
        assert isinstance(pid, int)
        eventually(lambda: not alive(pid))


def alive(pid: int) -> bool:
    """Reports whether a process is running. A zombie has ended."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere:app"], "nowhere"),
        (["kill_app:nothing"], "nothing"),
        (["kill_app:note"], "not a pawl.App"),
        (["kill_app", "--queues", "a=x"], "queues"),
        (["kill_app", "--processes", "0"], "--processes"),
        (["kill_app", "--processes", "2", "--concurrency", "0"], "concurrency"),
    ],
)
def test_wrong_use(arguments: list[str], says: str) -> None:
    here = Path(__file__).parent
    environment = dict(os.environ, PYTHONPATH=f"{here.parent / 'src'}:{here}")
    done = subprocess.run([sys.executable, "-m", "pawl.cli", *arguments], env=environment, capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert says in done.stderr


EARLY = """
import atexit, kill_app, sys
atexit.register(kill_app.note, "early")
from pawl import cli
{}
cli.main(["kill_app:app"])
"""


@pytest.mark.parametrize("before", ["", "sys.stdout.close()", "sys.stdout = None", "del atexit._run_exitfuncs"])
def test_functions_for_the_exit_run_even_if_registered_early(start: Start, notes: Path, before: str) -> None:
    worker = start(stderr=subprocess.PIPE, program=EARLY.format(before))
    assert worker.stderr is not None
    with worker.stderr as said:
        assert any(b"stream open" in line for line in said)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30) == 0
    assert lines(notes) == ["early"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("import missing_module", True),
        ("None.app", True),
        ("", False),  # has no app
        ("app = 1", False),
        (None, False),  # there is no such module
    ],
)
def test_errors_of_the_module_say_where(text: str | None, where: bool, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "broken.py").write_text(text + "\n")
    environment = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[1] / "src"))
    done = subprocess.run([sys.executable, "-m", "pawl.cli", "broken"], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.splitlines()[-1].startswith("pawl-worker: ")
    assert ('broken.py", line 1' in done.stderr) == ("Traceback" in done.stderr) == where
