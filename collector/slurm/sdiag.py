"""``sdiag``, text and JSON: how the scheduler itself is doing, as samples.

What is printed concerns slurmctld, not a node or GPU, so the samples name neither. Times are microseconds
in Slurm (sdiag(1)) and seconds here. RPC counts show what each kind of call, and each user (also ourselves),
costs.
Read from real output of 22.05.8 and 24.11.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from collector.slurm import values
from collector.slurm.records import Findings
from fleet.observations import ProblemReason, Sample

Json = Mapping[str, Any]
_MICRO = 1e-6
# signal -> (JSON key, section and line of the text, factor)
_FIELDS: Mapping[str, tuple[str, str, float]] = {
    "scheduler_server_threads": ("server_thread_count", "/Server thread count", 1.0),
    "scheduler_agent_queue_size": ("agent_queue_size", "/Agent queue size", 1.0),
    "scheduler_agent_threads": ("agent_thread_count", "/Agent thread count", 1.0),
    "scheduler_accounting_queue_size": ("dbd_agent_queue_size", "/DBD Agent queue size", 1.0),
    "scheduler_cycle_last_seconds": ("schedule_cycle_last", "main/Last cycle", _MICRO),
    "scheduler_cycle_max_seconds": ("schedule_cycle_max", "main/Max cycle", _MICRO),
    "scheduler_cycle_mean_seconds": ("schedule_cycle_mean", "main/Mean cycle", _MICRO),
    "scheduler_cycles_total": ("schedule_cycle_total", "main/Total cycles", 1.0),
    "scheduler_queue_length": ("schedule_queue_length", "main/Last queue length", 1.0),
    "scheduler_backfill_cycle_last_seconds": ("bf_cycle_last", "backfill/Last cycle", _MICRO),
    "scheduler_backfill_cycle_max_seconds": ("bf_cycle_max", "backfill/Max cycle", _MICRO),
    "scheduler_backfill_cycle_mean_seconds": ("bf_cycle_mean", "backfill/Mean cycle", _MICRO),
    "scheduler_backfill_queue_length": ("bf_queue_len", "backfill/Last queue length", 1.0),
}
_TAKEN_AT = re.compile(r"^sdiag output at .*\((\d{9,11})\)\s*$", re.MULTILINE | re.ASCII)
_LINE = re.compile(r"^\s*([A-Z][A-Za-z ]*):\s*(\d{1,18})\s*$", re.ASCII)
_RPC = re.compile(
    r"^\s+(\S+)\s+\(\s*\d+\)\s+count:(\d{1,18})\s+ave_time:\d+\s+total_time:(\d{1,18})\s*$", re.ASCII
)
_SECTIONS = (
    ("Main schedule statistics", "main"),
    ("Backfilling stats", "backfill"),
    ("Remote Procedure Call statistics by message type", "rpc"),
    ("Remote Procedure Call statistics by user", "user"),
    ("Pending RPC", "other"),
    ("Main scheduler exit", "other"),
    ("Backfill exit", "other"),
    ("Latency", "other"),
)


def is_sdiag(text: str) -> bool:
    return _TAKEN_AT.search(text[:1000]) is not None


def read_text(text: str, found: Findings, *, now: float) -> None:
    """Lines that are no ``name: number`` (a restart leaves some empty) are skipped: absent."""
    taken = _TAKEN_AT.search(text)
    time = float(taken[1]) if taken else now
    section = ""
    numbers: dict[str, int] = {}
    for line in text.split("\n"):
        section = next((name for title, name in _SECTIONS if line.startswith(title)), section)
        if (rpc := _RPC.match(line)) and section in ("rpc", "user"):
            found.samples.extend(_rpc(section, rpc[1], int(rpc[2]), int(rpc[3]), time))
        elif match := _LINE.match(line):
            numbers.setdefault(f"{'' if section == 'other' else section}/{match[1].strip()}", int(match[2]))
    for signal, (_, place, factor) in _FIELDS.items():
        if place in numbers:
            found.samples.append(_sample(signal, numbers[place] * factor, time))


def read_json(statistics: Json, found: Findings, *, now: float) -> None:
    time = values.moment(statistics.get("req_time")) or now
    something = False
    for signal, (key, _, factor) in _FIELDS.items():
        amount = values.number(statistics.get(key))
        if amount is not None and amount >= 0:
            something = True
            found.samples.append(_sample(signal, amount * factor, time))
    for key, section, label in (
        ("rpcs_by_message_type", "rpc", "message_type"),
        ("rpcs_by_user", "user", "user"),
    ):
        rows = statistics.get(key)
        for row in rows if isinstance(rows, list) else []:
            name = values.text(row.get(label)) if isinstance(row, dict) else None
            calls = values.count(row.get("count")) if isinstance(row, dict) else None
            took = values.count(row.get("total_time")) if isinstance(row, dict) else None
            if name is not None and calls is not None and took is not None:
                found.samples.extend(_rpc(section, name, calls, took, time))
    if not something:
        found.fail(ProblemReason.UNREADABLE, "sdiag's JSON without any known number")


def _rpc(section: str, name: str, calls: int, microseconds: int, time: float) -> Iterator[Sample]:
    label, what = ("message", "rpc") if section == "rpc" else ("user", "user_rpc")
    yield _sample(f"scheduler_{what}_calls_total", float(calls), time, {label: name})
    yield _sample(f"scheduler_{what}_seconds_total", microseconds * _MICRO, time, {label: name})


def _sample(signal: str, value: float, time: float, labels: Mapping[str, str] | None = None) -> Sample:
    return Sample(node=None, signal=signal, value=round(value, 9), time=time, labels=labels or {})
