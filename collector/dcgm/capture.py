"""A captured body as bytes of UTF-8 text: what a file may be wrapped in comes off, within bounds."""

from __future__ import annotations

import codecs
import zlib

from collector.dcgm.tally import Tally
from fleet.observations import ProblemReason

MAX_UNPACKED_BYTES = 256 * 1024 * 1024
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib: gzip header and trailer, largest window
_BOM = codecs.BOM_UTF8
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def unwrap(data: bytes, tally: Tally) -> bytes:
    """Unpack gzip, decode UTF-16 (a shell on Windows redirects so), drop a byte order mark.

    What is damaged ends where the damage begins, and is told.
    """
    if data.startswith(_GZIP):
        data = _unpack(data, tally)
    if data.startswith(_WIDE):
        return data.decode("utf-16", "replace").encode()
    return data.removeprefix(_BOM)


def _unpack(data: bytes, tally: Tally) -> bytes:
    """All members of a gzip file."""
    unpacked: list[bytes] = []
    left = MAX_UNPACKED_BYTES
    while data.startswith(_GZIP):
        member = zlib.decompressobj(_GZIP_WINDOW)
        try:
            text = member.decompress(data, left)
        except zlib.error:
            tally.add(
                ProblemReason.UNREADABLE, "the gzip file is damaged: nothing behind it is read", count=1
            )
            break
        unpacked.append(text)
        left -= len(text)
        if member.unconsumed_tail or left <= 0:
            message = (
                f"the gzip file unpacks to more than {MAX_UNPACKED_BYTES >> 20} MiB: the rest is not read"
            )
            tally.add(ProblemReason.TOO_LARGE, message, count=1)
            break
        if not member.eof:
            tally.add(ProblemReason.TRUNCATED, "the gzip file is cut off", count=1)
            break
        data = member.unused_data
    return b"".join(unpacked)
