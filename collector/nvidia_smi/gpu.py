"""One GPU's view to samples, and to what could not be used about it. The same for XML, CSV and NVML."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from collector.nvidia_smi import cells, fields
from collector.nvidia_smi.cells import CellKind, clean_name, read_cell
from collector.nvidia_smi.fields import EccCounter, Field, Layout
from collector.nvidia_smi.info import info_labels
from collector.nvidia_smi.records import Complaints, Findings, Identity, quoted
from collector.nvidia_smi.view import GpuView
from fleet.identity import MigInstance, normalise_pci
from fleet.observations import ProblemReason

_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,64}")
_REASON_PREFIX = re.compile(r"^clocks_(?:event|throttle)_reasons?[_.]")


def read_uuid(text: str | None) -> str | None:
    """``GPU-...`` as printed, else None: an error word or damage is nobody's name."""
    stripped = (text or "").strip()
    return stripped if _UUID.fullmatch(stripped) else None


def read_pci(*candidates: str | None) -> str | None:
    """The first PCI address among ``candidates`` in our normal form."""
    return next((pci for text in candidates if text and (pci := normalise_pci(text))), None)


@dataclass(slots=True)
class GpuReader:
    """Reads one GPU of one answer, whose keys are those of ``layout``, into ``found``."""

    view: GpuView
    identity: Identity
    found: Findings
    time: float
    layout: Layout
    complaints: Complaints = field(default_factory=Complaints)

    @property
    def xml(self) -> bool:
        return self.layout is Layout.XML

    def read(self, *, driver: str | None) -> None:
        """All signals of the board, and its complaints. Call ``finish`` when nothing else follows."""
        self._scan_for_errors()
        if not self.complaints.has(ProblemReason.GPU_LOST):
            # The names of a lost card are answered from memory: they are no sign of life.
            self._info(driver)
        for spec in fields.FIELDS:
            self._emit(spec.signal, self.value(spec))
        self._memory_total()
        self._link_generation_max()
        for counter in fields.ECC_COUNTERS:
            self._emit(counter.signal, self._ecc(counter))
        self._clock_reasons()
        self._recovery_action()
        self._fabric()

    def read_mig(self, view: GpuView, mig: MigInstance) -> None:
        """What a MIG device has of its own."""
        for spec in fields.MIG_FIELDS:
            value = self.value(spec, view=view)
            if value is not None:
                self.found.sample(spec.signal, value, identity=self.identity, time=self.time, mig=mig)

    def finish(self) -> None:
        self.found.problems.extend(self.complaints.problems(self.found, self.identity))

    def value(self, spec: Field, *, view: GpuView | None = None) -> float | None:
        """The first place of ``spec`` that says something usable, in base units."""
        for key in spec.keys(self.layout):
            value = self._value_at(key, spec.convert, view or self.view)
            if value is not None:
                return value
        return None

    def _value_at(self, key: str, convert: cells.Convert, view: GpuView) -> float | None:
        """One place's value. Repeated blocks may agree; when they don't, nobody knows which is true."""
        values: set[float] = set()
        for text in view.texts(key):
            cell = read_cell(text)
            if cell.kind is not CellKind.VALUE:
                continue
            value = convert(cell.text)
            if value is None:
                self.complaints.add(
                    ProblemReason.UNRECOGNISED_VALUE, f"{key} is {quoted(text)}, which is no value of it"
                )
            else:
                values.add(value)
        if len(values) > 1:
            self.complaints.add(
                ProblemReason.INCONSISTENT, f"{key} is there {len(values)} times with different values"
            )
            return None
        return next(iter(values), None)

    def _emit(self, signal: str, value: float | None, labels: dict[str, str] | None = None) -> None:
        if value is not None:
            self.found.sample(signal, value, identity=self.identity, time=self.time, labels=labels)

    def _scan_for_errors(self) -> None:
        for name, text in self.view.scan():
            cell = read_cell(text)
            if cell.kind is CellKind.ERROR and cell.reason is not None:
                self.complaints.add(cell.reason, f"{name} says {quoted(cell.text)}")

    def _name(self, *keys: str) -> str | None:
        texts = (text for key in keys for text in self.view.texts(key))
        return next((name for text in texts if (name := clean_name(text)) is not None), None)

    def _info(self, driver: str | None) -> None:
        labels = info_labels(self.view, self.layout, driver=driver)
        if labels:
            self._emit("gpu_info", 1.0, labels)

    def _memory_total(self) -> None:
        """The total, else used + free + reserved where the first two are known."""
        total = self.value(fields.MEMORY_TOTAL)
        if total is None:
            used, free, reserved = (self.value(part) for part in fields.MEMORY_PARTS)
            total = None if used is None or free is None else used + free + (reserved or 0.0)
        self._emit(fields.MEMORY_TOTAL.signal, total)

    def _link_generation_max(self) -> None:
        limits = [value for spec in fields.PCIE_GENERATION_MAX if (value := self.value(spec)) is not None]
        self._emit("gpu_pcie_link_generation_max", min(limits, default=None))

    def _ecc(self, counter: EccCounter) -> float | None:
        for key in counter.totals:
            total = self._value_at(key, cells.count, self.view)
            if total is not None:
                return total
        parts = [self._ecc_part(alternatives) for alternatives in counter.parts]
        known = [part for part in parts if part is not None]
        used = [key for alternatives in counter.parts for keys in alternatives for key in keys]
        if not known or self._any_unusable(used):
            return None
        return sum(known)

    def _ecc_part(self, alternatives: Sequence[Sequence[str]]) -> float | None:
        for keys in alternatives:
            values = [
                value for key in keys if (value := self._value_at(key, cells.count, self.view)) is not None
            ]
            if values:
                return sum(values)
        return None

    def _any_unusable(self, keys: Sequence[str]) -> bool:
        """True when one of the parts is an error or no number: a sum without it would look like a reset."""
        found = [read_cell(text) for key in keys for text in self.view.texts(key)]
        return any(
            cell.kind is CellKind.ERROR or (cell.kind is CellKind.VALUE and cells.count(cell.text) is None)
            for cell in found
        )

    def _clock_reasons(self) -> None:
        printed = (
            None if self.xml else self._value_at("clocks_event_reasons.active", cells.bitmask, self.view)
        )
        rebuilt = self._mask_of_flags()
        if printed is not None and rebuilt is not None and not self._agree(int(printed), rebuilt):
            return
        value = printed
        if value is None and rebuilt is not None and (self.xml or self._whole_mask(rebuilt)):
            value = float(rebuilt.mask)
        self._emit("gpu_clock_event_reasons", value)

    def _agree(self, printed: int, rebuilt: _Flags) -> bool:
        if printed & rebuilt.seen == rebuilt.mask:
            return True
        self.complaints.add(
            ProblemReason.INCONSISTENT,
            f"the clock event reasons are {printed:#x}, but the single reasons add up to {rebuilt.mask:#x}",
        )
        return False

    def _whole_mask(self, rebuilt: _Flags) -> bool:
        return rebuilt.names >= fields.CLOCK_REASONS_OF_A_WHOLE_MASK

    def _mask_of_flags(self) -> _Flags | None:
        """The mask that the named reasons say; None without any. Contradicting twins make it None too."""
        flags = _Flags()
        for block in fields.CLOCK_REASON_BLOCKS:
            for name, text in self.view.under(block):
                self._add_flag(flags, _REASON_PREFIX.sub("", name.lower()), text)
        if flags.mask & flags.inactive:
            self.complaints.add(
                ProblemReason.INCONSISTENT, "a clock event reason is both active and not active"
            )
            return None
        return flags if flags.names else None

    def _add_flag(self, flags: _Flags, name: str, text: str) -> None:
        if name in ("active", "supported"):
            return
        cell = read_cell(text)
        if cell.kind is not CellKind.VALUE:
            return
        active = {"active": True, "not active": False}.get(cell.text.lower())
        bit = fields.CLOCK_REASON_BITS.get(name)
        if active is None or (bit is None and active):
            self.complaints.add(
                ProblemReason.UNRECOGNISED_VALUE, f"clock event reason {quoted(name)} is {quoted(text)}"
            )
        elif bit is not None:
            flags.add(name, bit, active=active)

    def _recovery_action(self) -> None:
        """The driver's own word; on older drivers what their two flags amount to, No/No being 0."""
        spec = fields.RECOVERY_ACTION
        action = self.value(spec)
        reset = self.value(fields.RESET_REQUIRED)
        drain = self.value(fields.DRAIN_AND_RESET)
        flagged: float | None = None
        if reset == 1.0:
            flagged = 1.0
        elif drain == 1.0:
            flagged = 4.0
        elif reset == 0.0 and drain == 0.0:
            flagged = 0.0
        if action == 0.0 and flagged:
            self.complaints.add(
                ProblemReason.INCONSISTENT, "the recovery action is none, but a reset flag says yes"
            )
            return
        self._emit(spec.signal, flagged if action is None else action)

    def _fabric(self) -> None:
        state, status = fields.FABRIC_STATE, fields.FABRIC_STATUS
        labels = {
            label: name
            for label, keys in fields.FABRIC_LABELS.items()
            if (name := self._name(keys[0] if self.xml else keys[1])) is not None
        }
        self._emit(state.signal, self._fabric_value(state), labels)
        self._emit(status.signal, self._fabric_value(status))

    def _fabric_value(self, spec: Field) -> float | None:
        """Words that elsewhere mean absent or an error are values here, unless they stand in brackets."""
        for key in spec.keys(self.layout):
            for text in self.view.texts(key):
                bare = " ".join(text.split())
                value = spec.convert(bare)
                if value is not None:
                    return value
                cell = read_cell(bare)
                if cell.kind is CellKind.ERROR and cell.reason is not None:
                    self.complaints.add(cell.reason, f"{key} says {quoted(cell.text)}")
                elif cell.kind is CellKind.VALUE:
                    self.complaints.add(ProblemReason.UNRECOGNISED_VALUE, f"{key} is {quoted(text)}")
        return None


@dataclass(slots=True)
class _Flags:
    """Clock event reasons by name: bits that are active, bits that are not, names that were there."""

    mask: int = 0
    inactive: int = 0
    names: set[str] = field(default_factory=set)

    @property
    def seen(self) -> int:
        return self.mask | self.inactive

    def add(self, name: str, bit: int, *, active: bool) -> None:
        self.names.add(name)
        if active:
            self.mask |= bit
        else:
            self.inactive |= bit
