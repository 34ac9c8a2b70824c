"""The client: clean environment, lanes, errors, and the calls each version gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from collector.process import Completed, ToolMissingError
from collector.slurm.answers import AnswerKind
from collector.slurm.client import SlurmClient, clean_environment
from collector.slurm.live import read_live
from collector.slurm.queries import load_job, load_jobs, load_node, load_nodes, node_argv, nodes_argv
from fleet.clock import ManualClock
from fleet.errors import (
    BackendError,
    ForbiddenError,
    NotFoundError,
    RateLimitedError,
    RefusedError,
    UnavailableError,
)
from fleet.observations import ProblemReason

DATA = Path(__file__).parents[2] / "data" / "slurm"
Answer = Callable[[Sequence[str]], tuple[int, bytes, bytes]]


class Recorder:
    """Answers in place of Slurm's programs and notes what was asked."""

    def __init__(self, answer: Answer, version: str = "22.05.8") -> None:
        self.calls: list[tuple[str, ...]] = []
        self.env: Mapping[str, str] = {}
        self._answer = answer
        self._version = version

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> Completed:
        self.env = env
        if "--version" in argv:
            return Completed(tuple(argv), 0, f"slurm-wlm {self._version}\n".encode(), b"", timeout_seconds)
        self.calls.append(tuple(argv))
        rc, stdout, stderr = self._answer(argv)
        return Completed(tuple(argv), rc, stdout, stderr, 0.0)


def says(stdout: bytes = b"", *, rc: int = 0, stderr: bytes = b"") -> Answer:
    return lambda _argv: (rc, stdout, stderr)


def client(recorder: Recorder, **options: float) -> SlurmClient:
    return SlurmClient(env={"SLURM_CONF": "/x"}, clock=ManualClock(), runner=recorder, base_env={}, **options)


def test_the_environment_is_clean() -> None:
    base = {
        "PATH": "/bin",
        "HOME": "/root",
        "SLURM_TIME_FORMAT": "relative",
        "SLURM_CLUSTERS": "other",
        "SLURM_CONF": "/other",
        "SQUEUE_FORMAT": "%i",
        "SINFO_FORMAT": "%N",
        "SBATCH_EXCLUSIVE": "1",
        "LC_TIME": "de_DE",
        "LC_ALL": "de_DE",
        "TZ": "Europe/Berlin",
    }

    env = clean_environment(base, {"SLURM_CONF": "/etc/ours", "SLURM_TIME_FORMAT": "relative"})

    assert env == {
        "PATH": "/bin",
        "HOME": "/root",
        "SLURM_CONF": "/etc/ours",
        "LC_ALL": "C.UTF-8",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
    }


@pytest.mark.parametrize(
    ("stderr", "error"),
    [
        (b"slurm_update error: Invalid user id", ForbiddenError),
        (b"slurm_update error: Invalid node name specified", NotFoundError),
        (b"Requested operation is presently disabled for job 2", RefusedError),
        (b"Unable to contact slurm controller (connect failure)", UnavailableError),
        (b"???", UnavailableError),
    ],
)
def test_errors_have_a_kind_and_a_sentence(stderr: bytes, error: type[BackendError]) -> None:
    slurm = client(Recorder(says(rc=1, stderr=stderr)))

    with pytest.raises(error) as caught:
        slurm.act(["scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=secret sauce"])

    assert stderr.decode().split(":")[0] in str(caught.value)
    assert "NodeName=n1" in str(caught.value)


def test_a_doubtful_answer_asks_to_be_verified() -> None:
    slurm = client(Recorder(says(rc=1, stderr=b"slurm_update error: Invalid node state specified")))

    assert slurm.act(["scontrol", "update", "NodeName=n1", "State=UNDRAIN"]).kind is AnswerKind.VERIFY
    with pytest.raises(UnavailableError):
        slurm.read(["sinfo"])


def test_reads_are_limited_and_actions_have_their_own_lane() -> None:
    recorder = Recorder(says(b"x"))
    slurm = client(recorder, read_rpc_per_second=0.01, timeout_seconds=5.0)
    slurm.read(["sinfo"])

    with pytest.raises(RateLimitedError):
        slurm.read(["sinfo"])

    slurm.read_back(["sinfo"])
    slurm.act(["scontrol"])
    assert len(recorder.calls) == 3


def test_writes_and_failures_are_logged_with_their_outcome(caplog: pytest.LogCaptureFixture) -> None:
    """Reads that succeed, several a minute for ever, only where debugging is asked for."""
    caplog.set_level(logging.INFO, logger="collector.slurm.client")

    client(Recorder(says(b"x"))).act(["scontrol", "update", "NodeName=n1", "Reason=two words"])
    client(Recorder(says(b"x"))).read(["squeue"])
    with pytest.raises(UnavailableError):
        client(Recorder(says(rc=1, stderr=b"sinfo: error: Unable to contact slurm controller"))).read(
            ["sinfo"]
        )

    assert [record.getMessage() for record in caplog.records] == [
        "slurm: scontrol update NodeName=n1 'Reason=two words' -> ok in 0.000 s",
        "slurm: sinfo -> unavailable in 0.000 s",
    ]


def test_each_version_gets_one_consistent_call() -> None:
    assert nodes_argv((22, 5)) == ("sinfo", "--all", "--json")
    assert node_argv((22, 5), "n1") == ("sinfo", "--all", "--json")
    assert nodes_argv((24, 11)) == ("scontrol", "--all", "show", "nodes", "--json")
    assert node_argv((23, 2), "n1") == ("scontrol", "--all", "show", "node", "n1", "--json")
    with pytest.raises(UnavailableError, match=r"20\.11 prints no JSON"):
        nodes_argv((20, 11))


def test_a_version_that_says_nothing_is_unavailable() -> None:
    slurm = client(Recorder(says(), version="what?"))

    with pytest.raises(UnavailableError, match="version"):
        slurm.version()


def test_one_node_is_picked_out_of_an_unfiltered_answer() -> None:
    slurm = client(Recorder(says((DATA / "22.05/02_draining/sinfo.json").read_bytes())))

    assert load_node(slurm, "n3", now=0).name == "n3"
    with pytest.raises(NotFoundError, match="n99"):
        load_node(slurm, "n99", now=0)


def test_an_unknown_node_of_later_versions_is_not_found() -> None:
    error = b'{"description":"Failure to query node n99","error":"Invalid node name specified"}'
    answer = b'{"nodes":[],"errors":[' + error + b"]}"
    slurm = client(Recorder(says(answer), version="24.11.5"))

    with pytest.raises(NotFoundError):
        load_node(slurm, "n99", now=0)


def test_a_job_that_is_not_there_is_none() -> None:
    slurm = client(Recorder(says((DATA / "22.05/06_requeuehold/squeue.json").read_bytes())))

    assert load_job(slurm, "77", now=0) is None
    found = load_job(slurm, "3_0", now=0)
    assert found is not None
    assert found.raw_id == "4"


@pytest.mark.parametrize("data", [b"", b'{"nodes":[],"errors":[]}'])
def test_no_nodes_at_all_is_not_believed(data: bytes) -> None:
    with pytest.raises(UnavailableError, match="no nodes"):
        load_nodes(client(Recorder(says(data))), now=0)


@pytest.mark.parametrize(
    "data",
    [
        (DATA / "22.05/controller_down_sinfo.json").read_bytes(),
        b'{"nodes":[{"name":"n1","state":["IDLE"]}],"errors":[{"error":"half of it"}]}',
        b'{"nodes":[{"name":"n1","state":["IDLE"]}',
        b"slurm_load_node error: Unable to contact slurm controller (connect failure)",
    ],
)
def test_a_broken_answer_is_unavailable(data: bytes) -> None:
    with pytest.raises(UnavailableError):
        load_nodes(client(Recorder(says(data))), now=0)


def test_no_jobs_is_an_answer_and_an_outage_is_not() -> None:
    assert load_jobs(client(Recorder(says(b'{"jobs":[],"errors":[]}'))), now=0).jobs == ()
    down = (DATA / "22.05/controller_down_squeue.json").read_bytes()
    with pytest.raises(UnavailableError):
        load_jobs(client(Recorder(says(down))), now=0)


def test_a_missing_tool_is_a_problem_of_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    reading = read_live(5.0, clock=ManualClock())

    assert not reading.ok
    assert [problem.reason for problem in reading.problems] == [ProblemReason.TOOL_MISSING]
    assert issubclass(ToolMissingError, UnavailableError)


def test_a_write_may_have_a_deadline_of_its_own_and_asks_for_just_that() -> None:
    asked: list[float] = []
    deadlines: list[float] = []

    def run(argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> Completed:
        deadlines.append(timeout_seconds)
        return Completed(tuple(argv), 0, b"x", b"", 0.0)

    slurm = SlurmClient(
        env={},
        clock=ManualClock(),
        runner=run,
        base_env={},
        timeout_seconds=10.0,
        action_timeout_seconds=3.0,
        may_act=asked.append,
    )
    slurm.act(["scontrol", "reboot", "n1"])
    slurm.read(["sinfo"])
    assert (asked, deadlines) == ([3.0], [3.0, 10.0])
