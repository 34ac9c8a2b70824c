"""The XML of ``nvidia-smi -q -x``: one snapshot, or a stream of which the newest complete one counts."""

from __future__ import annotations

import re

from collector.nvidia_smi import xml_text
from collector.nvidia_smi.answer_time import parse_time
from collector.nvidia_smi.cells import CellKind, clean_name, count, mebibytes, read_cell
from collector.nvidia_smi.fields import Layout
from collector.nvidia_smi.gpu import GpuReader, read_pci, read_uuid
from collector.nvidia_smi.records import Findings, Identity, quoted
from collector.nvidia_smi.sentences import read_sentences
from collector.nvidia_smi.view import XmlView
from collector.nvidia_smi.xml_text import Document, Element, GpuRegion
from fleet.identity import MigInstance
from fleet.observations import GpuProcess, ProblemReason

MAX_GPUS = 256
_VERSION = re.compile(r"(\d{1,6}(?:\.\d{1,6}){1,3})(?:\s*\[.*)?")
_MAX_PID = 2**31 - 1


def read_version(text: str | None) -> str | None:
    """``610.43.02`` (a bracketed note may follow), or None: prose is no version."""
    match = _VERSION.fullmatch((text or "").strip())
    return match[1] if match else None


def read_xml(prepared: str, found: Findings, *, own_time: bool, one_gpu: bool = False) -> None:
    """``prepared`` is what ``xml_text.prepare`` returned.

    ``own_time``: samples carry the document's own time where it prints one. ``one_gpu``: the query named
    single GPUs, so that their order and number say nothing about the node.
    """
    if xml_text.declares_entities(prepared):
        found.problem(
            ProblemReason.UNREADABLE, "the XML declares entities, which nvidia-smi never does; not read"
        )
        return
    stream = xml_text.split_stream(prepared)
    _read_outside(stream.outside, found)
    complete = [document for document in stream.documents if document.complete]
    cut = len(stream.documents) - len(complete)
    if cut:
        found.problem(
            ProblemReason.TRUNCATED, f"{cut} nvidia_smi_log document(s) are cut off; read it again", count=cut
        )
    if complete:
        _Snapshot(complete[-1], found, own_time=own_time, one_gpu=one_gpu).read()
    elif stream.documents:
        _Snapshot(stream.documents[-1], found, own_time=own_time, one_gpu=one_gpu).read()


def _read_outside(text: str, found: Findings) -> None:
    """Text around the documents: sentences about single GPUs, or the beginning of a document cut off."""
    rest = [line for line in read_sentences(text.splitlines(), found) if line.strip()]
    if not rest:
        return
    if rest[-1].lstrip().startswith("<"):
        found.problem(ProblemReason.TRUNCATED, "the XML breaks off before its first value; read it again")
        rest.pop()
    if rest:
        found.problem(
            ProblemReason.UNREADABLE, f"text beside the XML, first: {quoted(rest[0])}", count=len(rest)
        )


class _Snapshot:
    """One document. Of a cut one only GPUs whose end is there are read."""

    def __init__(self, document: Document, found: Findings, *, own_time: bool, one_gpu: bool) -> None:
        self._document = document
        self._found = found
        self._one_gpu = one_gpu
        self._head, _damage = xml_text.parse(document.head)
        stamp = self._text("timestamp") if own_time else None
        parsed = parse_time(stamp) if stamp else None
        self._time = found.time if parsed is None else parsed
        if stamp and parsed is None:
            found.problem(
                ProblemReason.UNRECOGNISED_VALUE, f"the timestamp {quoted(stamp)} is none; taken as now"
            )
        self._driver = read_version(self._text("kmd_version")) or read_version(self._text("driver_version"))
        self._seen: set[str] = set()

    def read(self) -> None:
        document = self._document
        shown = len(document.gpus)
        if shown > MAX_GPUS:
            self._found.problem(
                ProblemReason.TOO_LARGE,
                f"{shown} GPUs on one node; read the first {MAX_GPUS}",
                count=shown - MAX_GPUS,
            )
        readable = [gpu.closed or document.complete for gpu in document.gpus]
        self._found.understood |= document.complete or any(readable)
        # They are printed in the order of their index; only a whole list says which place is which.
        in_order = self._attached() == shown and not document.orphans
        self._report_orphans()
        for index, region in enumerate(document.gpus[:MAX_GPUS]):
            if readable[index]:
                self._read_gpu(region, index if in_order else None)

    def _text(self, path: str) -> str | None:
        return next((element.text for element in self._head.at(path) if element.text), None)

    def _attached(self) -> int | None:
        """``attached_gpus``, as a sample too; a problem when the document shows fewer or more."""
        text = self._text("attached_gpus")
        if text is None or read_cell(text).kind is not CellKind.VALUE:
            return None
        value = count(text)
        if value is None:
            self._found.problem(
                ProblemReason.UNRECOGNISED_VALUE, f"attached_gpus is {quoted(text)}, which is no number"
            )
            return None
        if self._one_gpu:
            return None
        self._found.sample("node_gpu_count", value, time=self._time)
        shown = len(self._document.gpus) + self._document.orphans
        if shown != value and self._document.complete:
            self._found.problem(
                ProblemReason.INCONSISTENT,
                f"attached_gpus is {int(value)}, but {shown} are shown; compare with the kernel log",
                count=abs(int(value) - shown),
            )
        return int(value)

    def _report_orphans(self) -> None:
        if self._document.orphans:
            self._found.problem(
                ProblemReason.UNREADABLE,
                f"{self._document.orphans} GPU(s) whose beginning is damaged; not read",
                count=self._document.orphans,
            )

    def _read_gpu(self, region: GpuRegion, index: int | None) -> None:
        element, damage = xml_text.parse(region.body)
        view = XmlView(element)
        identity = self._identity(view, region, index)
        if identity is None:
            return
        reader = GpuReader(
            view=view, identity=identity, found=self._found, time=self._time, layout=Layout.XML
        )
        if damage or not region.closed:
            reader.complaints.add(
                ProblemReason.UNREADABLE,
                f"its XML is damaged in {max(damage, 1)} place(s); read what is whole",
            )
        if not element.children:
            reader.complaints.add(ProblemReason.UNREADABLE, "nothing stands in its element")
        reader.read(driver=self._driver)
        for device in element.at("mig_devices/mig_device"):
            self._read_mig(device, reader)
        for process in element.at("processes/process_info"):
            self._read_process(process, reader)
        reader.finish()

    def _identity(self, view: XmlView, region: GpuRegion, index: int | None) -> Identity | None:
        """None, with a problem, for what cannot be one GPU: two names, or a name that was there already."""
        uuids = {uuid for text in view.texts("uuid") if (uuid := read_uuid(text))}
        pci = read_pci(*view.texts("pci/pci_bus_id"), region.id)
        identity = Identity(gpu=next(iter(uuids), None), index=index, pci=pci)
        key = identity.gpu or pci
        if len(uuids) > 1:
            why = f"the element {quoted(region.id or '')} holds more than one GPU; not read"
            reason = ProblemReason.UNREADABLE
        elif key is not None and key in self._seen:
            why = f"{identity.label} is there twice; the first one is read"
            reason = ProblemReason.INCONSISTENT
        else:
            if key is not None:
                self._seen.add(key)
            return identity
        self._found.problem(reason, why, identity=identity)
        return None

    def _read_mig(self, device: Element, reader: GpuReader) -> None:
        """A MIG device is known by its GPU, GPU instance and compute instance together."""
        view = XmlView(device)
        gi, ci = (
            next((int(n) for text in view.texts(key) if (n := count(text)) is not None), None)
            for key in ("gpu_instance_id", "compute_instance_id")
        )
        if gi is None:
            reader.complaints.add(
                ProblemReason.UNREADABLE, "a MIG device without a GPU instance id; it cannot be told apart"
            )
            return
        reader.read_mig(view, MigInstance(gi=gi, ci=ci))

    def _read_process(self, process: Element, reader: GpuReader) -> None:
        view = XmlView(process)
        text = next(iter(view.texts("pid")), "")
        cell = read_cell(text)
        pid = count(cell.text)
        if pid is None or pid > _MAX_PID:
            if cell.kind is not CellKind.ABSENT or not text:
                reader.complaints.add(ProblemReason.UNREADABLE, f"a process with the pid {quoted(text)}")
            return
        name = next(iter(view.texts("process_name")), None)
        self._found.processes.append(
            GpuProcess(
                node=self._found.node,
                gpu=reader.identity.gpu,
                pid=int(pid),
                time=self._time,
                name=clean_name(name) if name is not None else None,
                memory_bytes=self._process_memory(view, int(pid), reader),
            )
        )

    def _process_memory(self, view: XmlView, pid: int, reader: GpuReader) -> int | None:
        cell = read_cell(next(iter(view.texts("used_memory")), ""))
        if cell.kind is CellKind.ABSENT:
            return None
        value = mebibytes(cell.text) if cell.kind is CellKind.VALUE else None
        if value is None:
            reader.complaints.add(
                cell.reason or ProblemReason.UNRECOGNISED_VALUE,
                f"the memory of process {pid} is {quoted(cell.text)}",
            )
            return None
        return int(value)
