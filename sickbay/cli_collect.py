"""``sickbay collect``: read one source once and print what was understood (docs/collect.md)."""

from __future__ import annotations

import math
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from collector.encode import to_json_line
from collector.inventory import Inventory, inventory_from_json
from collector.kernel_log import LogContext, read_kernel_log
from collector.kernel_log.follow import KmsgReader
from collector.prometheus_text import to_prometheus
from fleet.clock import SystemClock
from fleet.errors import InvalidInputError
from fleet.identity import is_node_name
from fleet.observations import Reading

DEVICE = Path("/dev/kmsg")
DCGM_URL = "http://127.0.0.1:9400/metrics"  # dcgm-exporter's default, and that of agent.dcgm_url
_LATEST_TIME = 253_402_300_799.0  # the end of year 9999


class Format(StrEnum):
    JSONL = "jsonl"
    PROMETHEUS = "prometheus"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What was asked for on the command line. ``data``: the captured input, or None to read live; ``name``:
    its file's name; ``folder``: where the input is one.
    """

    data: bytes | None
    name: str | None = None
    node: str | None
    now: float
    boot_time: float | None
    timeout_seconds: float
    inventory: Inventory | None = None
    folder: Path | None = None
    driver: str | None = None


def register(app: typer.Typer) -> None:
    """Add the ``collect`` command."""
    app.command("collect")(collect)


def collect(
    source: Annotated[
        str,
        typer.Argument(help="nvidia-smi, nvml, dcgm, kernel-log, nic, slurm, kubernetes or alertmanager"),
    ],
    input_: Annotated[
        str | None,
        typer.Option(
            "--input", metavar="FILE|-", help="a captured file (nic: a folder); - is stdin; else live"
        ),
    ] = None,
    node: Annotated[
        str | None, typer.Option(help="the node the log belongs to; wins over its own host")
    ] = None,
    now: Annotated[
        str | None, typer.Option(metavar="TIME", help="epoch or RFC 3339; fixes the clock")
    ] = None,
    boot_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="when the machine booted: dates uptime stamps")
    ] = None,
    driver: Annotated[str | None, typer.Option(metavar="VERSION", help="the NVIDIA driver's version")] = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="seconds a live read may take")] = 10.0,
    inventory: Annotated[str | None, typer.Option(metavar="FILE", help="nodes and aliases, JSON")] = None,
    format_: Annotated[Format, typer.Option("--format", help="how to print")] = Format.JSONL,
) -> None:
    """Read one source once and print what was understood: one JSON object per line.

    Exit 0: read, whatever it says. 1: nothing could be read. 2: bad usage.
    """
    read = _SOURCES.get(source)
    if read is None:
        _refuse_source(source)
    if node is not None and not is_node_name(node):
        _usage(f"--node: {node!r} is not one plain node name")
    if not (math.isfinite(timeout) and timeout > 0):
        _usage("--timeout: must be a number of seconds above 0")
    folder = Path(input_) if source == "nic" and input_ is not None and Path(input_).is_dir() else None
    request = Request(
        folder=folder,
        driver=driver,
        node=node,
        now=time.time() if now is None else _parse_time("--now", now),
        boot_time=None if boot_time is None else _parse_time("--boot-time", boot_time),
        timeout_seconds=timeout,
        data=None if input_ is None or folder is not None else _read_input(input_),
        name=input_,
        inventory=None if inventory is None else _read_inventory(inventory),
    )
    reading = read(request)
    _print(reading, format_)
    if not reading.ok:
        typer.echo(f"{source}: nothing could be read{_first_problem(reading)}", err=True)
        raise typer.Exit(1)


def _read_kernel_log(request: Request) -> Reading:
    if request.data is not None:
        context = LogContext(
            node=request.node, now=request.now, boot_time=request.boot_time, driver=request.driver
        )
        return read_kernel_log(request.data, context)
    return _read_ring_buffer(request)


def _read_ring_buffer(request: Request) -> Reading:
    """What the kernel holds now. Uptime stamps count from the monotonic clock's zero."""
    device = KmsgReader(DEVICE, from_end=False)
    lines: list[bytes] = []
    deadline = time.monotonic() + request.timeout_seconds
    while time.monotonic() < deadline and (more := device.read_lines(0)):
        lines.extend(more)
    problems = device.take_problems()
    device.close()
    if not lines and problems:
        return Reading(records=tuple(problems), ok=False)
    booted = request.now - time.monotonic() if request.boot_time is None else request.boot_time
    context = LogContext(node=request.node, now=request.now, boot_time=booted, driver=request.driver)
    reading = read_kernel_log(b"\n".join(lines), context)
    return Reading(records=(*reading.records, *problems), ok=reading.ok)


def _read_slurm(request: Request) -> Reading:
    # Imported here: reading a kernel log must not need what the Slurm reader needs.
    if request.data is not None:
        from collector.slurm.reader import read_captured  # noqa: PLC0415

        return read_captured(request.data, now=request.now)
    from collector.slurm.live import read_live  # noqa: PLC0415

    return read_live(request.timeout_seconds)


def _read_kubernetes(request: Request) -> Reading:
    if request.data is not None:
        from collector.kubernetes.reader import read_captured  # noqa: PLC0415

        return read_captured(request.data, now=request.now)
    from collector.kubernetes.live import read_live  # noqa: PLC0415

    return read_live(request.timeout_seconds)


def _read_dcgm(request: Request) -> Reading:
    if request.data is not None:
        from collector.dcgm import read_dcgm  # noqa: PLC0415

        # A capture has no content type; OpenMetrics says in its name that it must end with "# EOF".
        says_openmetrics = True if (request.name or "").endswith((".om", ".openmetrics")) else None
        return read_dcgm(
            request.data,
            node=request.node,
            now=request.now,
            inventory=request.inventory,
            openmetrics=says_openmetrics,
        )
    from collector.scrape import scrape_once  # noqa: PLC0415

    return scrape_once(
        DCGM_URL,
        node=request.node,
        timeout_seconds=request.timeout_seconds,
        clock=SystemClock(),
        inventory=request.inventory,
    )


def _read_nvidia_smi(request: Request) -> Reading:
    from collector.nvidia_smi import read_live, read_nvidia_smi  # noqa: PLC0415

    if request.data is not None:
        return read_nvidia_smi(request.data, node=request.node, now=request.now)
    return read_live(request.timeout_seconds, node=request.node or socket.gethostname(), now=request.now)


def _read_alertmanager(request: Request) -> Reading:
    from collector.alertmanager import read_captured  # noqa: PLC0415

    if request.data is None:
        _usage("collect alertmanager: notifications are pushed, there is nothing to ask; give --input FILE")
    return read_captured(request.data, inventory=request.inventory)


def _read_nvml(request: Request) -> Reading:
    from collector.nvml import read_live, read_nvml  # noqa: PLC0415

    if request.data is not None:
        return read_nvml(request.data, node=request.node, now=request.now)
    return read_live(request.timeout_seconds, node=request.node or socket.gethostname(), now=request.now)


def _read_nic(request: Request) -> Reading:
    from collector.nic import read_live, read_tree  # noqa: PLC0415

    if request.folder is not None:
        return read_tree(request.folder, node=request.node, now=request.now)
    if request.data is not None:
        _usage("collect nic: --input is a folder: a copy of /sys/class/infiniband, or of what is above it")
    return read_live(request.timeout_seconds, node=request.node or socket.gethostname(), now=request.now)


_SOURCES: dict[str, Callable[[Request], Reading]] = {
    "kernel-log": _read_kernel_log,
    "slurm": _read_slurm,
    "kubernetes": _read_kubernetes,
    "dcgm": _read_dcgm,
    "nvidia-smi": _read_nvidia_smi,
    "nvml": _read_nvml,
    "alertmanager": _read_alertmanager,
    "nic": _read_nic,
}


def _print(reading: Reading, format_: Format) -> None:
    if format_ is Format.PROMETHEUS:
        typer.echo(to_prometheus(reading), nl=False)
        for problem in reading.problems:
            typer.echo(f"{problem.reason.value} (x{problem.count}): {problem.message}", err=True)
        return
    for record in reading.records:
        typer.echo(to_json_line(record))


def _first_problem(reading: Reading) -> str:
    return f": {reading.problems[0].message}" if reading.problems else ""


def _read_input(name: str, *, option: str = "--input") -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        _usage(f"{option}: cannot read {name}: {error.strerror}")


def _read_inventory(name: str) -> Inventory:
    try:
        return inventory_from_json(_read_input(name, option="--inventory"))
    except InvalidInputError as error:
        _usage(f"--inventory: {name}: {error}")


def _parse_time(option: str, text: str) -> float:
    """Epoch seconds, or RFC 3339 (without a zone: UTC)."""
    try:
        moment = float(text)
    except ValueError:
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            _usage(f"{option}: {text!r} is neither epoch seconds nor RFC 3339 (2026-02-07T03:15:18Z)")
        moment = (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    if not 0 <= moment <= _LATEST_TIME:
        _usage(f"{option}: {text!r} is out of range")
    return moment


def _refuse_source(source: str) -> NoReturn:
    there = ", ".join(_SOURCES)
    _usage(f"collect: there is no source {source!r}; there are: {there}")


def _usage(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)
