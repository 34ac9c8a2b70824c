"""``scontrol show node`` and ``scontrol show job`` as text, multi-line or one-line (-o).

Attributes come in a fixed order (src/api/node_info.c, job_info.c) and nothing is quoted, so free text
(reason, comment, job name) can imitate the grammar. Known attributes are therefore read only from the part
before the first free text, and a reason ends at its ``[user@time]``. JSON is exact; prefer it. Read from
real output of 22.05.8 and stored output of 24.11.5.
"""

from __future__ import annotations

import re

from collector.slurm import values
from collector.slurm.gres import Gpus, parse_gres
from collector.slurm.jobs import (
    WAITING,
    effective_gpus,
    exit_of_text,
    has_ended,
    identity,
    kind_of,
    time_left,
)
from collector.slurm.records import Findings, build_node, gpu_use
from collector.slurm.states import from_text, job_state_from_text
from fleet.identity import is_node_name
from fleet.observations import ProblemReason
from fleet.scheduler import JobRecord, Reason

_FIELD = r"(?:^|\s){key}=(\S*)"
_TAIL_ORDER = ("Reason", "Comment", "Extra", "InstanceId", "InstanceType", "ReservationName")
_TAIL = re.compile(rf"(?:\n[ ]{{3}}|\s)(?=(?:{'|'.join(_TAIL_ORDER)})=)")
_TAIL_WORD = re.compile(rf"\s({'|'.join(_TAIL_ORDER)})=")
_TAIL_LINE = re.compile(rf"(?:\n[ ]{{3}}|(?<=\S)[ ](?=InstanceType))({'|'.join(_TAIL_ORDER)})=")
_BRACKET = re.compile(r" \[([^\[\]@\s]+)@([^\[\]\s]+)\](?=\s|$)")
# In the one-line form: the bracket, then the end, eight blanks or the next attribute.
_REASON_END = re.compile(
    rf"^\s?Reason=.*?{_BRACKET.pattern}(?=\s*$|[ ]{{8}}\S|\s(?:{'|'.join(_TAIL_ORDER[1:])})=)"
)
_NODE_START = "NodeName="
_JOB_START = "JobId="


def _field(text: str, key: str) -> str | None:
    match = re.search(_FIELD.format(key=re.escape(key)), text)
    return None if match is None or values.is_absent(match[1]) else match[1]


def _split_records(text: str, start: str) -> list[str]:
    """One string per record. A line that does not begin a record belongs to the one before it."""
    records: list[list[str]] = []
    for line in text.split("\n"):
        if line.startswith(start):
            records.append([line])
        elif records:
            records[-1].append(line)
    return ["\n".join(lines).rstrip() for lines in records]


# -- nodes --------------------------------------------------------------------------------------------


def read_nodes(text: str, found: Findings) -> None:
    unusable = []
    for record in _split_records(text, _NODE_START):
        name = _field(record, "NodeName")
        if name is None or not is_node_name(name):
            unusable.append(record)
            continue
        _read_node(name, record, found)
    found.skip_rows(unusable, "scontrol node records without a usable name")


def _read_node(name: str, record: str, found: Findings) -> None:
    head, tail = _head_and_tail(record)
    state = _field(head, "State")
    if state is None:
        found.problem(ProblemReason.UNREADABLE, f"{name}: it has no state", node=name)
    free = values.count(_integer(_field(head, "FreeMem")))
    texts = _free_texts(head, tail)
    os_match = re.search(r"\sOS=(.*?)\s+RealMemory=", head, re.DOTALL)
    found.add_node(
        build_node(
            found,
            name=name,
            states=from_text(state or ""),
            gres=_node_gres(head),
            gres_used=_node_gres_used(head),
            reason=_reason(name, texts.get("Reason"), found),
            partitions=values.words(_field(head, "Partitions")),
            memory_free_bytes=None if free is None else free * values.MIB,
            os=os_match[1].strip() if os_match and os_match[1].strip() else None,
            comment=_free(texts, "Comment"),
            extra=_free(texts, "Extra"),
            boot_time=_time(name, _field(head, "BootTime"), found, node=name),
            reservation=_free(texts, "ReservationName"),
            uid=_free(texts, "InstanceId"),
        )
    )


def _head_and_tail(record: str) -> tuple[str, str]:
    """Fixed attributes before, free text from the first of Reason, Comment, Extra ... behind CfgTRES."""
    after = max(record.find("CfgTRES="), record.find("Partitions="), 0)
    match = _TAIL.search(record, after)
    if match is None:
        return record, ""
    return record[: match.start()], record[match.start() :]


def _free_texts(head: str, tail: str) -> dict[str, str]:
    """The tail's attributes. In the multi-line form each begins a line, three blanks in; what a text's own
    line breaks put there is not indented (Slurm indents those of a reason by ten). In the one-line form an
    attribute ends where the next one in Slurm's order begins.
    """
    multi_line = "\n   " in head
    begins = _TAIL_LINE if multi_line else _TAIL_WORD
    texts: dict[str, str] = {}
    order = -1
    matches: list[re.Match[str]] = []
    end_of_reason = None if multi_line else _REASON_END.search(tail)
    for match in begins.finditer(tail):
        if matches and end_of_reason is not None and match.start() < end_of_reason.end():
            continue  # still the reason: it ends with its bracket
        place = _TAIL_ORDER.index(match[1])
        if place > order:  # anything else is text that looks like an attribute
            order = place
            matches.append(match)
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        texts[match[1]] = tail[match.end() : following.start() if following else len(tail)].strip("\n")
    return texts


def _reason(name: str, text: str | None, found: Findings) -> Reason | None:
    """Slurm puts ``[user@time]`` at the end of the first line, and its further lines behind it."""
    if text is None or not text.strip():
        return None
    first, newline, later = text.partition("\n")
    brackets = list(_BRACKET.finditer(first))
    if not brackets:
        return Reason(text.strip())
    # In the one-line form further lines stand behind the bracket, eight blanks apart.
    ends = [b for b in brackets if re.match(r"\s*$|        \S", first[b.end() :])] or brackets
    end = ends[-1]
    if len(ends) > 1:
        found.problem(
            ProblemReason.INCONSISTENT, f"{name}: the end of its reason is ambiguous in text form", node=name
        )
    said = [first[: end.start()], *first[end.end() :].split("        ")[1:]]
    if newline:
        said += [line.removeprefix(" " * 10) for line in later.split("\n")]
    return Reason("\n".join(said).rstrip(), end[1], _time(name, end[2], found, node=name))


def _free(texts: dict[str, str], key: str) -> str | None:
    said = texts.get(key, "").strip()
    return None if said in ("", "(null)") else said


def _node_gres(head: str) -> Gpus | None:
    match = re.search(r"\sGres=(\S*)", head)
    return None if match is None else parse_gres(match[1])


def _node_gres_used(head: str) -> Gpus | None:
    """GresUsed needs ``scontrol -d``; without it the TRES tell, where the site accounts GPUs."""
    match = re.search(r"\sGresUsed=(\S*)", head)
    if match is not None:
        return parse_gres(match[1])
    configured, allocated = _field(head, "CfgTRES"), re.search(r"\sAllocTRES=(\S*)", head)
    if configured and "gres/gpu" in configured and allocated is not None:
        return parse_gres(allocated[1])
    return None


def _time(name: str, word: str | None, found: Findings, *, node: str | None = None) -> float | None:
    try:
        return None if word is None else values.text_time(word, utc=found.utc)
    except values.UnreadableTimeError as error:
        found.problem(ProblemReason.UNRECOGNISED_VALUE, f"{name}: {error.sentence}", node=node)
        return None


def _integer(word: str | None) -> int | None:
    return int(word) if word is not None and word.lstrip("-").isdigit() else None


# -- jobs ---------------------------------------------------------------------------------------------

_JOB_HEAD = re.compile(
    r"^JobId=(?P<job>\d+)(?:\s+ArrayJobId=(?P<array>\d+)\s+ArrayTaskId=(?P<task>\S+))?"
    r"(?:\s+ArrayTaskThrottle=\d+)?(?:\s+HetJobId=(?P<het>\d+)\s+HetJobOffset=(?P<offset>\d+))?"
    r"(?:\s+HetJobIdSet=\S+)?(?:\s+SLUID=\S+)?\s+JobName=(?P<name>.*?)(?:\s+HetJobIdSet=[\d,\[\]-]+)?\s+UserId=(?P<user>[^\s(]+)\((?P<uid>\d+)\)",
    re.DOTALL,
)
# From here on users write what they like.
_JOB_FREE_TEXT = re.compile(r"\s(?:Command|WorkDir|Comment|AdminComment)=")


def read_jobs(text: str, found: Findings, *, now: float) -> None:
    unusable = []
    for record in _split_records(text, _JOB_START):
        match = _JOB_HEAD.match(record)
        if match is None:
            unusable.append(record)
            continue
        rest = record[match.end() :]
        cut = _JOB_FREE_TEXT.search(rest)
        body = rest if cut is None else rest[: cut.start()]
        tail = "" if cut is None else rest[cut.start() :]
        _read_job(match, body, tail, found, now=now)
    found.skip_rows(unusable, "scontrol job records that do not begin as they should")


def _read_job(head: re.Match[str], body: str, tail: str, found: Findings, *, now: float) -> None:
    task = head["task"]
    who = identity(
        head["job"],
        array_job=head["array"],
        task=int(task) if task and task.isdigit() else None,
        tasks=task if task and not task.isdigit() else None,
        het=(head["het"], int(head["offset"])) if head["het"] else None,
    )
    state = job_state_from_text(_field(body, "JobState") or "")
    if state is None:
        found.problem(ProblemReason.UNRECOGNISED_VALUE, f"job {who.id}: its state is not known")
        state = "unknown"
    ended = has_ended(state)
    times = {
        key: _time(f"job {who.id}", _field(body, key), found)
        for key in ("SubmitTime", "EligibleTime", "StartTime", "EndTime")
    }
    total, use = gpu_use(_job_gpus(body, tail, nodes=_first_number(_field(body, "NumNodes"))))
    exit_code, signal = exit_of_text(_field(body, "ExitCode")) if ended else (None, None)
    batch = _field(body, "BatchFlag")
    requeue = _field(body, "Requeue")
    priority = _integer(_field(body, "Priority"))
    limit = values.text_duration(_field(body, "TimeLimit") or "")
    waiting = state in WAITING
    found.jobs.append(
        JobRecord(
            id=who.id,
            raw_id=who.raw_id,
            array=who.array,
            state=state,
            name=head["name"] or None,
            user=head["user"],
            nodes=() if waiting else found.hosts(_field(body, "NodeList"), f"job {who.id} NodeList"),
            partitions=values.words(_field(body, "Partition")),
            gpus=total,
            gpu_use=use,
            requeue=None if requeue is None else requeue == "1",
            kind=kind_of(who, None if batch is None else batch != "0"),
            time_left_seconds=time_left(state=state, limit=limit, end=times["EndTime"], now=now),
            memory_bytes=_job_memory(body),
            exit_code=exit_code,
            signal=signal,
            ended_at=times["EndTime"] if ended else None,
            restarts=_integer(_field(body, "Restarts")) or 0,
            submitted_at=times["SubmitTime"],
            begins_at=times["EligibleTime" if waiting else "StartTime"],
            state_reason=_field(body, "Reason"),
            excluded_nodes=found.hosts(_field(body, "ExcNodeList"), f"job {who.id} ExcNodeList"),
            required_nodes=found.hosts(_field(body, "ReqNodeList"), f"job {who.id} ReqNodeList"),
            comment=_job_comment(tail),
            held=None if priority is None else priority == 0,
        )
    )


def _job_gpus(body: str, tail: str, *, nodes: int | None) -> Gpus:
    """JOB_GRES needs ``-d``; 22.05 prints TRES=, later versions ReqTRES= and AllocTRES=."""
    detail = re.search(r"\sJOB_GRES=(\S+)", body)
    return effective_gpus(
        allocated=_field(body, "AllocTRES") or _field(body, "TRES"),
        detail=(detail[1],) if detail else (),
        per_job=_trailing(tail, "TresPerJob"),
        per_node=_trailing(tail, "TresPerNode"),
        per_task=_trailing(tail, "TresPerTask"),
        requested=_field(body, "ReqTRES"),
        nodes=nodes,
        tasks=_first_number(_field(body, "NumTasks")),
        # An exclusive job gets all GPUs of its nodes unasked; only -d says how many those are.
        other_request="TresPerSocket=" in tail
        or (_field(body, "OverSubscribe") == "NO" and detail is None and "CPU_IDs=" not in body),
    )


def _trailing(tail: str, key: str) -> str | None:
    """These stand behind the free text, so the last one is Slurm's own."""
    matches = re.findall(rf"\s{key}=(\S+)", tail)
    return matches[-1] if matches else None


def _job_comment(tail: str) -> str | None:
    match = re.search(r"\n\s+Comment=(.*)", tail)
    return match[1].strip() or None if match else None


def _job_memory(body: str) -> int | None:
    word = _field(body, "MinMemoryNode")
    found = values.text_memory(word) if word else None
    return found or None


def _first_number(word: str | None) -> int | None:
    return _integer(word.partition("-")[0]) if word else None
