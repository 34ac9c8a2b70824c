"""All boards as files: written, or compared with what is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dashboards import fleet, node
from dashboards.grafana import render


def files() -> Mapping[str, str]:
    """File name -> text, for every board."""
    return {f"{board.uid}.json": render(board) for board in (fleet.board(), node.board())}


def write(folder: Path) -> tuple[Path, ...]:
    """Write every board into ``folder`` (made if missing); the paths. OSError when it cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in files().items():
        path = folder / name
        path.write_bytes(text.encode())
        written.append(path)
    return tuple(written)


def differences(folder: Path) -> tuple[str, ...]:
    """One line per file of ``folder`` that is missing, stale, or of no board any more; empty: current.

    OSError when a file cannot be read.
    """
    wanted = files()
    lines = []
    for name, text in wanted.items():
        path = folder / name
        if not path.is_file():
            lines.append(f"{path}: missing")
        elif path.read_bytes() != text.encode():
            lines.append(f"{path}: stale, or changed by hand")
    present = sorted(folder.glob("sickbay-*.json")) if folder.is_dir() else []
    lines += [f"{path}: of no board any more, delete it" for path in present if path.name not in wanted]
    return tuple(lines)
