"""Tokens, TLS and client certificates."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

import pytest

import pawl
from pawl import _work, testing
from pawl.testing import working

Pawl = Callable[..., str]


@pytest.fixture(scope="module")
def directory(binary: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with certificates of a server and a client, and of an authority that signed neither."""
    out = tmp_path_factory.mktemp("access")
    for arguments in (
        f"ca --out {out}/ca",
        f"ca --out {out}/other",
        f"server n1 --ca {out}/ca --out {out} --host 127.0.0.1",
        f"client billing --ca {out}/ca --out {out}",
        f"client payroll --ca {out}/ca --out {out}",
        f"client stranger --ca {out}/ca --out {out}",
    ):
        subprocess.run([binary, "cert", *arguments.split()], check=True, capture_output=True)
    return out


@pytest.fixture(scope="module")
def guarded(binary: str, directory: Path) -> Iterator[testing.Broker]:
    """A broker that requires tokens, over TLS."""
    flags = f"--auth --admin-token-file {directory}/admin --tls-cert {directory}/n1.crt --tls-key {directory}/n1.key --client-ca {directory}/ca/ca.crt"
    with testing.Broker(binary, flags=tuple(flags.split())) as running:
        yield running


@pytest.fixture(scope="module")
def command(binary: str, directory: Path, guarded: testing.Broker) -> Pawl:
    """Runs the command line as the administrator."""

    def run(*arguments: str) -> str:
        environment = dict(
            os.environ, PAWL_SERVER=f"https://{guarded.address}", PAWL_TLS_CA=f"{directory}/ca/ca.crt", PAWL_TOKEN_FILE=f"{directory}/admin"
        )
        done = subprocess.run([binary, *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


@pytest.fixture
def secure(guarded: testing.Broker, directory: Path) -> Callable[..., pawl.App]:
    """Creates apps that trust the broker's authority."""

    def make(token: object = None, **settings: object) -> pawl.App:
        settings = {"tls": pawl.TLS(f"{directory}/ca/ca.crt"), "retry_for": 0, **settings}
        return pawl.App(f"https://{guarded.address}", token=token, **settings)  # type: ignore[arg-type]

    return make


def test_a_token_lets_in_and_says_what_for(secure: Callable[..., pawl.App], command: Pawl, queue: str) -> None:
    token = command("token", "add", queue, "--role", "produce", "--queue", f"{queue}*")
    with secure(token) as app:
        assert app.call("t", queue=queue).enqueue().id
        with pytest.raises(pawl.PermissionDeniedError):
            app.call("t", queue="another").enqueue()
        with pytest.raises(pawl.PermissionDeniedError):
            app.task("t")(lambda: None)
            pawl.Worker(app, queue).run()
    for bad in (None, "pawl_wrong"):
        with secure(bad) as app, pytest.raises(pawl.UnauthenticatedError):
            app.call("t", queue=queue).enqueue()


def test_a_token_that_is_exchanged_is_taken_up(secure: Callable[..., pawl.App], directory: Path, queue: str) -> None:
    tokens: list[str] = []
    with secure(lambda: tokens[-1]) as app:
        with pytest.raises(pawl.UnauthenticatedError, match="no token: list index"):
            app.call("t", queue=queue).enqueue()
        tokens.append("pawl_wrong")
        with pytest.raises(pawl.UnauthenticatedError):
            app.call("t", queue=queue).enqueue()
        tokens.append((directory / "admin").read_text().strip())
        assert app.call("t", queue=queue).enqueue().id


def test_the_environment_has_token_and_authority(
    guarded: testing.Broker, directory: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    monkeypatch.setenv("PAWL_SERVER", f"https://{guarded.address}")
    monkeypatch.setenv("PAWL_TOKEN_FILE", f"{directory}/admin")
    monkeypatch.setenv("PAWL_TLS_CA", f"{directory}/ca/ca.crt")
    with pawl.App() as app:
        assert app.call("t", queue=queue).enqueue().id


def test_a_client_certificate_lets_in(secure: Callable[..., pawl.App], directory: Path, command: Pawl, queue: str) -> None:
    command("token", "add", queue, "--queue", "*", "--role", "produce", "--certificate", "uri:pawl://client/billing")
    tls = pawl.TLS(f"{directory}/ca/ca.crt", f"{directory}/billing.crt", f"{directory}/billing.key")
    with secure(tls=tls) as app:
        assert app.call("t", queue=queue).enqueue().id


def test_certificates_that_are_replaced_are_taken_up(secure: Callable[..., pawl.App], directory: Path, command: Pawl, queue: str) -> None:
    command("token", "add", queue, "--queue", "*", "--role", "produce", "--role", "consume", "--certificate", "uri:pawl://client/payroll")
    files = [directory / f"{queue}.{kind}" for kind in ("ca", "crt", "key")]

    def put(*names: str) -> None:
        for file, name in zip(files, names):
            file.write_bytes((directory / name).read_bytes())

    put("other/ca.crt", "stranger.crt", "stranger.key")
    with secure(tls=pawl.TLS(*map(str, files))) as app:
        with pytest.raises(pawl.UnavailableError):
            app.call("t", queue=queue).enqueue()
        put("ca/ca.crt")
        with pytest.raises(pawl.UnauthenticatedError):
            app.call("t", queue=queue).enqueue()
        put("ca/ca.crt", "payroll.crt")  # not yet its key: the pair before is used
        with pytest.raises(pawl.UnauthenticatedError):
            app.call("t", queue=queue).enqueue()
        put("ca/ca.crt", "payroll.crt", "payroll.key")
        assert app.call("t", queue=queue).enqueue().id
        channel, _ = app._caller.connection.channel()
        files[2].unlink()
        assert app.call("t", queue=queue).enqueue().id
        assert app._caller.connection.channel()[0] is channel
        ran = threading.Event()
        app.task("t")(ran.set)
        put("ca/ca.crt", "payroll.crt", "payroll.key")
        with working(app, queue):
            assert ran.wait(20)
            put("ca/ca.crt", "payroll.crt", "payroll.key")  # the stream goes on
            ran.clear()
            app.call("t", queue=queue).enqueue()
            assert ran.wait(20)


def test_a_server_of_another_authority_is_not_trusted(secure: Callable[..., pawl.App], directory: Path, guarded: testing.Broker) -> None:
    token = (directory / "admin").read_text().strip()
    with secure(token, tls=pawl.TLS(f"{directory}/other/ca.crt")) as app, pytest.raises(pawl.UnavailableError):
        app.call("t").enqueue()
    with pawl.App(guarded.address, token=token, retry_for=0) as plain, pytest.raises(pawl.UnavailableError):
        plain.call("t").enqueue()


@pytest.mark.parametrize(
    "files", [("nowhere",), ("n1.key",), (None, "both"), (None, None, "billing.key"), (None, "billing.crt", "n1.key"), (None, "billing.key", "billing.key")]
)
def test_files_that_do_not_fit_are_refused_at_once(directory: Path, files: tuple[str | None, ...]) -> None:
    (directory / "both").write_text((directory / "billing.crt").read_text() + (directory / "billing.key").read_text())
    tls = pawl.TLS(*(file and f"{directory}/{file}" for file in files))
    with pytest.raises(pawl.InvalidArgumentError) as refused:
        pawl.App("https://127.0.0.1:1", tls=tls)
    assert refused.value.field == "tls"


def test_a_worker_whose_token_is_revoked_ends(
    secure: Callable[..., pawl.App], command: Pawl, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_work, "_UNWANTED_FOR", 0.5)
    token = command("token", "add", queue, "--queue", "*", "--role", "produce", "--role", "consume")
    ran = threading.Event()
    with secure(token, retry_for=30) as app:
        app.task("t")(ran.set)
        with pytest.raises(pawl.UnauthenticatedError), working(app, queue) as worker:
            app.call("t", queue=queue).enqueue()
            assert ran.wait(20)
            command("token", "revoke", queue)
            assert worker._run._closing.wait(30)  # without stop being called


def test_a_namespace_has_tasks_of_its_own(secure: Callable[..., pawl.App], directory: Path, command: Pawl, queue: str) -> None:
    command("ns", "add", queue)
    token = (directory / "admin").read_text().strip()
    with secure(token, namespace=queue) as inside, secure(token) as outside:
        ref = inside.call("t", queue=queue).enqueue()
        assert ref.info().id == ref.id
        with pytest.raises(pawl.NotFoundError):
            outside.ref(ref.id).info()
