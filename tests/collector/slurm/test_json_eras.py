"""JSON of the commands and of slurmrestd, from 21.08 to 26.05, and several documents in one input.

22.05 and 24.11 are from real clusters; the forms of the others are as SchedMD documents them.
"""

# ruff: noqa: E501 - inputs are as wide as they are
from __future__ import annotations

import ast
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.slurm import json_jobs, json_nodes, json_sacct
from collector.slurm.json_items import JOB_KEYS, NODE_KEYS
from collector.slurm.reader import read_captured
from tests.support.slurm_records import NOW, lines, problems, said

DATA = Path(__file__).parents[2] / "data" / "slurm"


def whole(number: int | None, *, infinite: bool = False) -> dict[str, Any]:
    return {"set": number is not None, "infinite": infinite, "number": number or 0}


def nodes(*items: dict[str, Any], **more: Any) -> str:
    return json.dumps({"nodes": items, "errors": [], "warnings": [], **more})


def jobs(*items: dict[str, Any], **more: Any) -> str:
    return json.dumps({"jobs": items, "errors": [], **more})


@pytest.mark.parametrize(
    ("states", "word", "base"),
    [
        (["IDLE"], "idle", "idle"),
        (["IDLE", "RESERVED", "DRAIN", "MAINTENANCE"], "drained", "idle"),
        (["MAINTENANCE", "IDLE"], "maintenance", "idle"),
        (["IDLE", "RESERVED"], "reserved", "idle"),
        (["MIXED", "PLANNED"], "mixed", "mixed"),
        (["ALLOCATED", "DRAIN", "REBOOT_REQUESTED"], "rebooting", "allocated"),
        (["DOWN", "REBOOT_ISSUED", "NOT_RESPONDING"], "rebooting", "down"),
        (["DOWN", "CLOUD", "POWERED_DOWN", "NOT_RESPONDING"], "down", "down"),
        (["IDLE", "CLOUD", "POWERED_DOWN"], "powered_down", "idle"),
        (["ALLOCATED", "CLOUD", "POWERING_UP"], "powered_down", "allocated"),
        (["IDLE", "DRAIN", "POWER_DRAIN"], "powered_down", "idle"),
        (["IDLE", "DRAIN", "COMPLETING"], "draining", "idle"),
        (["IDLE", "FAIL"], "drained", "idle"),
        (["MIXED", "FAIL"], "draining", "mixed"),
        (["IDLE", "DRAIN", "NOT_RESPONDING"], "drained", "idle"),
        (["IDLE", "NOT_RESPONDING"], "unknown", "idle"),
        (["MIXED", "INVALID_REG"], "unknown", "mixed"),
        (["IDLE", "COMPLETING"], "allocated", "idle"),
        (["FUTURE", "DYNAMIC_FUTURE"], "unknown", "future"),
        (["UNKNOWN", "DRAIN"], "unknown", "unknown"),
        (["ERROR"], "down", "error"),
        (["DRAIN"], "unknown", "unknown"),
        (["IDLE", "BLOCKED"], "idle", "idle"),
        (["IDLE", "EXTERNAL"], "idle", "idle"),
    ],
)
def test_the_first_state_that_matches(states: list[str], word: str, base: str) -> None:
    (node,) = said(nodes({"name": "n1", "state": states}), "node")
    assert node.get("state", "unknown") == word
    assert node.get("base", "unknown") == base
    assert set(node.get("flags", [])) == set(states) - {base.upper()}


def test_a_flag_that_nobody_knows_costs_nothing_but_a_problem() -> None:
    text = nodes({"name": "n1", "state": ["MIXED", "DRAIN", "INVALID", "SPARKLING"]})
    assert [node["state"] for node in said(text, "node")] == ["draining"]
    assert problems(text) == [("unrecognised_value", 1)]
    text = jobs({"job_id": 1, "job_state": ["RUNNING", "SPARKLING"], "nodes": "n1"})
    assert [job["state"] for job in said(text, "job")] == ["running"]
    assert problems(text) == [("unrecognised_value", 1)]


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("RUNNING", "running"),
        ("COMPLETING", "completing"),
        (["COMPLETED", "COMPLETING"], "completing"),
        (["COMPLETING", "NODE_FAIL"], "completing"),
        (["PENDING", "LAUNCH_FAILED"], "pending"),
        (["LAUNCH_FAILED", "PENDING"], "pending"),
        (["REQUEUED", "PENDING"], "pending"),
        (["PENDING", "REQUEUE_HOLD"], "requeue_hold"),
        (["PENDING", "SPECIAL_EXIT"], "special_exit"),
        (["RUNNING", "CONFIGURING", "POWER_UP_NODE"], "configuring"),
        (["PENDING", "EXPEDITING"], "pending"),
        (["SUSPENDED"], "suspended"),
        (["REVOKED"], "revoked"),
    ],
)
def test_job_states_of_every_era(states: object, word: str) -> None:
    text = jobs({"job_id": 1, "job_state": states})
    assert [job["state"] for job in said(text, "job")] == [word]
    assert problems(text) == []


def test_a_job_of_the_latest_form_whole() -> None:
    item = {
        "job_id": 108,
        "array_job_id": whole(101),
        "array_task_id": whole(0),
        "array_task_string": "",
        "het_job_id": whole(0),
        "het_job_offset": whole(0),
        "name": 'say "hi"\\ | é\n{"id":2}',
        "user_name": "u1",
        "user_id": 1001,
        "job_state": ["RUNNING"],
        "nodes": "n[01-03,07],m1",
        "partition": "gpu",
        "tres_alloc_str": "cpu=16,mem=128G,node=5,billing=16,gres/gpu=8,gres/gpu:h100=8",
        "tres_per_node": "gres/gpu:8",
        "requeue": True,
        "batch_flag": True,
        "restart_cnt": 2,
        "time_limit": whole(60),
        "end_time": whole(int(NOW) + 90),
        "memory_per_node": whole(4096),
        "exit_code": {"status": ["SUCCESS"], "return_code": whole(0), "signal": {"id": whole(None)}},
        "failed_node": "",
        "something_new": {"deep": [1, 2, {"er": None}]},
    }
    (line,) = lines(jobs(item))
    assert line == {
        "type": "job",
        "id": "101_0",
        "array": {"job": "101", "task": 0},
        "name": 'say "hi"\\ | é\n{"id":2}',
        "user": "u1",
        "state": "running",
        "nodes": ["n01", "n02", "n03", "n07", "m1"],
        "partitions": ["gpu"],
        "gpus": 8,
        "gpu_use": "exclusive",
        "requeue": True,
        "kind": "array_task",
        "time_left_seconds": 90.0,
        "memory_bytes": 4096 * 1024 * 1024,
        "exit_code": None,
        "signal": None,
        "failed_nodes": [],
        "ended_at": None,
        "restarts": 2,
    }


@pytest.mark.parametrize(
    ("request_", "gpus", "use"),
    [
        ({"tres_per_job": "gres/gpu:4"}, 4, "exclusive"),
        ({"tres_per_job": "gres:gpu:4"}, 4, "exclusive"),
        ({"tres_per_node": "gres/gpu:h100:2", "node_count": whole(3)}, 6, "exclusive"),
        ({"tres_per_node": "gres:gpu", "node_count": 2}, 2, "exclusive"),
        ({"tres_per_task": "cpu=4,gres/gpu=1", "tasks": whole(5)}, 5, "exclusive"),
        ({"tres_per_task": "gres/gpu=1", "tasks": whole(None)}, None, "unknown"),
        ({"tres_per_socket": "gres/gpu:1"}, None, "unknown"),
        ({"tres_per_node": "gres/gpu:titan:0", "node_count": whole(3)}, 0, "none"),
        ({"tres_alloc_str": "cpu=1,gres/gpu:rtx_2080_ti=1"}, 1, "exclusive"),
        ({"tres_alloc_str": "cpu=1,gres/gpu=3,gres/gpu:nvidia_a100_1g.10gb=3"}, 3, "slice"),
        ({"gres_detail": ["gpu:h100:8(IDX:0-7)", "gpu:h100:4(IDX:0-3)"]}, 12, "exclusive"),
        ({"gres_detail": ["gpu:NVlink_A100_40GB:2(IDX:0,3)"]}, 2, "exclusive"),
        ({"tres_alloc_str": "cpu=1,gres/shard=4"}, 0, "none"),
        ({"gres_detail": ["shard:4(0/5,4/5)"]}, None, "shared"),
        ({"tres_alloc_str": "gres/gpu=8,gres/gpu:h10"}, None, "unknown"),
        ({"licenses": "fluent:2"}, 0, "none"),
    ],
)
def test_effective_gpus(request_: dict[str, Any], gpus: int | None, use: str) -> None:
    (job,) = (
        line
        for line in lines(jobs({"job_id": 1, "job_state": ["PENDING"], **request_}))
        if line["type"] == "job"
    )
    assert (job["gpus"], job["gpu_use"]) == (gpus, use)


def test_numbers_that_are_none() -> None:
    for absent in (
        whole(None),
        whole(None, infinite=True),
        {"set": True, "infinite": True, "number": 0},
        4294967294,
        -2,
        None,
    ):
        item = {
            "job_id": 5,
            "job_state": ["RUNNING"],
            "time_limit": absent,
            "end_time": absent,
            "memory_per_node": absent,
        }
        (job,) = said(jobs(item), "job")
        assert not {"time_left_seconds", "memory_bytes", "ended_at"} & set(job), absent
    infinite = '{"jobs":[{"job_id":5,"job_state":["RUNNING"],"priority":{"set":true,"number":Infinity}}]}'
    assert [job["state"] for job in said(infinite, "job")] == ["running"]
    assert problems(infinite) == []


@pytest.mark.parametrize(
    ("name", "nodes_", "jobs_"),
    [
        ("22.05_v0.0.37_nodes.json", 3, 0),
        ("22.05_v0.0.38_nodes.json", 3, 0),
        ("nodes_v40.json", 4, 0),
        ("nodes_v41.json", 4, 0),
        ("24.11_nodes.json", 4, 0),
        ("22.05_v0.0.38_jobs.json", 0, 2),
        ("24.11_jobs.json", 0, 5),
    ],
)
def test_answers_of_slurmrestd(name: str, nodes_: int, jobs_: int) -> None:
    data = (DATA / "rest" / name).read_bytes()
    assert (len(said(data, "node")), len(said(data, "job")), problems(data)) == (nodes_, jobs_, [])
    assert all(node["gpus_total"] == 8 for node in said(data, "node"))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("rest_node_nope.json", "query_error"),
        ("rest_job_99999.json", "query_error"),
        ("unix_local_slurm_v0.0.38_node_nope.json", "query_error"),
        ("unix_local_slurmdb_v0.0.38_jobs.json", "query_error"),
        ("22.05_v0.0.39_nodes.json", "query_error"),
        ("ctld_down_jobs.json", "controller_unreachable"),
        ("ctld_down_nodes.json", "controller_unreachable"),
        ("ctld_down_scontrol_ping_json.json", "controller_unreachable"),
    ],
)
def test_a_failed_query_is_no_empty_cluster(name: str, reason: str) -> None:
    reading = read_captured((DATA / "rest" / name).read_bytes(), now=NOW)
    assert (reading.ok, [p.reason.value for p in reading.problems], len(reading.records)) == (
        False,
        [reason],
        1,
    )


def test_warnings_are_no_errors_and_errors_beside_data_are_partial() -> None:
    node = {"name": "n1", "state": ["IDLE"]}
    assert problems(nodes(node, warnings=[{"description": "x"}])) == []
    assert problems(nodes(node, errors=[{"description": "half of it"}])) == [("partial", 1)]


@pytest.mark.parametrize("era", ["22.05", "23.11", "25.05"])
def test_accounting_of_every_era(era: str) -> None:
    data = (DATA / "cases" / "sacct-json-generations" / f"input.{era}.json").read_bytes()
    expected: dict[str, Any] = {"id": "8101", "name": "täst\nrun", "state": "node_fail", "nodes": ["n02", "n03"],
                                "gpus": 16, "gpu_use": "exclusive", "kind": "batch", "restarts": 1}  # fmt: skip
    expected |= {
        "22.05": {"exit_code": 1, "ended_at": 1770430351.0},
        "23.11": {"exit_code": 1, "ended_at": 1770430351.0, "failed_nodes": ["n03"]},
        "25.05": {"signal": 9, "failed_nodes": ["n03"]},
    }[era]
    assert said(data, "job") == [expected]
    assert problems(data) == []


def test_accounting_of_a_real_cluster_in_text_and_json() -> None:
    exact = {job["id"]: job for job in said((DATA / "accounting" / "sacct.json").read_bytes(), "job")}
    table = {job["id"]: job for job in said((DATA / "accounting" / "sacct_P.txt").read_bytes(), "job")}
    assert set(exact) == set(table) == {"1", "2", "3", "4"}
    for key, job in table.items():
        for name in ("state", "nodes", "gpus", "gpu_use", "kind", "ended_at", "restarts", "name"):
            assert job[name] == exact[key][name], (key, name)
    # 22.05's JSON says SUCCESS, 0 of a job that exited with 7: nobody believes that of a FAILED job.
    assert (table["3"]["exit_code"], exact["3"].get("exit_code")) == (7, None)
    assert exact["4"]["restarts"] == 1


def test_the_schedulers_own_health() -> None:
    for name in ("22.05/captured/sdiag.txt", "24.11/sdiag.json"):
        data = (DATA / name).read_bytes()
        samples = {(s["signal"], *s.get("labels", {}).values()): s for s in said(data, "sample")}
        assert {"scheduler_server_threads", "scheduler_cycle_last_seconds"} <= {key[0] for key in samples}
        assert samples[("scheduler_user_rpc_calls_total", "root")]["value"] > 0
        assert ("scheduler_rpc_seconds_total", "REQUEST_PARTITION_INFO") in samples
        assert problems(data) == []
    after_restart = "*****\nsdiag output at Mon Nov 30 11:24:13 2026 (1796037853)\n*****\nServer thread count:\nAgent count: x\n"
    assert (said(after_restart, "sample"), problems(after_restart)) == ([], [])


def test_several_documents_and_texts_in_one_input() -> None:
    parts = [
        nodes({"name": "n1", "state": ["IDLE"]}),
        jobs({"job_id": 1, "job_state": ["RUNNING"], "nodes": "n1"}),
        "squeue: error: spank: something harmless",
        jobs({"job_id": 2, "job_state": ["RUNNING"], "nodes": "n1"}),
        "NODELIST|STATE\nn2|mixed",
        "JOBID|STATE|NODELIST\n3|RUNNING|n2",
        "NodeName=n3 State=DOWN CfgTRES=cpu=1",
    ]
    text = "\n".join(parts)
    assert [node["name"] for node in said(text, "node")] == ["n1", "n2", "n3"]
    assert [job["id"] for job in said(text, "job")] == ["1", "2", "3"]
    assert problems(text) == [("query_error", 1)]


def test_an_error_sentence_before_and_after_data_is_told() -> None:
    text = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"
    reading = read_captured(text.encode(), now=NOW)
    assert (reading.ok, problems(text)) == (False, [("controller_unreachable", 1)])
    assert problems("NODELIST|STATE\nn2|mixed\n" + text) == [("controller_unreachable", 1)]


def test_what_two_listings_say_of_one_node_is_one_record() -> None:
    text = "NODELIST|STATE\nn1|draining\n\nNodeName=n1 Gres=gpu:h100:8 GresUsed=gpu:h100:4(IDX:0-3) State=ALLOCATED+DRAIN CfgTRES=cpu=1 Reason=x [ops@2026-02-07T02:12:31]\n"
    (node,) = said(text, "node")
    assert (node["state"], node["gpus_total"], node["gpus_allocated"], node["owner"]) == (
        "draining",
        8,
        4,
        "foreign",
    )
    assert node["reason"]["text"] == "x"


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("2026-10-25T02:30:00", None),  # twice
        ("2026-03-29T02:30:00", None),  # never
        ("2026-10-25T02:30:00+0200", 1792888200.0),
        ("2026-10-25T04:30:00", 1792899000.0),
        ("1792899000", 1792899000.0),
        ("2026-13-25T04:30:00", None),
        ("3 minutes ago", None),
        ("Unknown", None),
    ],
)
def test_a_time_that_is_not_one_moment_is_unknown(word: str, expected: float | None) -> None:
    text = f"JobID|State|End\n1|FAILED|{word}\n"
    reading = read_captured(text.encode(), now=NOW)
    assert [job.ended_at for job in reading.jobs] == [expected]
    assert len(reading.problems) == (expected is None and word != "Unknown")


def test_the_quick_decoder_keeps_every_key_that_is_read() -> None:
    for module, keys in ((json_nodes, NODE_KEYS), (json_jobs, JOB_KEYS), (json_sacct, JOB_KEYS)):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        asked = {
            str(node.args[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "item"
            and isinstance(node.args[0], ast.Constant)
        }
        assert asked
        assert asked <= set(keys)


@pytest.mark.parametrize("name", sorted(p.relative_to(DATA).as_posix() for p in DATA.rglob("*.json")))
def test_the_quick_decoder_and_the_general_one_agree(name: str) -> None:
    data = (DATA / name).read_bytes()
    slow = read_captured(b"[" + data + b"]", now=NOW)
    if slow.ok:
        assert read_captured(data, now=NOW) == slow


CORPUS = [
    *sorted(p for p in (DATA / "22.05" / "captured").iterdir()),
    DATA / "accounting" / "sacct.json",
    DATA / "24.11" / "draining" / "show_node.json",
    DATA / "24.11" / "draining" / "scontrol_nodes.txt",
]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CORPUS), st.integers(0, 40_000), st.integers(0, 40_000), st.binary(max_size=6))
def test_damage_never_raises_and_never_makes_up_a_node(
    path: Path, start: int, length: int, junk: bytes
) -> None:
    data = path.read_bytes()
    damaged = data[: start % (len(data) + 1)] + junk + data[(start + length) % (len(data) + 1) :]
    reading = read_captured(damaged, now=NOW, utc=True)
    assert reading.ok or reading.problems
    for node in reading.nodes:
        assert node.gpus_total is None or 0 <= node.gpus_total < 10**13
        assert node.reason is None or node.reason.time is None or node.reason.time > 0
    for job in reading.jobs:
        assert job.time_left_seconds is None or job.time_left_seconds >= 0
        assert job.ended_at is None or job.ended_at > 0


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CORPUS), st.integers(0, 60_000))
def test_cut_off_json_invents_nothing(path: Path, at: int) -> None:
    data = path.read_bytes()
    if not data.startswith(b"{") or at % len(data) == 0:
        return
    reading = read_captured(data.rstrip()[: at % (len(data.rstrip()) - 1) or 1], now=NOW)
    assert (reading.ok, reading.nodes, reading.jobs) == (False, (), ())
    assert [p.reason.value for p in reading.problems] == ["truncated"]
