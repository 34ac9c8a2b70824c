"""``scontrol show config``: what of it hurts a remediator. Pure functions from the text to results.

Facts: slurm.conf(5) of 22.05, Slurm's sources where marked, and what was seen on clusters of 22.05.8 and
24.11.5 (docs/doctor.md names each). Settings without such a fact are not judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from fleet.errors import UnavailableError
from fleet.findings import Mode, Repair
from sickbay.config import Config
from sickbay.doctor.model import Result, fail, ok, unknown, warn

_LINE = re.compile(r"^(?P<key>[A-Za-z_][\w\[\]]*)\s*=(?: (?P<value>.*))?$")
_TAKEN = re.compile(r"^Configuration data as of (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)")
_SECONDS = re.compile(r"(\d+)(?: sec)?")
# A server with eight GPUs initialises for minutes before its slurmd starts.
_LEAST_RESUME_SECONDS = 300
# slurmctld pings every third of SlurmdTimeout. A ping that is answered while a reboot is under way leaves the
# node in REBOOT_ISSUED until ResumeTimeout (seen on 22.05.8).
_LEAST_SLURMD_SECONDS = 60
# SlurmctldParameters=rl_enable without rl_refill_rate (slurm.conf(5) of 23.02 and later).
_DEFAULT_REFILL = 2.0
_DEFAULT_MAX_BATCH_REQUEUE = 5


@dataclass(frozen=True, slots=True)
class SlurmSettings:
    """slurmctld's configuration. ``taken_at``: its own clock as it answered, epoch seconds."""

    values: Mapping[str, str]
    taken_at: float | None = None

    def text(self, key: str) -> str | None:
        """The value; None where it is not listed, or ``(null)``."""
        value = self.values.get(key.lower())
        return None if value is None or value in ("", "(null)") else value

    def seconds(self, key: str) -> int | None:
        """``300 sec`` -> 300; None where it says no number."""
        found = _SECONDS.fullmatch(self.text(key) or "")
        return int(found[1]) if found else None

    def words(self, key: str) -> tuple[str, ...]:
        """``jobs,nodes`` -> its parts, lower case."""
        return tuple(word.strip().lower() for word in (self.text(key) or "").split(",") if word.strip())

    def option(self, key: str, name: str) -> str | None:
        """The value of ``name=value`` in a list; "" where the bare name stands there; None where not."""
        for word in self.words(key):
            head, _, value = word.partition("=")
            if head == name:
                return value
        return None

    def user(self, key: str) -> str | None:
        """``slurm(64030)`` -> ``slurm``."""
        value = self.text(key)
        return value.partition("(")[0] or None if value else None


def parse_settings(data: bytes) -> SlurmSettings:
    """The output of ``scontrol show config`` run with TZ=UTC. UnavailableError when it is none.

    The head line is slurmctld's own time: it fills ``last_update`` as it answers (src/slurmctld/proc_req.c).
    """
    text = data.decode("utf-8", errors="replace")
    values: dict[str, str] = {}
    taken_at = None
    for line in text.splitlines():
        if (head := _TAKEN.match(line)) is not None:
            try:
                moment = datetime.strptime(head["time"], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
            except ValueError:
                continue
            taken_at = moment.timestamp()
        elif (found := _LINE.match(line)) is not None:
            # Other sections (cgroup.conf ...) follow and may repeat a name: the first is slurm.conf's.
            values.setdefault(found["key"].lower(), (found["value"] or "").strip())
    if "slurmuser" not in values:
        raise UnavailableError("scontrol show config: the answer is no configuration of Slurm")
    return SlurmSettings(values, taken_at)


@dataclass(frozen=True, slots=True)
class Standing:
    """How we stand: who we are to Slurm. ``privileged``: root, SlurmUser, Operator or Administrator."""

    user: str
    privileged: bool | None
    exempt_from_limits: bool


@dataclass(frozen=True, slots=True)
class Case:
    """Everything a setting is judged by."""

    settings: SlurmSettings
    config: Config
    standing: Standing
    acts: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "acts", acts(self.config))

    @property
    def slurm_reboots(self) -> bool:
        """Repairs would go through ``scontrol reboot``."""
        repair = self.config.repair
        return repair.enabled and Repair.REBOOT in repair.ladder and Repair.REBOOT not in repair.commands


def acts(config: Config) -> bool:
    """May anything be done at all? ``mode`` is the ceiling over pools."""
    if config.mode is Mode.OBSERVE:
        return False
    return not config.pools or any(pool.mode is not Mode.OBSERVE for pool in config.pools)


def judge(case: Case) -> Iterator[Result]:
    """One result per setting that matters here."""
    for look in _LOOKS:
        found = look(case)
        if found is not None:
            yield found


def _reboot_program(case: Case) -> Result | None:
    name = "slurm.reboot_program"
    if not case.slurm_reboots:
        return None
    program = case.settings.text("RebootProgram")
    if program is not None:
        return ok(name, f"RebootProgram is {program}")
    says = fail if case.acts else warn
    return says(
        name,
        "RebootProgram is not set, so `scontrol reboot` reboots no node and a repair by reboot cannot end",
        "set RebootProgram in slurm.conf, or repair.commands.reboot, or take reboot out of repair.ladder",
    )


def _resume_timeout(case: Case) -> Result | None:
    name = "slurm.resume_timeout"
    seconds = case.settings.seconds("ResumeTimeout")
    if not case.slurm_reboots:
        return None
    if seconds is None:
        return _unread(name, "ResumeTimeout")
    if seconds >= _LEAST_RESUME_SECONDS:
        return ok(name, f"ResumeTimeout is {seconds} s")
    return warn(
        name,
        f"ResumeTimeout is {seconds} s: a node that is not back by then is set DOWN with 'reboot timed out', "
        "and GPU servers take minutes",
        "set ResumeTimeout in slurm.conf above the slowest boot you have seen, 900 say",
    )


def _return_to_service(case: Case) -> Result | None:
    name = "slurm.return_to_service"
    value = case.settings.text("ReturnToService")
    if value in ("0", "1"):
        return ok(name, f"ReturnToService is {value}: a node that rebooted by surprise stays DOWN for a look")
    if value == "2":
        return warn(
            name,
            "ReturnToService is 2: a node that crashed and came back takes jobs again at once, unchecked "
            "(drains, ours too, are not affected)",
            "set ReturnToService=1 if you want such a node to wait for a person",
        )
    return _unread(name, "ReturnToService")


def _slurmd_timeout(case: Case) -> Result | None:
    name = "slurm.slurmd_timeout"
    seconds = case.settings.seconds("SlurmdTimeout")
    if seconds is None:
        return _unread(name, "SlurmdTimeout")
    if seconds == 0:
        return warn(
            name,
            "SlurmdTimeout is 0: Slurm never sets a silent node DOWN, so a dead node looks alive",
            "set SlurmdTimeout=300 (the default), unless another tool watches the slurmds",
        )
    if seconds < _LEAST_SLURMD_SECONDS:
        return warn(
            name,
            f"SlurmdTimeout is {seconds} s: nodes go DOWN in short silences, and a ping during a reboot can "
            "leave a node in REBOOT_ISSUED until ResumeTimeout",
            "set SlurmdTimeout=300, the default",
        )
    return ok(name, f"SlurmdTimeout is {seconds} s")


def _message_timeout(case: Case) -> Result | None:
    name = "slurm.message_timeout"
    seconds = case.settings.seconds("MessageTimeout")
    ours = case.config.scheduler.slurm.timeout_seconds
    if seconds is None:
        return _unread(name, "MessageTimeout")
    if ours >= seconds:
        return ok(name, f"MessageTimeout is {seconds} s, our own time-out {ours:g} s")
    return warn(
        name,
        f"our time-out ({ours:g} s) ends before Slurm's own (MessageTimeout, {seconds} s): a call that Slurm "
        "would still answer is given up, and its outcome is unknown",
        f"set scheduler.slurm.timeout_seconds to {seconds} or more, and lease.duration_seconds above it",
    )


def _job_requeue(case: Case) -> Result | None:
    name = "slurm.job_requeue"
    if not case.config.jobs.requeue:
        return None
    value = case.settings.text("JobRequeue")
    if value == "1":
        return ok(name, "JobRequeue is 1: batch jobs may be requeued unless their user says no")
    if value == "0":
        return warn(
            name,
            "JobRequeue is 0: only jobs submitted with --requeue can be moved off a drained node; the others "
            "run, or hang, to their end",
            "set JobRequeue=1 in slurm.conf, or tell users of --requeue",
        )
    return _unread(name, "JobRequeue")


def _requeue_delay(case: Case) -> Result | None:
    """auth/munge credentials live cred_expire seconds (120); a requeued job's BeginTime is one later."""
    name = "slurm.requeue_delay"
    if not case.config.jobs.requeue:
        return None
    said = case.settings.option("AuthInfo", "cred_expire")
    seconds = int(said) if said and said.isdecimal() else 120
    return ok(
        name,
        f"Slurm lets a requeued job wait {seconds + 1} s (credential lifetime); jobs that sickbay requeues "
        "are asked to start at once",
    )


def _max_batch_requeue(case: Case) -> Result | None:
    """MaxBatchRequeue: 23.02 and later; older ones do not list it."""
    name = "slurm.max_batch_requeue"
    value = case.settings.text("MaxBatchRequeue")
    if not case.config.jobs.requeue or value is None or not value.isdecimal():
        return None
    ours = case.config.jobs.max_requeues
    if ours <= int(value):
        return ok(name, f"Slurm holds a job after {value} requeues, sickbay stops after {ours}")
    return warn(
        name,
        f"jobs.max_requeues is {ours}, but Slurm itself holds a job for an administrator after {value} "
        "(MaxBatchRequeue)",
        f"set jobs.max_requeues to {min(int(value), _DEFAULT_MAX_BATCH_REQUEUE)} or less",
    )


def _health_check(case: Case) -> Result | None:
    name = "slurm.health_check"
    program = case.settings.text("HealthCheckProgram")
    interval = case.settings.seconds("HealthCheckInterval")
    if program is None or interval == 0:
        return ok(name, "no HealthCheckProgram runs beside us")
    return warn(
        name,
        f"HealthCheckProgram {program} may drain nodes too: Slurm has one reason per node, so its drain over "
        "ours makes the node foreign, and what it resumes is back without our verification",
        "have it leave nodes alone whose reason begins with `sickbay:`, or only report",
    )


def _prolog(case: Case) -> Result | None:
    name = "slurm.prolog"
    program = case.settings.text("Prolog") or case.settings.text("PrologSlurmctld")
    if program is None:
        return None
    if case.settings.option("SchedulerParameters", "nohold_on_prolog_fail") is not None:
        return ok(name, "jobs are not held when a prolog fails (nohold_on_prolog_fail)")
    return warn(
        name,
        f"a prolog is set ({program}) without SchedulerParameters=nohold_on_prolog_fail: where it fails the "
        "node is drained by Slurm and the job is requeued held, and waits for a person",
        "add nohold_on_prolog_fail to SchedulerParameters, or watch for 'launch failed requeued held'",
    )


def _private_data(case: Case) -> Result | None:
    name = "slurm.private_data"
    hidden = [word for word in case.settings.words("PrivateData") if word in ("jobs", "nodes", "partitions")]
    if not hidden:
        return ok(name, "PrivateData hides nothing we need")
    listed = ", ".join(hidden)
    if case.standing.privileged:
        return ok(name, f"PrivateData hides {listed}, not from {case.standing.user}")
    if case.standing.privileged is None:
        return unknown(
            name,
            f"PrivateData hides {listed}; it is not known whether from {case.standing.user}",
            "compare what squeue --all shows to this user and to root",
        )
    return fail(
        name,
        f"PrivateData hides {listed} from {case.standing.user}: a busy node would look empty, and an empty "
        "list is not 'no jobs'",
        "run sickbay as SlurmUser, or give its user Operator or Administrator (sacctmgr modify user)",
    )


def _rate_limit(case: Case) -> Result | None:
    name = "slurm.rate_limit"
    if case.settings.option("SlurmctldParameters", "rl_enable") is None:
        return None
    if case.standing.exempt_from_limits:
        return ok(name, f"slurmctld limits its callers, but not {case.standing.user}; our own limit holds")
    said = case.settings.option("SlurmctldParameters", "rl_refill_rate") or ""
    refill = float(said) if said.isdecimal() else _DEFAULT_REFILL
    slurm = case.config.scheduler.slurm
    asked = slurm.read_rpc_per_second + slurm.action_rpc_per_second
    if asked <= refill:
        return ok(name, f"slurmctld gives each user {refill:g} calls/s, we make {asked:g} at most")
    return warn(
        name,
        f"slurmctld gives each user {refill:g} calls/s (rl_enable) and makes callers wait above it; ours may "
        f"make {asked:g}, so a drain can be delayed past its time-out",
        "raise rl_refill_rate, run as SlurmUser (exempt), or lower scheduler.slurm.action_rpc_per_second",
    )


def _min_job_age(case: Case) -> Result | None:
    name = "slurm.min_job_age"
    seconds = case.settings.seconds("MinJobAge")
    if seconds is None:
        return _unread(name, "MinJobAge")
    if seconds == 0 or seconds > 2 * case.config.interval_seconds:
        return ok(name, f"ended jobs stay visible for {seconds} s" if seconds else "ended jobs stay visible")
    return warn(
        name,
        f"MinJobAge is {seconds} s and we look every {case.config.interval_seconds:g} s: how a job ended may "
        "be gone before it is seen",
        "set MinJobAge=300 (the default), or a shorter interval_seconds",
    )


def _unread(name: str, key: str) -> Result:
    return unknown(name, f"scontrol show config says nothing readable of {key}", f"look at {key} yourself")


_LOOKS: tuple[Callable[[Case], Result | None], ...] = (
    _reboot_program,
    _resume_timeout,
    _return_to_service,
    _slurmd_timeout,
    _message_timeout,
    _job_requeue,
    _requeue_delay,
    _max_batch_requeue,
    _health_check,
    _prolog,
    _private_data,
    _rate_limit,
    _min_job_age,
)
