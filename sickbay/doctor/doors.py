"""Our own doors: the address we listen on, the secrets, and the webhooks (never called here)."""

from __future__ import annotations

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from collector.deadline_http import Deadline, Fetcher, FetchError
from fleet.clock import Clock
from sickbay.config import Config, ConfigError, Http, Role, is_loopback, split_listen
from sickbay.doctor.model import Check, Result, fail, ok, warn
from sickbay.tokens import TokenBook, read_secret

_SECONDS = 3.0
_MAX_BYTES = 1_048_576
# A metric that only our controller has.
_OUR_METRIC = b"sickbay_"
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared with, not bound to
_READY, _NOT_READY = 200, 503

Resolve = Callable[[str, int], object]


@dataclass(frozen=True, slots=True)
class DoorChecks:
    config: Config
    clock: Clock
    resolve: Resolve = socket.getaddrinfo

    def checks(self) -> tuple[Check, ...]:
        checks = [
            Check("http.listen", self.listen, 15.0),
            Check("http.secrets", lambda: secrets(self.config.http), 10.0),
            Check("http.access", self.access, 5.0),
        ]
        for name, url in (
            ("webhooks.handover", self.config.handover.webhook_url),
            ("webhooks.notify", self.config.notify.webhook_url),
        ):
            checks.append(Check(name, _bound(self._webhook, name, url), 15.0))
        return tuple(checks)

    def listen(self) -> Iterator[Result]:
        """Free, or our own controller answers there."""
        name = "http.listen"
        text = self.config.http.listen
        host, port = split_listen(text)
        if port == 0:
            yield ok(name, "port 0: any free port, as the log will say")
            return
        busy = bind_error(host, port)
        if busy is None:
            yield ok(name, f"{text} is free; no controller runs here")
        elif busy == errno.EADDRINUSE:
            yield self._who_is_there(name, text, _EVERYWHERE.get(host, host), port)
        elif busy == errno.EADDRNOTAVAIL:
            yield fail(name, f"{host} is no address of this machine", "correct http.listen")
        elif busy == errno.EACCES:
            yield fail(
                name, f"port {port} may not be used by this user", "use a port above 1023 in http.listen"
            )
        else:
            yield fail(name, f"{text} cannot be used: {os.strerror(busy)}", "correct http.listen")

    def _who_is_there(self, name: str, text: str, host: str, port: int) -> Result:
        shown = f"[{host}]" if ":" in host else host
        try:
            metrics = self._fetch(f"http://{shown}:{port}/metrics")
            if metrics is None or _OUR_METRIC not in metrics[1]:
                return fail(
                    name,
                    f"another program listens on {text}",
                    "end that program, or choose another http.listen",
                )
            ready = self._fetch(f"http://{shown}:{port}/-/ready")
        except FetchError as error:
            return fail(
                name,
                f"{text} is in use, and what listens there does not answer as sickbay does: {error}",
                "look who it is: ss -ltnp",
            )
        if ready is not None and ready[0] == _READY:
            return ok(name, f"a sickbay controller answers on {text} and is ready")
        said = " ".join(ready[1][:200].decode("utf-8", "replace").split()) if ready else ""
        return fail(name, f"the controller on {text} is not ready: {said}", "look at its log")

    def _fetch(self, url: str) -> tuple[int, bytes] | None:
        fetcher = Fetcher(url, headers={"User-Agent": "sickbay"}, max_bytes=_MAX_BYTES * 16)
        try:
            answer = fetcher.get(Deadline(self.clock.monotonic, _SECONDS), connect_seconds=_SECONDS)
        finally:
            fetcher.close()
        return (answer.status, answer.body) if answer.status in (_READY, _NOT_READY) else None

    def access(self) -> Iterator[Result]:
        """Who may use the API, and over which wire."""
        name = "http.access"
        http = self.config.http
        host, _ = split_listen(http.listen)
        if http.allow_anonymous_loopback:
            yield warn(
                name,
                "everyone on this machine is operator (allow_anonymous_loopback)",
                "for more than a lab: set it to false and add tokens",
            )
            return
        if not any(token.role in (Role.OPERATOR, Role.VIEWER) for token in http.tokens):
            yield warn(
                name,
                "no token of role operator or viewer: nobody can use the API or the console",
                "add one to http.tokens; make it with: openssl rand -hex 32",
            )
            return
        if not is_loopback(host):
            yield warn(
                name,
                f"{http.listen} can be reached from other machines, and tokens travel over plain HTTP",
                "put a proxy with TLS before it, or keep that network private",
            )
            return
        yield ok(name, f"{len(http.tokens)} tokens, reachable from this machine only")

    def _webhook(self, name: str, url: str | None) -> Iterator[Result]:
        """Its host has an address. Nothing is posted: a test page is a page."""
        if url is None:
            yield ok(name, "not set")
            return
        parts = urlsplit(url)
        host = parts.hostname or ""
        try:
            self.resolve(host, parts.port or (443 if parts.scheme == "https" else 80))
        except OSError as error:
            yield fail(
                name,
                f"the host {host} has no address ({error.strerror or error})",
                f"correct {name.removeprefix('webhooks.')}.webhook_url, or this machine's DNS",
            )
        else:
            yield ok(name, f"{host} has an address (nothing was posted)")


def bind_error(host: str, port: int) -> int | None:
    """The errno of binding there, None where it may be bound. Nothing listens meanwhile, and it is let go."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the server does: what is left in TIME_WAIT is no other program.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except socket.gaierror:
            return errno.EADDRNOTAVAIL
        except OSError as error:
            return error.errno or errno.EIO
    return None


def secrets(http: Http) -> Iterator[Result]:
    """Each file is there, long enough, and closed to others; what is in it is never shown."""
    files: list[tuple[str, Path]] = [(f"token {token.name}", token.token_file) for token in http.tokens]
    if http.agent_secret_file is not None:
        files.append(("agent secret", http.agent_secret_file))
    else:
        yield warn(
            "http.agent_secret",
            "http.agent_secret_file is not set: no agent can be given a token of its own",
            "openssl rand -hex 32 > agent.secret; chmod 600 agent.secret; name it there",
        )
    bad = False
    for what, path in files:
        for result in _secret(what, path):
            bad = True
            yield result
    if bad:
        return
    try:
        TokenBook(http)
    except ConfigError as error:
        yield fail("http.secrets", str(error), "give every name a token of its own")
        return
    if files:
        yield ok("http.secrets", f"{len(files)} secret files are readable, long enough and closed to others")


def _secret(what: str, path: Path) -> Iterator[Result]:
    name = "http.secrets"
    try:
        read_secret(path)
    except ConfigError as error:
        yield fail(name, f"{what}: {error}", "the service does not start without it")
        return
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
        yield fail(
            name,
            f"{what}: {path} is open to others (mode {mode:04o})",
            f"chmod 600 {path}; if it was open for long, make a new one",
        )


def _bound(
    look: Callable[[str, str | None], Iterator[Result]], name: str, url: str | None
) -> Callable[[], Iterator[Result]]:
    return lambda: look(name, url)
