"""scontrol show config, as a real 22.05.8 printed it, with one setting changed at a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.errors import UnavailableError
from sickbay.config import Config, parse_config
from sickbay.doctor.model import Status
from sickbay.doctor.slurm_settings import Case, Standing, acts, judge, parse_settings

RECORDED = (Path(__file__).parents[2] / "data/doctor/scontrol_show_config_22.05.txt").read_text()
ROOT = Standing("root", privileged=True, exempt_from_limits=True)
NOBODY = Standing("jo", privileged=False, exempt_from_limits=False)
OPERATOR = Standing("jo", privileged=True, exempt_from_limits=False)
UNKNOWN = Standing("jo", privileged=None, exempt_from_limits=False)


def config(**more: Any) -> Config:
    return parse_config(
        {"cluster": "a", "scheduler": {"kind": "slurm"}, "metrics": {"source": "scrape"}, **more}
    )


def recorded(**changes: str | None) -> str:
    """The recorded text with settings replaced, added, or (None) taken out."""
    text = RECORDED
    for key, value in changes.items():
        line = f"{key:<23} = {value}" if value is not None else ""
        text, count = re.subn(rf"(?m)^{key}\s*= .*$", line, text)
        if not count and value is not None:
            text += f"{line}\n"
    return text


def statuses(
    configured: Config, standing: Standing = ROOT, **changes: str | None
) -> dict[str, tuple[Status, str]]:
    settings = parse_settings(recorded(**changes).encode())
    return {
        one.name.removeprefix("slurm."): (one.status, one.sentence)
        for one in judge(Case(settings, configured, standing))
    }


def test_the_recorded_text_is_read_whole() -> None:
    settings = parse_settings(RECORDED.encode())
    assert settings.text("SLURM_VERSION") == "22.05.8"
    assert settings.user("SlurmUser") == "root"
    assert settings.seconds("SlurmdTimeout") == 15
    assert settings.text("Prolog") is None
    assert settings.words("GresTypes") == ("gpu",)
    assert settings.option("SchedulerParameters", "bf_interval") == "2"
    assert settings.option("SchedulerParameters", "absent") is None
    assert settings.taken_at == datetime(2026, 11, 30, 11, 24, 13, tzinfo=UTC).timestamp()


OBSERVE, AUTO = {"mode": "observe"}, {"mode": "auto"}
ACTING_IN_ONE = {"mode": "auto", "pools": [{"name": "p", "match": {"partition": "gpu"}, "mode": "observe"}]}


@pytest.mark.parametrize(
    ("name", "changes", "standing", "more", "status"),
    [
        ("reboot_program", {}, ROOT, AUTO, Status.OK),
        ("reboot_program", {"RebootProgram": "(null)"}, ROOT, AUTO, Status.FAIL),
        ("reboot_program", {"RebootProgram": "(null)"}, ROOT, OBSERVE, Status.WARN),
        ("reboot_program", {"RebootProgram": "(null)"}, ROOT, ACTING_IN_ONE, Status.WARN),
        ("reboot_program", {"RebootProgram": "(null)"}, ROOT, {"repair": {"enabled": False}}, None),
        (
            "reboot_program",
            {"RebootProgram": "(null)"},
            ROOT,
            {"mode": "auto", "repair": {"commands": {"reboot": ["/x"]}}},
            None,
        ),
        ("resume_timeout", {"ResumeTimeout": "60 sec"}, ROOT, AUTO, Status.WARN),
        ("resume_timeout", {"ResumeTimeout": "900 sec"}, ROOT, AUTO, Status.OK),
        ("resume_timeout", {"ResumeTimeout": None}, ROOT, AUTO, Status.UNKNOWN),
        ("return_to_service", {"ReturnToService": "0"}, ROOT, AUTO, Status.OK),
        ("return_to_service", {"ReturnToService": "1"}, ROOT, AUTO, Status.OK),
        ("return_to_service", {"ReturnToService": "2"}, ROOT, AUTO, Status.WARN),
        ("return_to_service", {"ReturnToService": "odd"}, ROOT, AUTO, Status.UNKNOWN),
        ("slurmd_timeout", {"SlurmdTimeout": "300 sec"}, ROOT, AUTO, Status.OK),
        ("slurmd_timeout", {"SlurmdTimeout": "15 sec"}, ROOT, AUTO, Status.WARN),
        ("slurmd_timeout", {"SlurmdTimeout": "0 sec"}, ROOT, AUTO, Status.WARN),
        ("message_timeout", {"MessageTimeout": "10 sec"}, ROOT, AUTO, Status.OK),
        ("message_timeout", {"MessageTimeout": "60 sec"}, ROOT, AUTO, Status.WARN),
        ("message_timeout", {"MessageTimeout": None}, ROOT, AUTO, Status.UNKNOWN),
        ("job_requeue", {"JobRequeue": "1"}, ROOT, AUTO, Status.OK),
        ("job_requeue", {"JobRequeue": "0"}, ROOT, AUTO, Status.WARN),
        ("job_requeue", {"JobRequeue": "0"}, ROOT, {"jobs": {"requeue": False}}, None),
        ("max_batch_requeue", {}, ROOT, AUTO, None),
        ("max_batch_requeue", {"MaxBatchRequeue": "5"}, ROOT, AUTO, Status.OK),
        ("max_batch_requeue", {"MaxBatchRequeue": "2"}, ROOT, AUTO, Status.WARN),
        ("health_check", {}, ROOT, AUTO, Status.OK),
        (
            "health_check",
            {"HealthCheckProgram": "/nhc", "HealthCheckInterval": "300 sec"},
            ROOT,
            AUTO,
            Status.WARN,
        ),
        (
            "health_check",
            {"HealthCheckProgram": "/nhc", "HealthCheckInterval": "0 sec"},
            ROOT,
            AUTO,
            Status.OK,
        ),
        ("prolog", {}, ROOT, AUTO, None),
        ("prolog", {"Prolog": "/etc/prolog"}, ROOT, AUTO, Status.WARN),
        (
            "prolog",
            {"Prolog": "/etc/prolog", "SchedulerParameters": "bf_interval=2,nohold_on_prolog_fail"},
            ROOT,
            AUTO,
            Status.OK,
        ),
        ("private_data", {"PrivateData": "none"}, NOBODY, OBSERVE, Status.OK),
        ("private_data", {"PrivateData": "accounts,usage"}, NOBODY, OBSERVE, Status.OK),
        ("private_data", {"PrivateData": "jobs,nodes"}, NOBODY, OBSERVE, Status.FAIL),
        ("private_data", {"PrivateData": "jobs"}, UNKNOWN, OBSERVE, Status.UNKNOWN),
        ("private_data", {"PrivateData": "jobs"}, OPERATOR, OBSERVE, Status.OK),
        ("rate_limit", {}, OPERATOR, AUTO, None),
        ("rate_limit", {"SlurmctldParameters": "rl_enable"}, ROOT, AUTO, Status.OK),
        ("rate_limit", {"SlurmctldParameters": "rl_enable"}, OPERATOR, AUTO, Status.WARN),
        ("rate_limit", {"SlurmctldParameters": "rl_enable,rl_refill_rate=50"}, OPERATOR, AUTO, Status.OK),
        ("min_job_age", {"MinJobAge": "300 sec"}, ROOT, AUTO, Status.OK),
        ("min_job_age", {"MinJobAge": "2 sec"}, ROOT, AUTO, Status.WARN),
        ("min_job_age", {"MinJobAge": "0 sec"}, ROOT, AUTO, Status.OK),
    ],
)
def test_what_hurts(
    name: str, changes: dict[str, str | None], standing: Standing, more: dict[str, Any], status: Status | None
) -> None:
    found = statuses(config(**more), standing, **changes)
    assert (found[name][0] if name in found else None) is status


def test_the_delay_of_a_requeued_job_is_the_credentials_life_and_one() -> None:
    plain = statuses(config())["requeue_delay"]
    shorter = statuses(config(), AuthInfo="socket=/x,cred_expire=5")["requeue_delay"]
    assert "121 s" in plain[1]
    assert " 6 s" in shorter[1]


@pytest.mark.parametrize(
    "text", ["", "slurm_load_ctl_conf error: Unable to contact slurm controller", "a = b"]
)
def test_no_configuration_is_unavailable(text: str) -> None:
    with pytest.raises(UnavailableError, match="no configuration"):
        parse_settings(text.encode())


def test_who_acts() -> None:
    assert not acts(config())
    assert acts(config(mode="approve"))
    assert not acts(config(**ACTING_IN_ONE))
    assert acts(config(mode="auto", pools=[{"name": "p", "match": {"partition": "g"}}]))


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        settings = parse_settings(b"SlurmUser = x\n" + data)
    except UnavailableError:
        pytest.fail("there was a SlurmUser")
    for one in judge(Case(settings, config(), NOBODY)):
        assert one.sentence
