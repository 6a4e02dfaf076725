"""The README's first task works as it stands."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from pawl import testing

ROOT = Path(__file__).parents[1]


def test_the_first_task(binary: str, tmp_path: Path) -> None:
    code, commands = re.findall(r"```\w+\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[:2]
    worker_command = commands.splitlines()[0].partition("#")[0].split()
    assert worker_command[0] == "pawl-worker"
    with testing.Broker(binary) as broker:
        assert "127.0.0.1:7295" in code  # where a server is by default; the test's is elsewhere
        (tmp_path / "tasks.py").write_text(code.replace("127.0.0.1:7295", broker.address))
        environment = dict(os.environ, PYTHONPATH=str(ROOT / "src"))
        worker = subprocess.Popen([sys.executable, "-m", "pawl.cli", *worker_command[1:]], cwd=tmp_path, env=environment)
        try:
            said = subprocess.run(
                [sys.executable, "tasks.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=True
            )
            assert said.stdout == "welcome, a@example.com\n"
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
