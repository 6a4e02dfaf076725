"""The command pawl-worker, which runs the tasks of an app in one or several processes."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import importlib
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

from pawl import _signals, errors
from pawl._supervisor import Supervisor
from pawl.app import App
from pawl.worker import Worker

_USAGE = 2  # the customary exit status for a usage error


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command and ends the process with its exit status: 0 after a drain, 1 if the broker refused the worker or did not confirm
    how tasks ended, 2 for a usage error."""
    status = _main(arguments)
    # What follows is how the interpreter ends, except for the last step: it would wait for what handlers and gRPC have left in other
    # threads, and one that it has stopped may hold a lock for which it would wait forever. The first two functions are private and have no
    # public equivalent.
    join_threads, run_exit_functions = getattr(threading, "_shutdown", None), getattr(atexit, "_run_exitfuncs", None)
    if join_threads is None or run_exit_functions is None:
        sys.exit(status)
    join_threads()
    run_exit_functions()
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # for example, nothing reads the pipe any more
            stream.flush()
    os._exit(status)


def _main(arguments: Sequence[str] | None) -> int:
    parser = _parser()
    args = parser.parse_args(arguments)
    logging.basicConfig(level=args.log_level.upper(), format="%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s")
    if args.processes < 1:
        parser.error(f"argument --processes: is {args.processes}, want 1 or more")
    if args.processes > 1:
        command = list(sys.argv[1:] if arguments is None else arguments)
        return Supervisor([sys.executable, "-m", "pawl.cli", *command, "--processes", "1", "--supervised"], args.processes, args.drain_timeout).run()
    try:
        app = _load(args.app)
    except (ImportError, AttributeError, TypeError) as err:
        if _is_in_program(err):
            traceback.print_exception(err)
        print(f"pawl-worker: {err}", file=sys.stderr)
        return _USAGE
    try:
        worker = Worker(
            app,
            args.queues,
            concurrency=args.concurrency,
            lease=args.lease,
            drain_timeout=args.drain_timeout,
            name=args.name,
        )
    except errors.InvalidArgumentError as err:
        print(f"pawl-worker: {err}", file=sys.stderr)
        return _USAGE
    return _run(worker, supervised=args.supervised)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="pawl-worker",
        description="Runs the tasks of an app until SIGTERM or SIGINT, then drains; a second signal ends it immediately. The broker's address "
        "and the credentials come from the app or from the environment (PAWL_SERVER, PAWL_TOKEN and so on).",
    )
    parser.add_argument("app", help="the module and the variable of the App, such as tasks:app; without a variable, app")
    parser.add_argument(
        "-Q", "--queues", default="default", help="queues with weights, mail=7,default=3, or in strict order, urgent,default (default: default)"
    )
    parser.add_argument("-c", "--concurrency", type=int, default=10, help="tasks that each process may run at a time (default: 10)")
    parser.add_argument(
        "--processes", type=int, default=1, help="number of processes, each with its own connection; a process that exits is restarted (default: 1)"
    )
    parser.add_argument("--lease", type=float, help="length of the lease in seconds, 1 to 43200 (default: the queue's)")
    parser.add_argument("--drain-timeout", type=float, default=25.0, help="seconds that running tasks may take to finish (default: 25)")
    parser.add_argument("--name", default="", help="name of the worker in attempt logs (default: host/pid)")
    parser.add_argument(
        "--log-level", "--loglevel", type=str.lower, default="info", choices=["debug", "info", "warning", "error"], help="minimum level of log messages (default: info)"
    )
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    return parser


def _load(target: str) -> App:
    module, _, name = target.partition(":")
    sys.path.insert(0, os.getcwd())
    app: Any = importlib.import_module(module)
    for part in (name or "app").split("."):
        app = getattr(app, part)
    if not isinstance(app, App):
        raise TypeError(f"{target} is {app!r}, not a pawl.App")
    return app


def _is_in_program(err: BaseException) -> bool:
    """Reports whether an error comes from the code of the program, whose author needs to know where."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(err.__traceback__)]
    return any(name.partition(".")[0] not in ("__main__", "pawl", "importlib") for name in names)


def _run(worker: Worker, *, supervised: bool) -> int:
    signals = (signal.SIGTERM, signal.SIGINT)
    for each in signals:
        signal.signal(each, _signals.stopper(worker.stop, *signals))
    if supervised:
        threading.Thread(target=_stop_with_parent, args=(worker,), daemon=True).start()
    try:
        worker.run()
    except errors.PawlError as err:
        print(f"pawl-worker: {err}", file=sys.stderr)
        return 1
    return 0


def _stop_with_parent(worker: Worker) -> None:
    """Drains when the supervisor is gone, however it ended, since the other end of the pipe is then closed."""
    while os.read(0, 1):
        pass
    worker.stop()


if __name__ == "__main__":
    main()
