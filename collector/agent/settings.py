"""What an agent needs to know, checked once."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, urlsplit

from fleet.errors import InvalidInputError
from fleet.identity import is_node_name

MAX_TOKEN_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """One agent's settings; those without a remark are the keys of ``agent:`` in the configuration file.

    - ``node``: the name the controller's inventory knows this machine by. The agent speaks for no other.
    - ``controller``: base URL; events go to ``<controller>/api/v1/events``.
    - ``token`` is what ``token_file`` held at the start (None: no token). The file is read again when the
      controller refuses the token, so that a new one needs no restart.
    - ``kernel_log``: ``/dev/kmsg`` or a log file. ``boot_id_file``: read again before each push.
    - ``sources``: what is read for ``/metrics`` (``collector.agent.sources``); ``nvml`` and ``nvidia-smi``
      also let the agent report the node's GPUs. ``dcgm_url``: where dcgm-exporter answers.
    - ``listen``: ``host:port`` of ``/metrics`` and ``/-/healthy``; None or "": off.
    - ``spool_dir``: events wait here, in a folder of this node's, until the controller has them.
    - ``source_interval_seconds``: from one read of a source to the next (s). ``nic_root``: the network cards.
    - ``heartbeat_seconds``: the longest silence towards a controller (s).
    - ``batch_events``: events in one push; the controller answers for a batch in one transaction.
    - ``spool_events``: bound of the spool; at ~0.6 KB an event the default stays below 10 MB.
    - ``connect_timeout_seconds``, ``read_timeout_seconds``: deadlines of one push (s). Reading the kernel
      log never waits for them.
    - ``read_wait_seconds``: how long one read waits for a line (s); also the longest time to stop.
    - ``trust_env``: use the proxies of the environment. Off: a node's ``http_proxy`` is for packages, and a
      proxy between a node and its controller is one thing more that can fail.
    """

    node: str
    controller: str
    spool_dir: Path
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    kernel_log: Path = Path("/dev/kmsg")
    boot_id_file: Path = Path("/proc/sys/kernel/random/boot_id")
    sources: tuple[str, ...] = ()
    dcgm_url: str = "http://127.0.0.1:9400/metrics"
    listen: str | None = None
    source_interval_seconds: float = 15.0
    nic_root: Path = Path("/sys/class/infiniband")
    heartbeat_seconds: float = 15.0
    batch_events: int = 200
    spool_events: int = 10_000
    connect_timeout_seconds: float = 3.0
    read_timeout_seconds: float = 10.0
    read_wait_seconds: float = 1.0
    trust_env: bool = False
    version: str = "unknown"

    def __post_init__(self) -> None:
        if not is_node_name(self.node):
            raise InvalidInputError(f"agent.node: {self.node!r} is not a host name; set the node's own name")
        parts = urlsplit(self.controller)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidInputError(
                f"agent.controller: {self.controller!r} is not a URL such as http://controller:8470"
            )
        self._refuse_own_page()

    @property
    def events_url(self) -> str:
        return f"{self.controller.rstrip('/')}/api/v1/events"

    @property
    def node_spool_dir(self) -> Path:
        """A folder of this node's own: agents of several nodes may share one ``spool_dir`` (a lab)."""
        return self.spool_dir / f"node-{quote(self.node, safe='')}"

    def listen_address(self) -> tuple[str, int] | None:
        """(host, port) of the metrics server, or None when it is off."""
        if not self.listen:
            return None
        host, colon, port = self.listen.rpartition(":")
        if not colon or not port.isdigit() or not 0 <= int(port) <= 65535:  # noqa: PLR2004 - TCP's highest port
            raise InvalidInputError(f"agent.listen: {self.listen!r} is not host:port such as 0.0.0.0:9870")
        return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - no host means all, as everywhere

    def _refuse_own_page(self) -> None:
        """An agent that took its own page for dcgm-exporter's would show old values for ever."""
        address = self.listen_address()
        if address is None or "dcgm" not in self.sources:
            return
        try:
            parts = urlsplit(self.dcgm_url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
        except ValueError as error:
            raise InvalidInputError(f"agent.dcgm_url: {self.dcgm_url!r}: {error}") from error
        if port == address[1] and _is_here(parts.hostname or "", self.node):
            raise InvalidInputError(
                f"agent.dcgm_url: {self.dcgm_url!r} is the agent's own page; set dcgm-exporter's address"
            )


def _is_here(host: str, node: str) -> bool:
    return host in {"localhost", node, socket.gethostname()} or host.startswith("127.") or host == "::1"


def read_token(path: Path) -> str:
    """The bearer token in ``path``. InvalidInputError when it is unreadable, empty or no header value."""
    try:
        text = path.read_bytes()[: MAX_TOKEN_BYTES + 1].decode("ascii").strip()
    except OSError as error:
        raise InvalidInputError(
            f"agent.token_file: cannot read {path}: {error.strerror or error}; "
            f"write the output of 'sickbay agent-token NODE --config FILE' into it"
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"agent.token_file: {path} is not a token (not plain ASCII)") from error
    if not text or len(text) > MAX_TOKEN_BYTES or not text.isprintable() or " " in text:
        raise InvalidInputError(f"agent.token_file: {path} does not hold exactly one token")
    return text
