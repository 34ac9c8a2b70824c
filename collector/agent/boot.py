"""Which boot is this? The epoch of every event (docs/agent.md)."""

from __future__ import annotations

from pathlib import Path

from collector.kernel_log.envelope import canonical_boot_id

MAX_BOOT_ID_CHARS = 128


def epoch_of(own: str | None, current: str) -> str:
    """The epoch of an event whose line says ``own`` (None: it says nothing) while ``current`` runs."""
    if own is None or canonical_boot_id(own) == canonical_boot_id(current):
        return current
    return canonical_boot_id(own)


class BootId:
    """The boot ID of this node, read from its file each time it is asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> str | None:
        """The current boot ID; None when it cannot be told now (unreadable, empty or no single word)."""
        try:
            text = self._path.read_bytes()[: MAX_BOOT_ID_CHARS + 2].decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        if not text or len(text) > MAX_BOOT_ID_CHARS or not text.isprintable() or " " in text:
            return None
        return text
