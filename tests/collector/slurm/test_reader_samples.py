"""Output of real clusters: text and JSON of the same moment must say the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.slurm.reader import read_captured
from fleet.observations import ProblemReason, Reading
from fleet.scheduler import ArrayRef, GpuUse, JobKind, JobRecord, NodeState, Owner

DATA = Path(__file__).parents[2] / "data" / "slurm"
NOW = 1_796_038_100.0


def read(name: str) -> Reading:
    return read_captured((DATA / name).read_bytes(), now=NOW, utc=True)


def job(reading: Reading, job_id: str) -> JobRecord:
    return next(record for record in reading.jobs if record.id == job_id)


@pytest.mark.parametrize("folder", sorted(p.name for p in (DATA / "22.05").iterdir() if p.is_dir()))
def test_nodes_of_22_05_in_text_and_json(folder: str) -> None:
    text, jsons = read(f"22.05/{folder}/scontrol_nodes.txt"), read(f"22.05/{folder}/sinfo.json")

    assert text.problems == jsons.problems == ()
    for from_text, from_json in zip(text.nodes, jsons.nodes, strict=True):
        for key in ("name", "base", "gpus_total", "gpus_allocated", "partitions", "reason", "comment"):
            assert getattr(from_text, key) == getattr(from_json, key), key
        assert (from_text.state, set(from_text.flags)) == (from_json.state, set(from_json.flags))
        assert (from_text.owner, from_text.schedulable) == (from_json.owner, from_json.schedulable)


@pytest.mark.parametrize("folder", sorted(p.name for p in (DATA / "24.11").iterdir() if p.is_dir()))
def test_nodes_of_24_11_in_three_forms(folder: str) -> None:
    text, jsons = read(f"24.11/{folder}/scontrol_nodes.txt"), read(f"24.11/{folder}/show_node.json")
    grouped = read(f"24.11/{folder}/sinfo.json")

    assert text.problems == jsons.problems == grouped.problems == ()
    by_name = {node.name: node for node in grouped.nodes}
    for from_text, from_json in zip(text.nodes, jsons.nodes, strict=True):
        for other in (from_text, by_name[from_json.name]):
            assert (other.name, other.state, set(other.flags)) == (
                from_json.name,
                from_json.state,
                set(from_json.flags),
            )
            assert (other.gpus_total, other.gpus_allocated) == (8, from_json.gpus_allocated)
            assert other.owner is from_json.owner


@pytest.mark.parametrize(
    ("name", "node", "state", "owner"),
    [
        ("22.05/02_draining/sinfo.json", "n1", NodeState.DRAINING, Owner.FOREIGN),
        ("22.05/10_reboot_issued/sinfo.json", "n1", NodeState.REBOOTING, Owner.FOREIGN),
        ("22.05/12_node_down/sinfo.json", "n4", NodeState.DOWN, Owner.NONE),
        ("22.05/15_fail/sinfo.json", "n5", NodeState.DRAINED, Owner.FOREIGN),
        ("22.05/22_maint/sinfo.json", "n5", NodeState.MAINTENANCE, Owner.NONE),
        ("22.05/23_gres_low/sinfo.json", "n3", NodeState.DRAINING, Owner.FOREIGN),
        ("24.11/draining/show_node.json", "n1", NodeState.DRAINING, Owner.SICKBAY),
        ("24.11/inval/show_node.json", "n3", NodeState.DRAINED, Owner.FOREIGN),
        ("24.11/reboot_issued/show_node.json", "n2", NodeState.REBOOTING, Owner.FOREIGN),
    ],
)
def test_what_a_node_is(name: str, node: str, state: NodeState, owner: Owner) -> None:
    found = next(record for record in read(name).nodes if record.name == node)

    assert (found.state, found.owner) == (state, owner)


@pytest.mark.parametrize("folder", ["06_requeuehold", "08_array", "17_job_states", "captured"])
def test_jobs_of_22_05_in_text_and_json(folder: str) -> None:
    text, jsons = read(f"22.05/{folder}/scontrol_jobs.txt"), read(f"22.05/{folder}/squeue.json")

    assert text.problems == jsons.problems == ()
    by_id = {record.id: record for record in text.jobs}
    for from_json in jsons.jobs:
        from_text = by_id[from_json.id]
        for key in ("raw_id", "array", "state", "nodes", "gpus", "requeue", "kind", "restarts", "exit_code"):
            assert getattr(from_text, key) == getattr(from_json, key), (from_json.id, key)
        for key in ("signal", "submitted_at", "excluded_nodes", "required_nodes", "held", "user", "name"):
            assert getattr(from_text, key) == getattr(from_json, key), (from_json.id, key)


@pytest.mark.parametrize("name", ["22.05/06_requeuehold/squeue.json", "24.11/held/squeue.json"])
def test_a_job_in_our_hold(name: str) -> None:
    held = job(read(name), "1")

    assert (held.state, held.nodes, held.gpus, held.restarts) == ("pending", (), 16, 2)
    assert (held.state_reason, held.state_text) == ("JobHeldUser", "job requeued in held state")
    assert held.held is True
    assert held.excluded_nodes == ("n1",)
    assert held.begins_at is not None
    assert held.submitted_at is not None
    assert held.begins_at - held.submitted_at == 121
    assert (held.kind, held.requeue, held.gpu_use) == (JobKind.BATCH, True, GpuUse.EXCLUSIVE)
    assert (held.exit_code, held.signal, held.ended_at) == (None, None, None)


def test_array_elements_and_what_is_left_of_an_array() -> None:
    reading = read("22.05/06_requeuehold/squeue.json")

    element, rest = job(reading, "3_1"), job(reading, "3_[2-3%2]")
    assert (element.raw_id, element.array) == ("5", ArrayRef("3", task=1))
    assert (rest.raw_id, rest.array) == ("3", ArrayRef("3", tasks="2-3", limit=2))
    assert element.kind is rest.kind is JobKind.ARRAY_TASK


def test_how_jobs_ended() -> None:
    ended = {record.id: record for record in read("22.05/17_job_states/squeue.json").jobs}

    assert {record.state for record in ended.values()} >= {"cancelled", "node_fail", "failed", "completed"}
    failed = next(record for record in ended.values() if record.state == "failed" and record.exit_code)
    assert (failed.exit_code, failed.signal) == (3, None)
    assert all(
        (record.ended_at is None) == (record.state in ("running", "pending")) for record in ended.values()
    )


def test_default_squeue_and_sinfo_tables() -> None:
    queue = read("22.05/06_requeuehold/squeue.txt")
    assert job(queue, "3_[2-3%2]").state == "pending"
    assert job(queue, "2").nodes == ("n3",)
    assert queue.problems == ()
    assert len(read("22.05/06_requeuehold/sinfo.txt").nodes) == 6
    assert read("22.05/06_requeuehold/squeue_o.txt").problems == ()


def test_multi_line_forms() -> None:
    nodes, jobs = read("22.05/scontrol_show_node_txt.txt"), read("22.05/scontrol_show_job_txt.txt")

    assert nodes.problems == jobs.problems == ()
    assert {node.gpus_total for node in nodes.nodes} == {8}
    assert all(record.kind is not JobKind.UNKNOWN for record in jobs.jobs)


@pytest.mark.parametrize("name", ["controller_down_sinfo.json", "controller_down_squeue.json"])
def test_an_unreachable_controller_is_no_empty_cluster(name: str) -> None:
    reading = read(f"22.05/{name}")

    assert not reading.ok
    assert [problem.reason for problem in reading.problems] == [ProblemReason.CONTROLLER_UNREACHABLE]


@pytest.mark.parametrize("data", [b"", b"\n", b'{"nodes":[],"errors":[]}', b"No jobs in the system\n"])
def test_truly_empty_is_a_good_answer(data: bytes) -> None:
    assert read_captured(data, now=NOW) == Reading()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"nodes":[{"name":"n1","state"', ProblemReason.TRUNCATED),
        (b'{"hello":1}', ProblemReason.UNREADABLE),
        (b"hello world", ProblemReason.UNREADABLE),
        (b"Node n99 not found\n", ProblemReason.QUERY_ERROR),
        (b"slurm_load_jobs error: Invalid job id specified\n", ProblemReason.QUERY_ERROR),
        (b"sinfo: error: Access/permission denied\n", ProblemReason.PERMISSION_DENIED),
        (b"\xff\xfe\x00", ProblemReason.UNREADABLE),
    ],
)
def test_what_is_no_answer(data: bytes, reason: ProblemReason) -> None:
    reading = read_captured(data, now=NOW)

    assert not reading.ok
    assert [problem.reason for problem in reading.problems] == [reason]


def test_one_bad_record_does_not_hide_the_good_ones() -> None:
    data = b"""{"nodes":[{"name":"n[1-9]","state":"idle"},7,{"name":"n2","state":"idle","gres":"gpu:h100:x"}],
    "errors":[]}
    {"jobs":[{"job_id":1,"job_state":"RUNNING","nodes":"n[3-1]"},{"job_state":"RUNNING"},
    {"job_id":2,"job_state":["ALIEN"],"nodes":"n2"}],"errors":[{"description":"odd"}]}"""

    reading = read_captured(data, now=NOW)

    assert reading.ok
    assert [(node.name, node.gpus_total) for node in reading.nodes] == [("n2", None)]
    assert [(record.id, record.state, record.nodes) for record in reading.jobs] == [
        ("1", "running", ()),
        ("2", "unknown", ("n2",)),
    ]
    assert sorted((p.reason.value, p.count) for p in reading.problems) == [
        ("inconsistent", 1),
        ("partial", 1),
        ("unreadable", 1),
        ("unreadable", 1),
        ("unreadable", 2),
        ("unrecognised_value", 1),
    ]


def test_sentinels_and_infinity_are_absent() -> None:
    data = b"""{"nodes":[{"name":"n1","state":["IDLE"],"free_mem":-2,"boot_time":0,"gres":null}],
    "jobs":[]}{"jobs":[{"job_id":5,"job_state":["RUNNING"],"nodes":"n1","time_limit":4294967294,
    "end_time":{"set":false,"infinite":true,"number":0},"priority":Infinity,"memory_per_node":4294967295}]}"""

    reading = read_captured(data, now=NOW)

    (node,), (record,) = reading.nodes, reading.jobs
    assert (node.memory_free_bytes, node.boot_time, node.gpus_total) == (None, None, None)
    assert (record.time_left_seconds, record.held, record.memory_bytes) == (None, None, None)


def test_time_left_counts_from_now() -> None:
    template = '{"jobs":[{"job_id":5,"job_state":"%s","nodes":"n1","time_limit":60,"end_time":%d}]}'
    running = read_captured((template % ("RUNNING", NOW + 90)).encode(), now=NOW)
    pending = read_captured((template % ("PENDING", 0)).encode(), now=NOW)

    assert running.jobs[0].time_left_seconds == 90
    assert pending.jobs[0].time_left_seconds == 3600


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("768", (3, None)),
        ("9", (None, 9)),
        ('{"status":["SUCCESS"],"return_code":{"set":true,"infinite":false,"number":0}}', (0, None)),
        (
            '{"status":["SIGNALED"],"return_code":{"set":false,"number":0},"signal":{"id":{"set":true,"number":9}}}',
            (None, 9),
        ),
        ("null", (None, None)),
    ],
)
def test_exit_codes_of_every_era(value: str, expected: tuple[int | None, int | None]) -> None:
    data = f'{{"jobs":[{{"job_id":5,"job_state":"FAILED","exit_code":{value}}}]}}'.encode()
    (record,) = read_captured(data, now=NOW).jobs

    assert (record.exit_code, record.signal) == expected


def test_text_that_imitates_a_record_does_not_put_a_sick_node_back() -> None:
    data = b"""NodeName=n1 CfgTRES=cpu=1 State=IDLE+DRAIN Partitions=gpu
   Reason=evil [root@2026-02-07T02:12:31]
NodeName=n1 State=IDLE Partitions=gpu
"""

    reading = read_captured(data, now=NOW, utc=True)

    (node,) = reading.nodes
    assert (node.state, node.schedulable) == (NodeState.UNKNOWN, False)
    assert ProblemReason.CONFLICT in {problem.reason for problem in reading.problems}


def test_a_reason_of_several_lines() -> None:
    data = b"""NodeName=n1 Arch=x86_64
   State=IDLE+DRAIN ThreadsPerCore=1
   Partitions=gpu
   CfgTRES=cpu=64
   Reason=first line [ops@2026-02-07T02:12:31]
second line
   Comment=see ticket
"""

    (node,) = read_captured(data, now=NOW, utc=True).nodes

    assert node.reason is not None
    assert (node.reason.text, node.reason.user) == ("first line\nsecond line", "ops")
    assert node.comment == "see ticket"


@given(st.binary(max_size=300))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    reading = read_captured(data, now=NOW)

    assert reading.ok or reading.problems


@given(
    st.text(
        alphabet=st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="|\u0085\u2028\u2029"),
        max_size=60,
    )
)
def test_no_reason_text_changes_the_state_of_its_row(reason: str) -> None:
    row = f"n01|x {reason} | y|2026-02-07T02:12:31|drained\n"
    (node,) = read_captured(row.encode(), now=NOW, utc=True).nodes

    assert node.state is NodeState.DRAINED
    assert node.reason is not None
    assert node.reason.text == f"x {reason} | y"


def test_long_listing_headers_and_empty_partitions() -> None:
    long = b"""Mon Nov 30 11:24:13 2026
NODELIST   NODES PARTITION       STATE CPUS    S:C:T MEMORY TMP_DISK WEIGHT AVAIL_FE REASON
n1             1      gpu*       mixed 64     2:32:1 512000        0      1  h100,ib none
n2             1      gpu*     drained 64     2:32:1 512000        0      1  h100,ib GPU 3 fell off the b
"""
    assert [(n.name, n.state.value) for n in read_captured(long, now=NOW).nodes] == [
        ("n1", "mixed"),
        ("n2", "drained"),
    ]
    headed = read_captured(b"NODELIST|REASON|TIMESTAMP|STATE\nn1|none|Unknown|idle\n", now=NOW)
    assert ([node.name for node in headed.nodes], headed.problems) == (["n1"], ())
    empty = b"PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\nold          up   infinite      0    n/a \n"
    assert read_captured(empty, now=NOW) == Reading()
