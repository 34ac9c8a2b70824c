"""What a snapshot of NVML (``collector.nvml.snapshot``) says, as records. Pure: bytes in, records out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from collector.nvidia_smi.cells import CellKind, clean_name, read_cell
from collector.nvidia_smi.fields import Layout
from collector.nvidia_smi.gpu import GpuReader, read_pci, read_uuid
from collector.nvidia_smi.records import Findings, Identity, quoted
from collector.nvml.library import NvmlReturn, code_of, word_of
from collector.nvml.snapshot import MAX_GPUS
from fleet.identity import MigInstance, pci_join_key
from fleet.observations import GpuProcess, ProblemReason, Reading

SOURCE = "nvml"
MAX_INPUT_BYTES = 32 * 1024 * 1024
_MAX_PID = 2**31 - 1
_MAX_NUMBER = 2**53
_MAX_INDEX = 4096
# nvmlDeviceGetName of a MIG device: "NVIDIA A100-SXM4-40GB MIG 1g.5gb", also "2c.3g.20gb", "1g.5gb+me".
_PROFILE = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:[+-][\w.+-]{1,16})?)$")
_VERSION = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,3}")

_ADVICE: Mapping[NvmlReturn, tuple[ProblemReason, str]] = {
    NvmlReturn.DRIVER_NOT_LOADED: (ProblemReason.DRIVER_NOT_LOADED, "load the nvidia kernel module"),
    NvmlReturn.LIB_RM_VERSION_MISMATCH: (
        ProblemReason.DRIVER_LIBRARY_MISMATCH,
        "the loaded kernel module and the installed library differ; reload the driver or reboot the node",
    ),
    NvmlReturn.LIBRARY_NOT_FOUND: (
        ProblemReason.TOOL_MISSING,
        "libnvidia-ml.so.1 is not installed; install the driver, or leave this source out",
    ),
    NvmlReturn.NO_PERMISSION: (
        ProblemReason.PERMISSION_DENIED,
        "let the reader's user open /dev/nvidia*",
    ),
    NvmlReturn.GPU_IS_LOST: (ProblemReason.GPU_LOST, "reboot the node"),
    NvmlReturn.RESET_REQUIRED: (ProblemReason.RESET_REQUIRED, "reset the GPU when it is idle"),
    NvmlReturn.TIMEOUT: (ProblemReason.TIMEOUT, "the driver did not answer"),
}
_ELSE = (ProblemReason.QUERY_ERROR, "inside a container, the device cgroup may be lost")


class NvmlView:
    """A GPU's (or MIG device's) columns: a list of texts for each."""

    def __init__(self, columns: object) -> None:
        self._columns: dict[str, tuple[str, ...]] = {}
        for name, texts in columns.items() if isinstance(columns, Mapping) else ():
            if isinstance(texts, list):
                self._columns[name] = tuple(text for text in texts if isinstance(text, str))

    def texts(self, key: str) -> Sequence[str]:
        return self._columns.get(key, ())

    def under(self, block: str) -> Sequence[tuple[str, str]]:
        prefix = f"{block}."
        return [(name, text) for name, text in self._all() if name.startswith(prefix)]

    def scan(self) -> Iterator[tuple[str, str]]:
        """Every text but those that a word of the tool may stand in as a value."""
        return ((name, text) for name, text in self._all() if name not in ("name", "fabric.status"))

    def _all(self) -> Iterator[tuple[str, str]]:
        return ((name, text) for name, texts in self._columns.items() for text in texts)


def read_nvml(data: bytes, *, node: str | None, now: float) -> Reading:
    """Samples (base units), processes and problems of one snapshot of ``node`` taken at ``now``.

    The same signals under the same names as ``read_nvidia_smi`` gives, from the same table of fields.
    "Not supported" is absent; any other failure of a call is a problem of that GPU, which keeps the rest
    of its values. Never raises for what is in ``data``. ``ok`` is False when no GPU answered.
    """
    found = Findings(node=node, time=now, source=SOURCE)
    if len(data) > MAX_INPUT_BYTES:
        found.problem(ProblemReason.TOO_LARGE, f"more than {MAX_INPUT_BYTES} bytes; not read")
        return found.reading()
    reader = _Reader(found)
    reader.read(data)
    return Reading(found.reading().records, ok=reader.answered)


class _Reader:
    def __init__(self, found: Findings) -> None:
        self._found = found
        self._driver: str | None = None
        self._count: int | None = None
        self._silent: list[str] = []
        self._one_silent = False
        self._seen: set[int] = set()
        self._hung = False
        self._ended = False
        self.answered = False

    def read(self, data: bytes) -> None:
        lines = list(_lines(data))
        unreadable = 0
        torn = bool(lines) and not data.rstrip(b" ").endswith(b"\n") and lines[-1] is None
        self._name_the_silent(lines)
        for line in lines[: len(lines) - torn]:
            if line is None:
                unreadable += 1
            else:
                self._line(line)
        self._report_whole(empty=not lines, unreadable=unreadable, torn=torn)

    def _line(self, line: Mapping[str, Any]) -> None:
        if "missing" in line:
            self._ended = True
            self._found.problem(
                ProblemReason.TOOL_MISSING,
                "the Python binding nvidia-ml-py is not installed; install sickbay[nvml], "
                "or leave this source out",
            )
        elif "failed" in line:
            self._ended = True
            reason, why = self._why(line.get("failed"))
            self._found.problem(reason, f"NVML does not start: {why}")
        elif "nvml" in line:
            self._head(line)
        elif "timeout" in line:
            self._timed_out(line)
        elif "lost" in line:
            self._lost(line)
        elif "gpu" in line:
            self._gpu(line)
        elif line.get("end") is True:
            self._ended = True
        else:
            self._found.problem(
                ProblemReason.UNREADABLE, f"a line of an unknown kind: {quoted(json.dumps(line))}"
            )

    def _why(self, value: object) -> tuple[ProblemReason, str]:
        code = code_of(value)
        reason, advice = _ADVICE.get(code, _ELSE)
        return reason, f"{quoted(word_of(code))}; {advice}"

    def _head(self, line: Mapping[str, Any]) -> None:
        driver = line.get("driver")
        self._driver = driver if isinstance(driver, str) and _VERSION.fullmatch(driver) else None
        self._count = _index(line.get("count"))
        if self._count is None:
            self._found.problem(ProblemReason.UNREADABLE, "the snapshot does not say how many GPUs there are")
        elif self._count == 0:
            self._found.problem(
                ProblemReason.NO_DEVICES, "NVML sees no device; compare with the GPUs this node should have"
            )
        else:
            self._found.sample("node_gpu_count", float(self._count))

    def _timed_out(self, line: Mapping[str, Any]) -> None:
        self._hung = True
        identity = _identity(line)
        where = f"{identity.label}: " if identity.known else ""
        self._found.problem(
            ProblemReason.TIMEOUT,
            f"{where}{_call(line)} did not return; the driver does not answer",
            identity=identity,
        )

    def _lost(self, line: Mapping[str, Any]) -> None:
        index = _index(line.get("lost"))
        if index is None:
            self._found.problem(ProblemReason.UNREADABLE, "a GPU that cannot be opened, without its index")
            return
        self._seen.add(index)
        self._report_unopened(index, code_of(line.get("code")), _call(line))

    def _report_unopened(self, index: int, code: NvmlReturn, call: str) -> None:
        """A GPU that cannot be opened at all: unreachable, whatever word stands for why.

        It is what nvidia-smi's sentence about a device handle means.
        """
        identity = Identity(index=index, pci=self._silent[0] if self._one_silent else None)
        reason, _advice = _ADVICE.get(code, _ELSE)
        reason = ProblemReason.GPU_LOST if reason is ProblemReason.QUERY_ERROR else reason
        others = (
            "" if self._one_silent or not self._silent else f"; no answer from {', '.join(self._silent[:8])}"
        )
        self._found.problem(
            reason,
            f"{identity.label} cannot be opened: {call} says {quoted(word_of(code))}{others}",
            identity=identity,
        )

    def _name_the_silent(self, lines: Sequence[Mapping[str, Any] | None]) -> None:
        """A GPU that does not say its address has one that nobody answers for.

        Which is whose is known when there is one of each, and everybody was asked.
        """
        read = [line for line in lines if line is not None]
        gpus = [_identity(line).pci for line in read if "columns" in line and "timeout" not in line]
        answered = {pci_join_key(pci) for pci in gpus if pci is not None}
        bound = [item for line in read if "nvml" in line for item in _list(line.get("bound"))]
        addresses = [pci for text in bound if isinstance(text, str) and (pci := read_pci(text))]
        self._silent = [pci for pci in addresses if pci_join_key(pci) not in answered]
        claims = gpus.count(None) + sum(1 for line in read if "lost" in line)
        whole = any(line.get("end") is True for line in read)
        self._one_silent = whole and claims == len(self._silent) == 1

    def _report_whole(self, *, empty: bool, unreadable: int, torn: bool) -> None:
        found, count = self._found, self._count
        if empty:
            found.problem(
                ProblemReason.UNREADABLE, "an empty snapshot: the process that asks NVML said nothing"
            )
            return
        if unreadable:
            found.problem(ProblemReason.UNREADABLE, "line(s) that are no JSON object", count=unreadable)
        expected = 0 if count is None else min(count, MAX_GPUS)
        if self._hung:
            missing = expected - len(self._seen) - 1
            if missing > 0:
                why = f"{missing} more GPU(s) not asked after the hang"
                found.problem(ProblemReason.PARTIAL, why, count=missing)
        elif torn or not self._ended:
            if torn or count is not None or not unreadable:
                found.problem(ProblemReason.TRUNCATED, "the snapshot breaks off; read it again")
        elif len(self._seen) < expected:
            found.problem(
                ProblemReason.INCONSISTENT,
                f"NVML counts {count} GPUs, but {len(self._seen)} are there",
                count=expected - len(self._seen),
            )
        if count is not None and count > MAX_GPUS:
            found.problem(
                ProblemReason.TOO_LARGE,
                f"{count} GPUs on one node; read the first {MAX_GPUS}",
                count=count - MAX_GPUS,
            )

    def _gpu(self, line: Mapping[str, Any]) -> None:
        identity = _identity(line)
        if identity.index is None or identity.index in self._seen:
            self._found.problem(
                ProblemReason.INCONSISTENT, f"{identity.label} has no index, or one that is taken; not read"
            )
            return
        self._seen.add(identity.index)
        self.answered = True
        if identity.pci is None and self._one_silent:
            identity = replace(identity, pci=self._silent[0])
        reader = GpuReader(
            view=NvmlView(line.get("columns")),
            identity=identity,
            found=self._found,
            time=self._found.time,
            layout=Layout.NVML,
        )
        reader.read(driver=self._driver)
        for device in _objects(line.get("mig")):
            self._mig(device, reader)
        for process in _objects(line.get("processes")):
            self._process(process, reader)
        reader.finish()

    def _mig(self, device: Mapping[str, Any], reader: GpuReader) -> None:
        gi, ci, name = _index(device.get("gi")), _index(device.get("ci")), device.get("name")
        if gi is None:
            cell = read_cell(str(device.get("error", "")))
            reader.complaints.add(
                cell.reason or ProblemReason.UNREADABLE,
                f"a MIG device says {quoted(cell.text)}; it cannot be told apart",
            )
            return
        profile = _PROFILE.search(name) if isinstance(name, str) else None
        view = NvmlView(device.get("columns"))
        for column, text in view.scan():
            cell = read_cell(text)
            if cell.kind is CellKind.ERROR and cell.reason is not None:
                reader.complaints.add(cell.reason, f"MIG device {gi}/{ci}: {column} says {quoted(cell.text)}")
        reader.read_mig(view, MigInstance(gi=gi, ci=ci, profile=profile[1] if profile else None))

    def _process(self, process: Mapping[str, Any], reader: GpuReader) -> None:
        pid, used = _whole(process.get("pid"), _MAX_PID), _whole(process.get("bytes"), _MAX_NUMBER)
        name = process.get("name")
        if pid is None:
            shown = quoted(str(process.get("pid")))
            reader.complaints.add(ProblemReason.UNREADABLE, f"a process with the pid {shown}")
            return
        if used is None and process.get("bytes") is not None:
            shown = quoted(str(process["bytes"]))
            reader.complaints.add(ProblemReason.UNRECOGNISED_VALUE, f"the memory of process {pid} is {shown}")
        self._found.processes.append(
            GpuProcess(
                node=self._found.node,
                gpu=reader.identity.gpu,
                pid=pid,
                time=self._found.time,
                name=clean_name(name) if isinstance(name, str) else None,
                memory_bytes=used,
            )
        )


def _lines(data: bytes) -> Iterator[Mapping[str, Any] | None]:
    """Each line's object, or None for a line that is none."""
    for raw in data.splitlines():
        if not raw.strip():
            continue
        try:
            line = json.loads(raw)
        except (ValueError, RecursionError):
            yield None
            continue
        yield line if isinstance(line, dict) else None


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _whole(value: object, limit: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= limit else None


def _index(value: object) -> int | None:
    return _whole(value, _MAX_INDEX)


def _call(line: Mapping[str, Any]) -> str:
    """The call that a line names; what is no name of a function is not repeated."""
    call = line.get("call")
    return call if isinstance(call, str) and re.fullmatch(r"nvml\w{1,96}", call) else "a call"


def _identity(line: Mapping[str, Any]) -> Identity:
    uuid, pci = line.get("uuid"), line.get("pci")
    return Identity(
        gpu=read_uuid(uuid) if isinstance(uuid, str) else None,
        index=_index(line.get("gpu")),
        pci=read_pci(pci) if isinstance(pci, str) else None,
    )
