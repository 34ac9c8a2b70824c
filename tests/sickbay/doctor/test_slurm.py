"""Slurm's answers as recorded, and no command that could change anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from collector.process import Completed
from collector.slurm.client import SlurmClient
from fleet.clock import ManualClock, SystemClock
from sickbay.config import parse_config
from sickbay.doctor.model import Status
from sickbay.doctor.run import examine
from sickbay.doctor.slurm import SlurmChecks, read_level

DATA = Path(__file__).parents[2] / "data/doctor"
CONFIG = (DATA / "scontrol_show_config_22.05.txt").read_text()
PING = (DATA / "scontrol_ping_22.05.txt").read_text()
WITH_DBD = CONFIG.replace("accounting_storage/none", "accounting_storage/slurmdbd")
TAKEN_AT = datetime(2026, 11, 30, 11, 24, 13, tzinfo=UTC).timestamp()
# Every command that may be run: nothing here writes.
READS = ("scontrol ping", "scontrol --version", "scontrol show config", "sacctmgr -n -P show user")
Answer = str | tuple[int, str, str]


class Commands:
    """Plays answers by the beginning of the command line; ``run`` is what was asked."""

    def __init__(self, **answers: Answer) -> None:
        self._answers: dict[str, Answer] = {
            "scontrol ping": answers.get("ping", PING),
            "scontrol --version": answers.get("version", "slurm 22.05.8"),
            "scontrol show config": answers.get("config", CONFIG),
            "sacctmgr": answers.get("level", ""),
        }
        self.run: list[str] = []

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float) -> Completed:
        line = " ".join(argv)
        self.run.append(line)
        said = next(answer for begins, answer in self._answers.items() if line.startswith(begins))
        rc, out, err = (0, said, "") if isinstance(said, str) else said
        return Completed(tuple(argv), rc, out.encode(), err.encode(), 0.01)


def look(
    commands: Commands,
    *,
    user: tuple[str, int] = ("root", 0),
    clock: ManualClock | None = None,
    environ: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
    **more: Any,
) -> dict[str, tuple[Status, str]]:
    config = parse_config(
        {
            "cluster": "a",
            "scheduler": {"kind": "slurm", "slurm": {"env": dict(env or {})}},
            "metrics": {"source": "scrape"},
            **more,
        }
    )
    clock = clock or ManualClock(TAKEN_AT + 0.4)
    client = SlurmClient(env=env or {}, clock=clock, base_env={}, runner=commands, read_rpc_per_second=1000)
    checks = SlurmChecks(config, clock, client=client, environ=environ or {}, user=user)
    results = examine(checks.checks(), SystemClock())
    assert all(line.startswith(READS) for line in commands.run)
    return {one.name: (one.status, one.sentence) for one in results}


def test_a_cluster_that_is_well() -> None:
    commands = Commands()
    found = look(commands)
    for name in ("answers", "version", "environment", "rights", "clock"):
        assert found[f"slurm.{name}"][0] is Status.OK, found[f"slurm.{name}"]
    assert sorted(commands.run) == ["scontrol --version", "scontrol ping", "scontrol show config"]


DOWN = "Slurmctld(primary) at host1 is DOWN\n*** RESTORE SLURMCTLD DAEMON TO SERVICE ***"


@pytest.mark.parametrize(
    ("ping", "status", "said"),
    [
        ((1, DOWN, ""), Status.FAIL, "primary host1 is down"),
        ((1, "", "slurm_ping error: Invalid argument"), Status.FAIL, "Invalid argument"),
        # 22.05 has commands that exit 0 while nobody answers.
        (
            (0, "", "scontrol: error: Unable to contact slurm controller (connect failure)"),
            Status.FAIL,
            "Unable",
        ),
        ((0, "", ""), Status.FAIL, "does not answer"),
        (
            (1, "Slurmctld(primary) at h1 is DOWN\nSlurmctld(backup) at h2 is UP\n", ""),
            Status.WARN,
            "primary h1 is down",
        ),
        (
            "Slurmctld(primary) at h1 is UP\nSlurmctld(backup) at h2 is DOWN\n",
            Status.WARN,
            "backup h2 is down",
        ),
    ],
)
def test_who_answers(ping: Answer, status: Status, said: str) -> None:
    found = look(Commands(ping=ping))["slurm.answers"]
    assert found[0] is status
    assert said in found[1]


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("slurm 20.11.9", Status.FAIL),
        ("slurm 22.05.8", Status.OK),
        ("slurm 24.11.5", Status.OK),
        ("slurm 27.05.0", Status.WARN),
        ("not Slurm at all", Status.UNKNOWN),
    ],
)
def test_versions(version: str, status: Status) -> None:
    assert look(Commands(version=version))["slurm.version"][0] is status


def test_commands_and_controller_of_two_releases() -> None:
    found = look(Commands(version="slurm 24.11.5"))
    assert found["slurm.version_match"][0] is Status.WARN
    assert "22.05" in found["slurm.version_match"][1]
    assert "slurm.version_match" not in look(Commands())


@pytest.mark.parametrize(
    ("user", "config", "level", "mode", "status"),
    [
        (("root", 0), CONFIG, "", "auto", Status.OK),
        (("jo", 1000), CONFIG.replace("= root(0)", "= jo(1000)"), "", "auto", Status.OK),
        (("jo", 1000), CONFIG, "", "auto", Status.FAIL),
        (("jo", 1000), CONFIG, "", "observe", Status.OK),
        (("jo", 1000), WITH_DBD, "jo|Administrator\n", "auto", Status.OK),
        (("jo", 1000), WITH_DBD, "jo|Operator\n", "auto", Status.FAIL),
        (("jo", 1000), WITH_DBD, "jo|None\n", "approve", Status.FAIL),
        (("jo", 1000), WITH_DBD, "", "auto", Status.FAIL),
        (("jo", 1000), WITH_DBD, "something else", "auto", Status.UNKNOWN),
        (("jo", 1000), WITH_DBD, (1, "", "sacctmgr: error: Connection refused"), "auto", Status.UNKNOWN),
    ],
)
def test_rights(user: tuple[str, int], config: str, level: Answer, mode: str, status: Status) -> None:
    found = look(Commands(config=config, level=level), user=user, mode=mode)
    assert found["slurm.rights"][0] is status, found["slurm.rights"]


def test_the_user_of_a_token_is_not_known() -> None:
    found = look(Commands(), user=("jo", 1000), env={"SLURM_JWT": "x.y.z"}, mode="auto")
    assert found["slurm.rights"][0] is Status.UNKNOWN


def test_an_unknown_level_leaves_the_settings_judged() -> None:
    config = WITH_DBD.replace("PrivateData             = none", "PrivateData             = jobs")
    found = look(Commands(config=config, level=(1, "", "no slurmdbd")), user=("jo", 1000))
    assert found["slurm.private_data"][0] is Status.UNKNOWN
    assert found["slurm.job_requeue"][0] is Status.OK


@pytest.mark.parametrize(
    ("off", "status", "side"),
    [
        (0.4, Status.OK, ""),
        (3.5, Status.OK, ""),
        (20.0, Status.WARN, "behind"),
        (-20.0, Status.WARN, "ahead"),
        (400.0, Status.FAIL, "behind"),
    ],
)
def test_clocks(off: float, status: Status, side: str) -> None:
    found = look(Commands(), clock=ManualClock(TAKEN_AT + off))["slurm.clock"]
    assert found[0] is status
    assert side in found[1]


@pytest.mark.parametrize(
    ("shell", "ours", "status"),
    [(None, None, Status.OK), ("/a", None, Status.WARN), ("/a", "/b", Status.WARN), ("/a", "/a", Status.OK)],
)
def test_the_shells_slurm_conf_is_not_the_services(
    shell: str | None, ours: str | None, status: Status
) -> None:
    environ = {} if shell is None else {"SLURM_CONF": shell}
    env = {} if ours is None else {"SLURM_CONF": ours}
    assert look(Commands(), environ=environ, env=env)["slurm.environment"][0] is status


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("jo|Operator\n", "Operator"),
        ("", "None"),
        ("al|Operator\n", None),
        ("jo|Weird\n", None),
        ("jo\n", None),
    ],
)
def test_levels(text: str, level: str | None) -> None:
    assert read_level(text.encode(), "jo") == level
