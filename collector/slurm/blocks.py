"""Several commands' text in one input, cut where the next command's output begins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from collector.slurm.columns import parse_header
from collector.slurm.table_jobs import is_job_table
from collector.slurm.table_nodes import is_node_table

_MAY_BE_HEADER = re.compile(r"JOBID|NODELIST|NODENAME|HOSTNAMES", re.IGNORECASE)
_SENTENCE = re.compile(
    r"^(?:slurm_\w+(?: error)?: |(?:sinfo|squeue|scontrol|sacct|sdiag): (?:error|fatal): )"
)


class BlockKind(Enum):
    """What wrote the text. OTHER: a table, with or without header, or a sentence."""

    NODES = auto()
    JOBS = auto()
    SDIAG = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Block:
    kind: BlockKind
    text: str


def blocks(text: str) -> Iterator[Block]:
    """The blocks of ``text`` in order. A record of scontrol ends at the next one or at a blank line."""
    kind, lines = BlockKind.OTHER, list[str]()
    blank = True
    for raw in text.split("\n"):
        line = raw.rstrip("\r")
        begins = _begins(line, kind, after_blank=blank)
        if begins is not None and (begins is not kind or begins is BlockKind.OTHER):
            if any(lines):
                yield Block(kind, "\n".join(lines))
            kind, lines = begins, []
        lines.append(line)
        blank = not line.strip()
    if any(lines):
        yield Block(kind, "\n".join(lines))


def _begins(line: str, kind: BlockKind, *, after_blank: bool) -> BlockKind | None:
    """The kind of block that ``line`` begins, or None."""
    if line.startswith("NodeName="):
        return BlockKind.NODES
    if line.startswith("JobId="):
        return BlockKind.JOBS
    if kind is not BlockKind.OTHER and not after_blank:
        return None  # free text of a record may look like anything
    if line.startswith("****") and kind is not BlockKind.SDIAG:
        return BlockKind.SDIAG
    if _SENTENCE.match(line) or (_MAY_BE_HEADER.search(line) and _is_header(line)):
        return BlockKind.OTHER
    return None


def _is_header(line: str) -> bool:
    header = parse_header(line)
    return header is not None and (is_job_table(header) or is_node_table(header))
