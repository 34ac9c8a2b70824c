"""From raw bytes to text that is safe to match, store and print."""

from __future__ import annotations

import re

MAX_LINE_BYTES = 64 * 1024
"""Longer lines are no kernel record (a printk record is at most 1 KiB, an extended one 8 KiB)."""

_ESCAPE_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])"  # ECMA-48: CSI, OSC, two-character
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")
_KMSG_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
_RSYSLOG_ESCAPE = re.compile(r"#(0[0-3][0-7])")
_MAX_ODD_SHARE = 0.3
_PLAIN_BYTES = bytes(range(0x20, 0x7F)) + b"\t\r"


def clean(text: str) -> str:
    """Without terminal escapes, NUL, CR and other control characters; newline and tab stay."""
    if "\x1b" in text:
        text = _ESCAPE_SEQUENCE.sub("", text)
    return _CONTROL.sub("", text)


def decode(raw: bytes) -> str:
    """UTF-8 where it is; each byte that is not becomes U+FFFD. Never fails."""
    return raw.decode("utf-8", errors="replace")


def unescape_kmsg(text: str) -> str:
    r"""Undo the kernel's ``\xNN`` escapes of a /dev/kmsg record (Documentation/ABI/testing/dev-kmsg)."""
    if "\\x" not in text:
        return text
    raw = text.encode("utf-8", errors="replace")
    return decode(_KMSG_ESCAPE.sub(lambda match: bytes([int(match[1], 16)]), raw))


def unescape_rsyslog(text: str) -> str:
    """Undo rsyslog's ``#NNN`` octal escapes of control characters ($EscapeControlCharactersOnReceive)."""
    if "#0" not in text:
        return text
    return _RSYSLOG_ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def is_binary(raw: bytes) -> bool:
    """True when a line is no text at all (a compressed file, say): too many bytes that no log holds."""
    if raw.isascii() and raw.translate(None, _PLAIN_BYTES) == b"":
        return False
    text = decode(raw)
    odd = sum(1 for char in text if char == "\ufffd" or (char < " " and char not in "\t\r\x1b"))
    return len(text) > 0 and odd > _MAX_ODD_SHARE * len(text)
