"""An append-only file of JSON lines: any prefix of it is a valid, shorter one.

JSON lines rather than SQLite: an event is one append and one fsync, a torn tail costs the last record
only (a damaged SQLite page may cost them all), and an operator can read it with ``jq``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750


def encode_line(record: Mapping[str, Any]) -> bytes:
    """One record as a line. ASCII only: a lone surrogate of a damaged log line survives the round trip."""
    return json.dumps(record, separators=(",", ":")).encode("ascii") + b"\n"


def write_durably(path: Path, chunks: Iterable[bytes]) -> None:
    """Replace ``path`` by ``chunks``: afterwards, and after a crash at any instant, it is old or new."""
    temporary = path.with_name(path.name + ".new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        for chunk in chunks:
            _write_all(descriptor, chunk)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    _sync_directory(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a journal held: its records in order, lines that are none, and whether its tail was torn."""

    records: tuple[Mapping[str, Any], ...] = ()
    bad_lines: int = 0
    torn: bool = False


class Journal:
    """The file. Every method may raise OSError; after one that did, only ``rewrite`` is allowed:
    what a failed append left behind is unknown.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def load(self) -> Loaded:
        """Everything readable in the file; an absent file holds nothing."""
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return Loaded()
        lines = content.split(b"\n")
        torn = bool(lines.pop())
        records: list[Mapping[str, Any]] = []
        bad = 0
        for line in lines:
            record = _decode(line)
            if record is None:
                bad += 1
            else:
                records.append(record)
        return Loaded(tuple(records), bad, torn)

    def append(self, lines: Iterable[bytes], *, sync: bool) -> None:
        """Add lines at the end; with ``sync`` they are on the disk when this returns."""
        if self._descriptor is None:
            raise OSError("the journal is not open")
        _write_all(self._descriptor, b"".join(lines))
        if sync:
            os.fsync(self._descriptor)

    def rewrite(self, lines: Iterable[bytes]) -> None:
        """Replace the content durably, and go on appending there."""
        self.close()
        write_durably(self._path, lines)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)

    def close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def _decode(line: bytes) -> Mapping[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: also undecodable bytes
        return None
    return record if isinstance(record, dict) else None
