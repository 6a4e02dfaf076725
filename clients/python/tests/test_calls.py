"""The requests of calls, field by field, and how often each is made. No broker: each call gets the test's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pawl
from pawl import _claimed, _connection, _convert, _rpc, _steps
from pawl._kept import Kept
from pawl.v1 import access_pb2, once_pb2, worker_pb2

RUN = once_pb2.BeginOnceResponse(state=once_pb2.ONCE_STATE_RUN)


class Scripted(_rpc.Caller):
    """Gives each call the next answer, or raises it."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(_connection.Connection("localhost", token=None, namespace="", tls=None, plaintext=False), retry_for=0)
        self.answers = list(answers)
        self.requests: list[Any] = []

    def _perform(self, action: _rpc.Action, deadline: float) -> Any:
        if not isinstance(action, _rpc.Send):
            return super()._perform(action, deadline)
        self.requests.append(action.request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def claim_of(caller: Scripted) -> Any:
    """Returns a claim whose calls the caller makes."""
    holder = SimpleNamespace(caller=caller, extended=lambda sent: None, lost=lambda reason: None)
    return SimpleNamespace(
        id="id", type="t", token="token", lease=90.0, interrupted=None, check=lambda: None, _holder=holder, _state=_claimed.State(Kept())
    )


@pytest.mark.parametrize("ttl", [None, 3600, timedelta(hours=2)])
def test_a_once_key_is_begun_and_finished_once(ttl: _convert.Seconds | None) -> None:
    caller = Scripted(RUN, once_pb2.FinishOnceResponse())
    ran: list[int] = []

    def fn() -> list[int]:
        ran.append(1)
        return ran

    assert caller.run(_steps.once(claim_of(caller), "k", fn, ttl)) == [1]
    finish = once_pb2.FinishOnceRequest(task_id="id", claim_token="token", key="k", result=b"[1]")
    if ttl is not None:
        finish.ttl.CopyFrom(_convert.duration("ttl", ttl))
    assert caller.requests == [once_pb2.BeginOnceRequest(task_id="id", claim_token="token", key="k"), finish] and ran == [1]


@pytest.mark.parametrize(
    "answer, again",
    [
        (once_pb2.AbandonOnceResponse(), True),
        (pawl.StaleClaimError("gone"), True),  # the end of the claim has released the key
        (pawl.UnavailableError("no answer"), False),
        (pawl.InternalError("?"), False),
    ],
)
def test_a_once_key_runs_again_only_if_it_is_known_to_be_free(answer: Any, again: bool) -> None:
    caller = Scripted(RUN, answer, RUN, once_pb2.FinishOnceResponse())
    claim, ran = claim_of(caller), []

    def fn() -> None:
        ran.append(1)
        if len(ran) == 1:
            raise ConnectionError("bank")

    with pytest.raises(ConnectionError):
        caller.run(_steps.once(claim, "k", fn, None))
    assert caller.requests[1:] == [once_pb2.AbandonOnceRequest(task_id="id", claim_token="token", key="k")]
    if again:
        caller.run(_steps.once(claim, "k", fn, None))
    else:
        with pytest.raises(pawl.UnavailableError):
            caller.run(_steps.once(claim, "k", fn, None))
    assert (len(ran), len(caller.requests)) == ((2, 4) if again else (1, 2))


def test_a_checkpoint_extends_the_lease_by_its_length() -> None:
    caller = Scripted(worker_pb2.ExtendResponse())
    caller.run(_steps.save(claim_of(caller), lambda kept: kept.with_own(b"7")))
    want = worker_pb2.ExtendRequest(task_id="id", claim_token="token", checkpoint=b"7")
    want.lease.seconds = 90
    assert caller.requests == [want]


def test_a_call_that_succeeds_allows_another_repeat() -> None:
    caller = Scripted(access_pb2.WhoAmIResponse())
    for _ in range(10):
        caller._budget.take(caller._budget._last)
    caller.run(caller.call(_rpc.WHO_AM_I, access_pb2.WhoAmIRequest()))
    assert caller._budget._tokens > 0


@pytest.mark.parametrize(
    "variable, shown, given",
    [
        ("PAWL_SERVER", lambda made: made.server == ("localhost", 1), {"server": "localhost:2"}),
        ("PAWL_TOKEN", lambda made: ("authorization", "Bearer t") in made.metadata(), {"token": "other"}),
        ("PAWL_TOKEN_FILE", lambda made: ("authorization", "Bearer from-file") in made.metadata(), {"token": "other"}),
        ("PAWL_NAMESPACE", lambda made: ("pawl-namespace", "shop") in made.metadata(), {"namespace": "other"}),
        ("PAWL_TLS_CA", lambda made: made._tls == _connection.TLS(ca_file="ca"), {"tls": _connection.TLS("other")}),
        ("PAWL_CLIENT_CERT", lambda made: made._tls == _connection.TLS(cert_file="cert"), {"tls": _connection.TLS("other")}),
        ("PAWL_CLIENT_KEY", lambda made: made._tls == _connection.TLS(key_file="key"), {"tls": _connection.TLS("other")}),
    ],
)
def test_each_variable_of_the_environment_counts_unless_the_program_says_otherwise(
    variable: str, shown: Callable[[Any], bool], given: Mapping[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_connection, "_read", lambda tls: None)
    (tmp_path / "token").write_text("from-file\n")
    values = {"PAWL_SERVER": "localhost:1", "PAWL_TOKEN": "t", "PAWL_TOKEN_FILE": str(tmp_path / "token"), "PAWL_NAMESPACE": "shop"}
    values |= {"PAWL_TLS_CA": "ca", "PAWL_CLIENT_CERT": "cert", "PAWL_CLIENT_KEY": "key"}

    def made(environ: Mapping[str, str], given: Mapping[str, Any]) -> Any:
        arguments = {name: given.get(name) for name in ("server", "token", "namespace", "tls")}
        return _connection.from_environment(**arguments, plaintext=False, environ=environ)

    environ = {variable: values[variable]}
    assert [shown(made(environ, {})), shown(made(environ, given)), shown(made({}, {}))] == [True, False, False]
