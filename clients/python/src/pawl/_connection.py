"""Connects to a broker or to the nodes of a cluster. It knows addresses and channels, not calls."""

from __future__ import annotations

import atexit
import contextlib
import ipaddress
import os
import random
import ssl
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Union

import grpc

from pawl import errors
from pawl._limits import MAX_MESSAGE

DEFAULT_SERVER = "127.0.0.1:7295"
DEFAULT_PORT = "7295"
HEALTH_CHECK = "/grpc.health.v1.Health/Check"
_MAX_ADDRESSES = 32  # more nodes than a client would ever try

Token = Union[str, Callable[[], str], None]

_OPTIONS = (
    ("grpc.max_send_message_length", MAX_MESSAGE),
    ("grpc.max_receive_message_length", MAX_MESSAGE),
    ("grpc.enable_retries", 0),  # _rpc.py decides which calls to retry
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 5_000),  # despite its name, how long one attempt may take
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
)
# A node that hangs closes no connection, but its shards have other leaders after two seconds. Only connections with a call in flight are
# pinged.
_CALL_PINGS = (("grpc.keepalive_time_ms", 2000), ("grpc.keepalive_timeout_ms", 1500))
# A worker's stream is in flight all the time. It has a connection of its own, which the worker probes when it awaits an answer, because
# pings every 2 seconds of 10,000 workers without tasks would take a sixth of a core of the server.
_STREAM_PINGS = (("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000))


@dataclass(frozen=True)
class TLS:
    """The PEM files for a TLS connection. Without ca_file, the system's certificate authorities are trusted. Files that are replaced
    while the program runs are read again."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


class _Pausing:
    """The callers that pause before they use a channel again, and the call that keeps it connecting meanwhile."""

    callers = 0
    call: Any = None


class Connection:
    """The channels to the addresses of one broker or cluster. Calls use one address until it can't be reached; any node of a
    cluster accepts any call. The first call opens the channels, and opens them again in a forked process."""

    def __init__(self, server: str, *, token: Token, namespace: str, tls: TLS | None, plaintext: bool) -> None:
        addresses = [address.strip() for address in server.split(",")]
        if len(addresses) > _MAX_ADDRESSES:
            raise errors.invalid("server", f"{len(addresses)} addresses, at most {_MAX_ADDRESSES} are allowed")
        self._tls = _tls_of(addresses, tls)
        self._pem = None if self._tls is None else _read(self._tls)
        self.server = _server(addresses)
        """As given by the program, for spans."""
        self._targets = [_target(address, encrypted=self._tls is not None or plaintext) for address in addresses]
        random.shuffle(self._targets)  # spreads clients over the nodes of a cluster
        self._token = token
        self.namespace = namespace
        self._lock = threading.Lock()
        self._closed = False  # in forked processes, too
        self._reset()
        _connections.add(self)

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._turn = 0
        self._channels: dict[tuple[str, bool], Any] = {}
        self._pausing: dict[Any, _Pausing] = {}  # by channel
        self._left: weakref.WeakSet[Any] = weakref.WeakSet()  # channels with earlier certificates

    def channel(self, *, stream: bool = False) -> tuple[Any, int]:
        """Returns the channel in use for calls, or for the streams of workers, and a number that identifies the choice for move_on."""
        if self._pid != os.getpid():  # the parent's channels don't work in this process, and its lock may not either
            self._lock = threading.Lock()
            self._reset()
        with self._lock:
            if self._closed:
                raise errors.ClientClosedError("the client was closed")
            self._renew()
            target = self._targets[self._turn % len(self._targets)]
            channel = self._channels.get((target, stream))
            if channel is None:
                channel = self._channels[target, stream] = self._open(target, _OPTIONS + (_STREAM_PINGS if stream else _CALL_PINGS))
            return channel, self._turn

    def _renew(self) -> None:
        """Reads the certificates again if their files have changed, and leaves the channels that use the earlier ones: these end
        with the last call in flight. The caller holds the lock."""
        if self._tls is None or self._pem is None or _stamps(self._tls) == self._pem.stamps:
            return
        with contextlib.suppress(errors.InvalidArgumentError):  # they are being replaced: the next call looks again
            self._pem = _read(self._tls)
            self._left.update(self._channels.values())
            self._channels = {}

    def _open(self, target: str, options: tuple[tuple[str, int], ...]) -> Any:
        if _is_loopback(_split(target.removeprefix("dns:///"))[0]):
            options += (("grpc.enable_http_proxy", 0),)  # a proxy's own loopback is another machine
        if self._tls is None:
            return grpc.insecure_channel(target, options=options)
        assert self._pem is not None
        return grpc.secure_channel(target, _credentials(self._pem), options=options)

    def discard(self, channel: Any) -> None:
        """Closes a channel whose node hangs, which cancels what is in flight there. The next call opens another."""
        with self._lock:
            self._channels = {key: each for key, each in self._channels.items() if each is not channel}
        channel.close()

    def move_on(self, turn: int) -> None:
        """Moves from an address that did not answer to the next one, unless another call has already done so."""
        with self._lock:
            if turn == self._turn:
                self._turn += 1

    @contextlib.contextmanager
    def reconnecting(self, *, stream: bool = False) -> Iterator[None]:
        """Keeps gRPC connecting while the caller pauses: it polls its sockets only while a call waits, or every 5 seconds. A
        subscription to the state of the channel would do, too, but if the channel is closed, its thread ends with a traceback."""
        channel, _ = self.channel(stream=stream)
        with self._lock:
            pausing = self._pausing.setdefault(channel, _Pausing())
            pausing.callers += 1
            if pausing.call is None or pausing.call.done():
                with contextlib.suppress(ValueError):  # the channel has been closed
                    pausing.call = channel.unary_unary(HEALTH_CHECK).future(b"", wait_for_ready=True)
        try:
            yield
        finally:
            with self._lock:
                pausing.callers -= 1
                if pausing.callers == 0:
                    self._pausing.pop(channel, None)
            if pausing.callers == 0 and pausing.call is not None:
                pausing.call.cancel()

    def metadata(self) -> Sequence[tuple[str, str]]:
        """Returns the metadata that identifies the caller. A token that changes while the program runs is used from the next call
        on."""
        out = []
        if self.namespace:
            out.append(("pawl-namespace", self.namespace))
        try:
            token = self._token() if callable(self._token) else self._token
        except Exception as err:  # for example, the file is gone; a worker retries
            raise errors.UnauthenticatedError(f"no token: {err}") from err
        if token:
            out.append(("authorization", f"Bearer {token}"))
        return out

    @property
    def closed(self) -> bool:
        """Reports whether close was called."""
        return self._closed

    def close(self) -> None:
        """Ends the calls in flight, and closes the connections."""
        with self._lock:
            self._closed = True
            channels, self._channels = [*self._channels.values(), *self._left], {}
        if self._pid == os.getpid():
            for channel in channels:
                channel.close()


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Closes what the program left open. Otherwise the interpreter may wait forever for a channel that was connecting: the thread
    that watches it has been stopped by then."""
    for connection in list(_connections):
        if connection._pid == os.getpid():
            connection.close()


def _tls_of(addresses: list[str], tls: TLS | None) -> TLS | None:
    """Strips https:// from the addresses. Either all or none must have it: no call may go out in plaintext just because it went
    to another node."""
    prefix = "https://"
    encrypted = [address for address in addresses if address.startswith(prefix)]
    if not encrypted:
        return tls
    if len(encrypted) < len(addresses):
        raise errors.invalid("server", f"{len(encrypted)} of {len(addresses)} addresses have https://: give it to all or to none")
    for at, address in enumerate(addresses):
        addresses[at] = address[len(prefix) :]
        if "/" in addresses[at] or ":" not in addresses[at]:
            raise errors.invalid("server", f"{address!r} is not https://host:port")
    return tls or TLS()


def _target(address: str, *, encrypted: bool) -> str:
    """Checks "host", "host:port" or "unix:///path", and returns it in gRPC's notation."""
    if address.startswith("unix:"):
        return address
    host, port = _split(address)
    if not host or "/" in host or " " in host or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536:
        raise errors.invalid("server", f"{address!r} is not host:port")
    if not encrypted and not _is_loopback(host):
        raise errors.invalid(
            "server", f"{address!r} is not on this machine: use https://, or plaintext=True for a network that you trust"
        )
    return f"dns:///[{host}]:{port}" if ":" in host else f"dns:///{host}:{port}"


def _server(addresses: Sequence[str]) -> tuple[str, int]:
    """Returns the host and the port, or for a socket its path. With several addresses it returns ("", 0)."""
    if len(addresses) != 1:
        return "", 0
    if addresses[0].startswith("unix:"):
        return addresses[0], 0
    host, port = _split(addresses[0])
    return host, int(port) if port.isascii() and port.isdigit() else 0


def _split(address: str) -> tuple[str, str]:
    if address.startswith("["):
        host, _, rest = address[1:].partition("]")
        return host, rest[1:] if rest.startswith(":") else DEFAULT_PORT
    if address.count(":") == 1:
        host, _, port = address.partition(":")
        return host, port
    return address, DEFAULT_PORT


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class _PEM:
    """The contents of the files of a TLS."""

    stamps: object
    ca: bytes | None
    cert: bytes | None
    key: bytes | None


def _stamps(tls: TLS) -> list[tuple[int, int, int] | None]:
    """Returns what changes when a file is replaced or rewritten."""
    out: list[tuple[int, int, int] | None] = []
    for file in (tls.ca_file, tls.cert_file, tls.key_file):
        try:
            is_now = os.stat(file) if file else None
        except OSError:
            is_now = None
        out.append(is_now and (is_now.st_ino, is_now.st_mtime_ns, is_now.st_size))
    return out


def _read(tls: TLS) -> _PEM:
    """Reads the files. It refuses files that are missing or don't match: given a certificate without its key, gRPC aborts the
    process."""
    if (tls.cert_file is None) != (tls.key_file is None):
        raise errors.invalid("tls", "cert_file and key_file must be given together")
    files = (tls.ca_file, tls.cert_file, tls.key_file)
    stamps = _stamps(tls)
    try:
        context = ssl.create_default_context(cafile=tls.ca_file)
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
        ca, cert, key = (Path(file).read_bytes() if file else None for file in files)
    except (OSError, ssl.SSLError) as err:
        raise errors.invalid("tls", f"{', '.join(file for file in files if file)}: {err}") from err
    if _stamps(tls) != stamps:  # what was read need not be what was checked
        raise errors.invalid("tls", f"{', '.join(file for file in files if file)}: they are being changed")
    return _PEM(stamps, ca, cert, key)


def _credentials(pem: _PEM) -> Any:
    system = ssl.get_default_verify_paths().cafile
    return grpc.ssl_channel_credentials(
        root_certificates=pem.ca or (Path(system).read_bytes() if system else None), private_key=pem.key, certificate_chain=pem.cert
    )


def from_environment(
    server: str | None, token: Token, namespace: str | None, tls: TLS | None, *, plaintext: bool, environ: Mapping[str, str] = os.environ
) -> Connection:
    """Creates a connection. What is not given is taken from the environment, under the same names as for the command line."""
    if token is None:
        token = environ.get("PAWL_TOKEN") or None
        file = environ.get("PAWL_TOKEN_FILE")
        if token is None and file:
            path = Path(file)
            token = lambda: path.read_text().strip()  # noqa: E731
    if tls is None:
        files = TLS(environ.get("PAWL_TLS_CA"), environ.get("PAWL_CLIENT_CERT"), environ.get("PAWL_CLIENT_KEY"))
        tls = files if files != TLS() else None
    return Connection(
        server or environ.get("PAWL_SERVER") or DEFAULT_SERVER,
        token=token,
        namespace=namespace if namespace is not None else environ.get("PAWL_NAMESPACE", ""),
        tls=tls,
        plaintext=plaintext,
    )
