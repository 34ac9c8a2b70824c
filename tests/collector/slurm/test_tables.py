"""Tables of sinfo, squeue and sacct with a header, as real clusters (22.05.8) and awkward users make them."""

# ruff: noqa: E501 - tables are as wide as they are
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.slurm.columns import Header, parse_header
from tests.support.slurm_records import lines, problems, said

CAPTURED = Path(__file__).parents[2] / "data" / "slurm" / "22.05" / "captured"
CASES = Path(__file__).parents[2] / "data" / "slurm" / "cases"

SACCT = """\
JobID|JobIDRaw|JobName|User|Partition|State|ExitCode|NodeList|Start|End|AllocTRES|ReqTRES|Reason|Restarts|Comment
100|100|a|b|alice|gpu|COMPLETED|0:0|n01|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=8,gres/gpu:h100=2,gres/gpu=2|||0|
100.batch|100.batch|batch|||COMPLETED|0:0|n01|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=8,gres/gpu=2||||
100.extern|100.extern|extern|||COMPLETED|0:0|n01|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=8||||
101_7|108|arr|bob|gpu,debug|CANCELLED by 1001|0:9|n[01-03,07],m1|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=8||None|2|x=1
102_[1-9%3]|102|arr|bob|gpu|PENDING|0:0|None assigned|Unknown|Unknown||cpu=1,gres/gpu=4|Priority|0|
103+1|104|het|bob|gpu|RUNNING|0:0|n02|2026-02-01T10:00:00|Unknown|cpu=1,gres/gpu=1||None|0|
105|105|oom|bob|gpu|OUT_OF_MEMORY|0:125|n02|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=1||None|0|
106|106|mig|bob|gpu|PREEMPTED|0:0|n02|2026-02-01T10:00:00|2026-02-01T11:00:00|gres/gpu:a100_3g.20gb=2,gres/gpu=2||None|0|
107|107|line
break|bob|gpu|TIMEOUT|0:0|n02|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=1||None|0|several
lines
108|109|gone|eve|gpu|NODE_FAIL|1:0|n[04-05]|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=1,gres/gpu=16||None|0|
109|110|odd|eve|gpu|ZORBED|0:0|n06|2026-02-01T10:00:00|2026-02-01T11:00:00|cpu=2,gres/gpu=8,billin||None|0|
"""


def test_accounting_row_by_row() -> None:
    ended = {"ended_at": 1769943600.0}
    gpu: dict[str, Any] = {"partitions": ["gpu"], "restarts": 0}
    bob: dict[str, Any] = {"user": "bob", **gpu}
    whole = {"gpu_use": "exclusive"}
    none = {"gpus": 0, "gpu_use": "none"}
    assert said(SACCT, "job") == [
        {"id": "100", "name": "a|b", "user": "alice", "state": "completed", "nodes": ["n01"], "gpus": 2,
         "kind": "batch", "exit_code": 0, **gpu, **whole, **ended},
        {"id": "101_7", "array": {"job": "101", "task": 7}, "name": "arr", "state": "cancelled",
         "nodes": ["n01", "n02", "n03", "n07", "m1"], "kind": "array_task", "signal": 9, **bob, **none, **ended,
         "partitions": ["gpu", "debug"], "restarts": 2},
        {"id": "102_[1-9%3]", "array": {"job": "102", "tasks": "1-9", "limit": 3}, "name": "arr",
         "state": "pending", "gpus": 4, "kind": "array_task", **bob, **whole},
        {"id": "103+1", "name": "het", "state": "running", "nodes": ["n02"], "gpus": 1, "kind": "het", **bob, **whole},
        {"id": "105", "name": "oom", "state": "out_of_memory", "nodes": ["n02"], "signal": 125, **bob, **none, **ended},
        {"id": "106", "name": "mig", "state": "preempted", "nodes": ["n02"], "gpus": 2, "gpu_use": "slice",
         "exit_code": 0, **bob, **ended},
        {"id": "107", "name": "line\nbreak", "state": "timeout", "nodes": ["n02"], "exit_code": 0, **bob, **none, **ended},
        {"id": "108", "name": "gone", "user": "eve", "state": "node_fail", "nodes": ["n04", "n05"],
         "failed_nodes": ["n04", "n05"], "gpus": 16, "exit_code": 1, **gpu, **whole, **ended},
        {"id": "109", "name": "odd", "user": "eve", "nodes": ["n06"], **gpu},
    ]  # fmt: skip
    assert problems(SACCT) == [("unrecognised_value", 1), ("inconsistent", 1), ("inconsistent", 1)]


def test_tres_without_gpus_say_nothing_where_the_site_does_not_account_them() -> None:
    row = "JobID|State|NodeList|AllocTRES\n7|RUNNING|n1|billing=1,cpu=1,node=1\n"
    (job,) = said(row, "job")
    assert "gpus" not in job
    with_gpus = row + "8|RUNNING|n1|billing=1,cpu=1,gres/gpu=1,node=1\n"
    assert [job["gpus"] for job in said(with_gpus, "job")] == [0, 1]


def test_accounting_in_default_columns_keeps_cut_cells_unknown() -> None:
    table = """\
JobID           JobName  Partition    Account  AllocCPUS      State ExitCode
------------ ---------- ---------- ---------- ---------- ---------- --------
200               train        gpu       proj         16  COMPLETED      0:0
200.batch         batch                  proj         16  COMPLETED      0:0
201_[1-1000+      sweep        gpu       proj          1    PENDING      0:0
202          a very lo+        gpu       proj         16 OUT_OF_ME+    0:125
203               train   gpu-long       proj         16 CANCELLED+      0:0
"""
    one = {"partitions": ["gpu"], "restarts": 0}
    assert said(table, "job") == [
        {"id": "200", "name": "train", "state": "completed", "kind": "batch", "exit_code": 0, **one},
        {"id": "202", "state": "out_of_memory", "signal": 125, **one},
        {
            "id": "203",
            "name": "train",
            "state": "cancelled",
            "exit_code": 0,
            **one,
            "partitions": ["gpu-long"],
        },
    ]
    assert problems(table) == [("unreadable", 1), ("truncated", 1)]


def test_a_requeued_job_is_one_job_and_its_failed_nodes_are_blamed_once() -> None:
    jobs = {
        job["id"]: job for job in said((CASES / "sacct-job-state-forms" / "input.txt").read_bytes(), "job")
    }
    assert jobs["5003"] == {
        "id": "5003",
        "state": "running",
        "nodes": ["n04", "n05"],
        "failed_nodes": ["n02", "n03"],
        "kind": "batch",
        "restarts": 1,
    }
    assert {key: job["state"] for key, job in jobs.items()} == {
        "5001": "cancelled",
        "5002": "cancelled",
        "5003": "running",
        "5004": "timeout",
        "5005_[3-9%2]": "pending",
        "5006+1": "out_of_memory",
        "5007": "boot_fail",
        "5008": "launch_failed",
    }
    assert jobs["5004"]["restarts"] == 0
    blamed = {node for job in jobs.values() for node in job.get("failed_nodes", [])}
    assert blamed == {"n02", "n03", "n08", "n09"}
    assert "ended_at" not in jobs["5008"]


def test_comments_with_line_breaks_and_half_delimiters() -> None:
    data = (CASES / "sacct-multiline-and-bad-bytes" / "input.txt").read_bytes()
    jobs = {job["id"]: job for job in said(data, "job")}
    assert {key: (job["state"], job["nodes"], job["name"]) for key, job in jobs.items()} == {
        "4001": ("completed", ["n01", "n02"], "train"),
        "4002": ("failed", ["n03"], "eval"),
        "4003": ("timeout", ["n04"], "x"),
        "4004": ("node_fail", ["n05"], "\ufffd cut"),
    }
    assert jobs["4004"]["failed_nodes"] == ["n05"]
    assert problems(data) == [("unreadable", 1), ("inconsistent", 1)]


def test_a_name_cannot_pretend_to_be_the_rest_of_its_row() -> None:
    header = "JobID|JobName|State|NodeList|Start|End|ExitCode\n"
    row = "1|x|COMPLETED|n9|2026-02-01T10:00:00|Unknown|0:0|FAILED|n1|2026-02-01T10:00:00|2026-02-01T10:00:09|1:0\n"
    (job,) = said(header + row, "job")
    assert (job["state"], job["nodes"], job["exit_code"]) == ("failed", ["n1"], 1)
    # With the free text at both ends nobody can tell, so the row is skipped and counted.
    doubtful = "JobName|State|JobID|Comment\na|FAILED|1|COMPLETED|2|b\n"
    assert (said(doubtful, "job"), problems(doubtful)) == ([], [("unreadable", 1)])


@pytest.mark.parametrize("name", ["squeue_o", "squeue_l"])
def test_jobs_of_a_real_cluster_in_other_formats(name: str) -> None:
    exact = {job["id"]: job for job in said((CAPTURED / "squeue.json").read_bytes(), "job")}
    table = said((CAPTURED / name).read_bytes(), "job")
    assert {job["id"] for job in table} <= set(exact)
    assert len(table) == (13 if name == "squeue_o" else 11)
    for job in table:
        for key in set(job) - {"time_left_seconds", "restarts", "kind", "name"}:
            assert job[key] == exact[job["id"]][key], (job["id"], key)


def test_columns_of_twenty_characters_are_not_believed_when_full() -> None:
    data = (CAPTURED / "squeue_O").read_bytes()
    jobs = said(data, "job")
    assert [(job["id"], job["name"]) for job in jobs[:3]] == [("10", "fails"), ("11", "e3"), ("4", "arr")]
    assert not any("gpus" in job for job in jobs)
    assert problems(data) == [("truncated", 13)]
    nodes = {node["name"]: node for node in said((CAPTURED / "sinfo_O").read_bytes(), "node")}
    assert nodes["n3"]["state"] == "draining"
    assert "reason" not in nodes["n3"]
    assert (nodes["n3"]["gpus_total"], nodes["n3"]["gpus_allocated"]) == (8, 2)


def test_a_list_of_reasons_names_no_states() -> None:
    table = """\
REASON               USER      TIMESTAMP           NODELIST
bad dimm             root      2026-02-01T10:00:00 n[1-2]
Not responding       slurm     2026-02-01T10:00:00 n3
0123456789012345678x root      2026-02-01T10:00:00 n4
"""
    nodes = {node["name"]: node for node in lines(table) if node["type"] == "node"}
    assert {key: (n["state"], n["owner"], n["schedulable"]) for key, n in nodes.items()} == dict.fromkeys(
        ("n1", "n2", "n3", "n4"), ("unknown", "foreign", False)
    )
    assert nodes["n2"]["reason"] == {"text": "bad dimm", "user": "root", "time": 1769940000.0}
    assert nodes["n4"]["reason"] is None
    assert problems(table) == [("truncated", 1), ("partial", 1)]


def test_nodes_with_every_column() -> None:
    table = (
        "NODELIST|STATE|GRES|GRES_USED|REASON|TIMESTAMP|USER|PARTITION|FREE_MEM|COMMENT\n"
        "n1.example.com|mixed|gpu:h100:4(S:0),gpu:l40s:2(S:1),nvme:1|gpu:h100:0(IDX:N/A),gpu:l40s:1(IDX:5)|none|Unknown|Unknown|gpu*|1000|(null)\n"
        "n1.example.com|mixed|gpu:h100:4(S:0),gpu:l40s:2(S:1),nvme:1|gpu:h100:0(IDX:N/A),gpu:l40s:1(IDX:5)|none|Unknown|Unknown|long|1000|(null)\n"
        'n2|drained*|gpu:(null):3(IDX:0-2)|gpu:0|a | "b", c=d|2026-02-01T10:00:00|root(0)|gpu*|N/A|é, x=1\n'
        "n3|idle|gpu:a100_3g.20gb:2,gpu:a100:1|(null)|none|Unknown|Unknown|gpu*|5|\n"
        "n4|idle|(null)|(null)|none|Unknown|Unknown|cpu|5|\n"
        "n5|idle|gpu:h100:8,shard:h10|N/A|none|Unknown|Unknown|gpu*|5|\n"
    )
    base = {"partitions": ["gpu"], "owner": "none", "schedulable": True, "base": "idle", "state": "idle"}
    assert said(table, "node") == [
        {**base, "name": "n1.example.com", "state": "mixed", "base": "mixed", "partitions": ["gpu", "long"],
         "gpus_total": 6, "gpus_allocated": 1, "gpu_types": {"h100": 4, "l40s": 2}, "memory_free_bytes": 1048576000},
        {**base, "name": "n2", "state": "drained", "flags": ["DRAIN", "NOT_RESPONDING"], "gpus_total": 3,
         "gpus_allocated": 0, "gpu_types": {"gpu": 3}, "owner": "foreign", "schedulable": False, "comment": "é, x=1",
         "reason": {"text": 'a | "b", c=d', "user": "root", "time": 1769940000.0}},
        {**base, "name": "n3", "gpus_allocated": 0, "gpu_types": {"a100_3g.20gb": 2, "a100": 1},
         "memory_free_bytes": 5242880},
        {**base, "name": "n4", "partitions": ["cpu"], "gpus_total": 0, "gpus_allocated": 0, "memory_free_bytes": 5242880},
        {**base, "name": "n5", "memory_free_bytes": 5242880},
    ]  # fmt: skip
    assert problems(table) == [("inconsistent", 1), ("inconsistent", 1)]


@pytest.mark.parametrize(
    ("name", "hint"),
    [("sinfo_s", "summary"), ("squeue_s", "steps"), ("steps.txt", "steps"), ("sinfo.yaml", "--json")],
)
def test_listings_that_say_nothing_of_nodes_and_jobs(name: str, hint: str) -> None:
    (problem,) = lines((CAPTURED / name).read_bytes())
    assert (problem["type"], problem["reason"]) == ("problem", "unreadable")
    assert hint in problem["message"]


def test_clusters_share_no_job_ids() -> None:
    table = "CLUSTER: alpha\nJOBID|STATE|CLUSTER\n1|RUNNING|alpha\n1|PENDING|beta\n"
    assert [job["state"] for job in said(table, "job")] == ["running", "pending"]


def test_a_job_in_several_partitions_is_one_job() -> None:
    table = "JOBID|PARTITION|STATE\n1|short|PENDING\n1|long|PENDING\n2|short,long|PENDING\n"
    assert [job["partitions"] for job in said(table, "job")] == [["short", "long"], ["short", "long"]]


@pytest.mark.parametrize(
    ("line", "header"),
    [
        ("JobID|State|", Header(("JOBID", "STATE", ""), "|")),
        ("JobID|#State", Header(("JOBID", "STATE"), "|#")),
        ("JOBID\tSTATE", Header(("JOBID", "STATE"), "\t")),
        ("JOBID NODELIST(REASON)", Header(("JOBID", "NODELISTREASON"), None, (0, 6))),
        ("JOBID,CPUS(A/I/O/T),JOBID", Header(("JOBID", "CPUSAIOT", "JOBID#2"), ",")),
        ("JOBID", None),
        ("1|2", None),
        ("a|b,c", None),
    ],
)
def test_headers(line: str, header: Header | None) -> None:
    assert parse_header(line) == header


_CELL = st.text(alphabet=st.characters(blacklist_categories=("Cs",), blacklist_characters="\r"), max_size=12)


@given(_CELL, _CELL)
def test_no_name_and_comment_change_state_or_nodes(name: str, comment: str) -> None:
    row = f"7|x{name}|FAILED|n1|3:0|2026-02-01T10:00:00|y{comment}\n"
    jobs = said("JobID|JobName|State|NodeList|ExitCode|End|Comment\n" + row, "job")
    assert all(
        (job["id"], job["state"], job["nodes"], job["exit_code"]) == ("7", "failed", ["n1"], 3)
        for job in jobs[:1]
    )
    assert jobs or problems("JobID|JobName|State|NodeList|ExitCode|End|Comment\n" + row)
