"""The app that test_kills.py runs in worker processes. It records each run in a file."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time

import pawl

app = pawl.App()


def note(text: str) -> None:
    """Appends a line, in one write."""
    with open(os.environ["NOTES"], "a", encoding="utf-8") as notes:
        notes.write(f"{text}\n")


def noted() -> list[str]:
    """Returns the lines so far."""
    with open(os.environ["NOTES"], encoding="utf-8") as notes:
        return notes.read().split()


@app.task("note")
def note_number(n: int) -> int:
    """Takes some time, and records that it ran."""
    time.sleep(0.01)
    note(str(n))
    return n


@app.task("anote")
async def anote_number(n: int) -> int:
    """Like note_number, as a coroutine."""
    await asyncio.sleep(0.01)
    note(str(n))
    return n


@app.task("steps")
def steps() -> list[str]:
    """Kills its own process after the first step."""
    claim = pawl.current()

    def run(name: str) -> str:
        note(name)
        return name

    first = claim.step("one", lambda: run("one"))
    # The records show which run is the first. Its attempt does not count if the lease expires while the broker is down, so the next run may
    # have its number.
    if "killed" not in noted():
        note("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    return [first, claim.step("two", lambda: run("two"))]


@app.task("who")
def who() -> int:
    """Returns the process that runs it."""
    time.sleep(0.2)
    return os.getpid()


@app.task("slow")
def slow(seconds: float) -> str:
    """Records when it starts and when it ends."""
    note("begins")
    time.sleep(seconds)
    note("ends")
    return "done"


@app.task("forks")
def forks() -> int | None:
    """Forks a process, ends it with SIGTERM, and returns its exit status."""
    context = multiprocessing.get_context("fork")
    began = context.Event()

    def run() -> None:
        began.set()
        time.sleep(30)

    child = context.Process(target=run)
    child.start()
    assert began.wait(10)  # Python forgets a signal that comes during the fork
    child.terminate()
    child.join(5)
    status = child.exitcode
    child.kill()
    return status
