"""Ask the library about everything once, and say it in lines: one JSON object per thing learned.

::

    {"nvml":1,"driver":"580.65.06","library":"13.580.65.06","count":2,"bound":["0000:3b:00.0"]}
    {"gpu":0,"uuid":"GPU-...","pci":"00000000:3B:00.0","columns":{"power.draw":["81.250 W"],"energy":[]},
     "mig":[{"gi":1,"ci":0,"name":"NVIDIA A100 MIG 1g.5gb","columns":{}}],
     "processes":[{"pid":4711,"name":"python","bytes":1048576}]}
    {"lost":1,"code":15,"call":"nvmlDeviceGetHandleByIndex"}
    {"failed":9,"call":"nvmlInit"}
    {"timeout":9.0,"call":"nvmlDeviceGetPowerUsage","gpu":1,"uuid":null,"pci":null}
    {"end":true}

``columns`` has a list per column: a second source is asked only while the first gave no value, and an
error word stays beside the value that another call gave. Nothing here decides what a word means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from collector.nvml.library import ABSENT, Asker, Nvml, NvmlFailure, NvmlReturn, text_of, word_of
from collector.nvml.probes import MIG_PROBES, MISSHAPEN, PROBES, PROCESS_LISTS, Probe, ask_fields

Line = dict[str, Any]
Write = Callable[[Line], None]
VERSION = 1
MAX_GPUS = 256
MAX_MIG_DEVICES = 64
MAX_PROCESSES = 4096


class Snapshot:
    """One pass. ``at`` is the GPU being asked (``{"gpu","uuid","pci"}``), for whoever has to end the pass."""

    def __init__(self, library: Nvml, write: Write, *, bound: Sequence[str] = ()) -> None:
        self._library = library
        self._asker = Asker(library)
        self._write = write
        self._bound = list(bound)
        self.at: Line = {}

    @property
    def doing(self) -> str | None:
        """The call under way."""
        return self._asker.doing

    def take(self) -> None:
        """Ask and write. Raises nothing for what the library answers."""
        try:
            self._asker.ask("nvmlInit")
            count = int(self._asker.ask("nvmlDeviceGetCount"))
        except NvmlFailure as failure:
            self._write({"failed": int(failure.code), "call": self.doing})
            return
        self._write(
            {
                "nvml": VERSION,
                "driver": self._optional("nvmlSystemGetDriverVersion"),
                "library": self._optional("nvmlSystemGetNVMLVersion"),
                "count": count,
                "bound": self._bound,
            }
        )
        for index in range(min(count, MAX_GPUS)):
            self._gpu(index)
        self.at = {}
        self._write({"end": True})
        self._optional("nvmlShutdown")

    def _gpu(self, index: int) -> None:
        self.at = {"gpu": index, "uuid": None, "pci": None}
        try:
            handle = self._asker.ask("nvmlDeviceGetHandleByIndex", index)
        except NvmlFailure as failure:
            self._write({"lost": index, "code": int(failure.code), "call": self.doing})
            return
        # First, since the driver answers them from memory: what hangs later has a name.
        pci = self._pci(handle)
        uuid = self._optional("nvmlDeviceGetUUID", handle)
        self.at = {"gpu": index, "uuid": uuid, "pci": pci}
        columns = self._columns(handle, PROBES, ask_fields(self._asker, handle))
        line = {**self.at, "columns": columns}
        if columns.get("mig.mode.current") == ["1"]:
            line["mig"] = self._mig_devices(handle)
        line["processes"] = self._processes(handle, columns)
        self._write(line)

    def _pci(self, handle: object) -> str | None:
        try:
            return text_of(self._asker.ask("nvmlDeviceGetPciInfo", handle).busId)
        except (NvmlFailure, *MISSHAPEN):
            return None

    def _optional(self, function: str, *args: object) -> str | None:
        try:
            return text_of(self._asker.ask(function, *args))
        except NvmlFailure:
            return None

    def _columns(
        self, handle: object, probes: Sequence[Probe], first: Mapping[str, str | NvmlReturn]
    ) -> dict[str, list[str]]:
        columns: dict[str, list[str]] = {}
        valued: set[str] = set()

        def note(column: str, answer: str | NvmlReturn | None) -> None:
            if answer is None or (isinstance(answer, NvmlReturn) and answer in ABSENT):
                columns.setdefault(column, [])
            elif isinstance(answer, NvmlReturn):
                columns.setdefault(column, []).append(f"[{word_of(answer)}]")
            elif column not in valued:
                valued.add(column)
                columns.setdefault(column, []).append(answer)

        for column, answer in first.items():
            note(column, answer)
        for probe in probes:
            if valued.issuperset(probe.columns):
                continue
            try:
                texts = probe.ask(self._asker, handle)
            except NvmlFailure as failure:
                for column in probe.columns:
                    note(column, failure.code)
                continue
            for column, text in zip(probe.columns, texts, strict=True):
                note(column, text)
        return columns

    def _mig_devices(self, handle: object) -> list[Line]:
        """The MIG devices in their slots; an empty slot is "not found" and none."""
        try:
            slots = int(self._asker.ask("nvmlDeviceGetMaxMigDeviceCount", handle))
        except NvmlFailure as failure:
            return [] if failure.code in ABSENT else [{"error": f"[{word_of(failure.code)}]"}]
        devices: list[Line] = []
        for slot in range(min(slots, MAX_MIG_DEVICES)):
            try:
                device = self._asker.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, slot)
                devices.append(
                    {
                        "gi": int(self._asker.ask("nvmlDeviceGetGpuInstanceId", device)),
                        "ci": int(self._asker.ask("nvmlDeviceGetComputeInstanceId", device)),
                        "name": self._optional("nvmlDeviceGetName", device),
                        "columns": self._columns(device, MIG_PROBES, {}),
                    }
                )
            except NvmlFailure as failure:
                if failure.code is not NvmlReturn.NOT_FOUND and failure.code not in ABSENT:
                    devices.append({"error": f"[{word_of(failure.code)}]"})
        return devices

    def _processes(self, handle: object, columns: dict[str, list[str]]) -> list[Line]:
        """Compute, MPS and graphics processes, each pid once; a list that fails is a column in error."""
        found: dict[int, Line] = {}
        for function in PROCESS_LISTS:
            try:
                for process in list(self._asker.ask(function, handle))[:MAX_PROCESSES]:
                    pid, used = int(process.pid), process.usedGpuMemory
                    line = {"pid": pid, "name": None, "bytes": None if used is None else int(used)}
                    found.setdefault(pid, line)
            except NvmlFailure as failure:
                if failure.code not in ABSENT:
                    columns["processes"] = [f"[{word_of(failure.code)}]"]
            except MISSHAPEN:
                columns["processes"] = [f"[{word_of(NvmlReturn.UNKNOWN)}]"]
        for pid, process in found.items():
            process["name"] = self._optional("nvmlSystemGetProcessName", pid)
        return list(found.values())
