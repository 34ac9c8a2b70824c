"""The tree ``class/infiniband`` of sysfs, live or captured.

Source: the kernel's Documentation/ABI/stable/sysfs-class-infiniband. ``ports/N/state`` is ``4: ACTIVE``
(0 no state change, 1 down, 2 init, 3 armed, 4 active, 5 active defer); counters stand under ``counters/``,
each a decimal number or ``N/A (no PMA)`` where the port has none.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from fleet.observations import Problem, ProblemReason, Reading, Record, Sample

SOURCE = "nic"
LIVE_ROOT = Path("/sys/class/infiniband")
MAX_FILE_BYTES = 4096
MAX_DEVICES = 256
MAX_PORTS = 256
#: Where the devices may stand below a captured folder.
_PLACES = ("", "infiniband", "class/infiniband", "sys/class/infiniband")
_COUNTERS = {"link_downed": "nic_link_downed_total", "symbol_error": "nic_symbol_errors_total"}
_STATE = re.compile(r"([0-9]{1,2})\s*:\s*\S.*")
_NUMBER = re.compile(r"[0-9]{1,20}")
_HIGHEST_STATE = 5


@dataclass(slots=True)
class _Tree:
    """A reading under construction."""

    node: str | None
    now: float
    records: list[Record] = field(default_factory=list)
    ports: int = 0

    def sample(self, signal: str, value: float, device: str, port: str) -> None:
        labels = {"device": device, "port": port}
        self.records.append(Sample(node=self.node, signal=signal, value=value, time=self.now, labels=labels))

    def problem(self, reason: ProblemReason, message: str, *, count: int = 1) -> None:
        self.records.append(
            Problem(source=SOURCE, reason=reason, message=message, node=self.node, count=count)
        )


def read_tree(root: Path, *, node: str | None, now: float) -> Reading:
    """Port states and counters of every device. ``root``: /sys, /sys/class/infiniband, or a copy of either.

    Labels: ``device`` and ``port``. A folder without any device is a sound, empty answer (problem
    ``no_devices``); one that cannot be listed is not ``ok``. One unreadable file costs itself.
    """
    tree = _Tree(node, now)
    try:
        devices = _devices(root)
    except OSError as error:
        reason = _reason(error)
        tree.problem(reason, f"{root} cannot be listed: {error.strerror or error}")
        return Reading(tuple(tree.records), ok=False)
    if len(devices) > MAX_DEVICES:
        tree.problem(
            ProblemReason.TOO_LARGE, f"more than {MAX_DEVICES} devices", count=len(devices) - MAX_DEVICES
        )
    for device in devices[:MAX_DEVICES]:
        _read_device(tree, device)
    if not tree.ports and not tree.records:
        tree.problem(ProblemReason.NO_DEVICES, f"no InfiniBand or RoCE port under {root}")
    return Reading(tuple(tree.records), ok=True)


def read_live(timeout_seconds: float, *, node: str | None, now: float, root: Path = LIVE_ROOT) -> Reading:
    """This machine's ports. A card whose firmware hangs can hold a read of sysfs for ever: after the deadline
    the reading thread is left behind, and the answer is a time-out.
    """
    if not root.exists():
        problem = Problem(
            source=SOURCE,
            reason=ProblemReason.NO_DEVICES,
            message=f"{root} is not there: no RDMA driver is loaded",
            node=node,
        )
        return Reading((problem,), ok=True)
    found: list[Reading] = []
    thread = threading.Thread(
        target=lambda: found.append(read_tree(root, node=node, now=now)), name="nic-read", daemon=True
    )
    thread.start()
    thread.join(timeout_seconds)
    if found:
        return found[0]
    problem = Problem(
        source=SOURCE,
        reason=ProblemReason.TIMEOUT,
        message=f"{root} was not read within {timeout_seconds:g} s",
        node=node,
    )
    return Reading((problem,), ok=False)


def _devices(root: Path) -> list[Path]:
    """The device folders: those with ``ports`` in them."""
    names = sorted(path.name for path in root.iterdir())
    for place in _PLACES:
        folder = root / place if place else root
        if place and place.split("/", 1)[0] not in names:
            continue
        if folder.is_dir():
            devices = sorted((d for d in folder.iterdir() if (d / "ports").is_dir()), key=_by_number)
            if devices:
                return devices
    return []


def _read_device(tree: _Tree, device: Path) -> None:
    try:
        ports = sorted((p for p in (device / "ports").iterdir() if p.is_dir()), key=_by_number)
    except OSError as error:
        tree.problem(_reason(error), f"{device.name}/ports cannot be listed: {error.strerror or error}")
        return
    if len(ports) > MAX_PORTS:
        tree.problem(
            ProblemReason.TOO_LARGE,
            f"{device.name}: more than {MAX_PORTS} ports",
            count=len(ports) - MAX_PORTS,
        )
    for port in ports[:MAX_PORTS]:
        tree.ports += 1
        state = _read_state(tree, port)
        if state is not None:
            tree.sample("nic_port_state", state, device.name, port.name)
        for name, signal in _COUNTERS.items():
            value = _read_counter(tree, port / "counters" / name)
            if value is not None:
                tree.sample(signal, value, device.name, port.name)


def _read_state(tree: _Tree, port: Path) -> float | None:
    text = _text(tree, port / "state")
    if text is None:
        return None
    match = _STATE.fullmatch(text)
    if match is None or int(match[1]) > _HIGHEST_STATE:
        tree.problem(
            ProblemReason.UNRECOGNISED_VALUE, f"{_short(port / 'state')}: {text[:60]!r} is no port state"
        )
        return None
    return float(match[1])


def _read_counter(tree: _Tree, path: Path) -> float | None:
    """None where the port has no such counter: absent is never 0."""
    if not path.parent.is_dir() or not path.exists():
        return None
    text = _text(tree, path)
    if text is None or text.upper().startswith("N/A"):
        return None
    if not _NUMBER.fullmatch(text):
        tree.problem(ProblemReason.UNRECOGNISED_VALUE, f"{_short(path)}: {text[:60]!r} is no count")
        return None
    return float(text)


def _text(tree: _Tree, path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES)
    except OSError as error:
        tree.problem(_reason(error), f"{_short(path)} cannot be read: {error.strerror or error}")
        return None
    return data.decode("utf-8", "replace").strip()


def _reason(error: OSError) -> ProblemReason:
    return ProblemReason.PERMISSION_DENIED if isinstance(error, PermissionError) else ProblemReason.UNREADABLE


def _short(path: Path) -> str:
    """``mlx5_0/ports/1/counters/symbol_error``: the part below the device folders."""
    parts: Iterator[str] = iter(path.parts)
    kept = list(parts)
    at = max(index for index, part in enumerate(kept) if part == "ports")
    return "/".join(kept[at - 1 :])


def _by_number(path: Path) -> tuple[str, int]:
    match = re.search(r"(\d+)$", path.name)
    return (path.name[: match.start()], int(match[1])) if match else (path.name, -1)
