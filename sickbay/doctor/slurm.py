"""Slurm: does it answer, which version, who are we to it, what is set that hurts, is its clock ours.

Every command is a read: scontrol ping, --version and show config, sacctmgr show user, and what
``SchedulerBackend.observe`` asks. The client refuses to write.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from collector.slurm.client import SlurmClient
from fleet.clock import Clock
from fleet.errors import BackendError, RefusedError, SickbayError
from sickbay.config import Config
from sickbay.doctor.clocks import compare
from sickbay.doctor.model import Check, Result, Shared, fail, ok, unknown, warn
from sickbay.doctor.slurm_settings import Case, SlurmSettings, Standing, acts, judge, parse_settings

PING, SETTINGS = ("scontrol", "ping"), ("scontrol", "show", "config")
# Run on 22.05.8 and 24.11.5; the others read in their sources and release notes.
OLDEST, NEWEST = (22, 5), (26, 5)
# At least this many reads a second: the doctor makes five in all, however low the service's own rate is.
_LEAST_RATE = 2.0
_CONTROLLER = re.compile(r"Slurmctld\((?P<role>[^)]*)\) at (?P<host>\S+) is (?P<state>UP|DOWN)")
_LEVELS = ("None", "Operator", "Administrator")
NO_LEVELS = "-"


@dataclass(frozen=True, slots=True)
class _Settings:
    """The configuration, our own time as we asked for it, and how long the answer took."""

    settings: SlurmSettings
    asked_at: float
    took: float


class SlurmChecks:
    """``environ`` is the doctor's own environment; ``user`` whom it runs as (name, uid)."""

    def __init__(
        self,
        config: Config,
        clock: Clock,
        *,
        client: SlurmClient | None = None,
        environ: Mapping[str, str] | None = None,
        user: tuple[str, int] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._slurm = config.scheduler.slurm
        self._environ = os.environ if environ is None else environ
        self._user, self._uid = user or _ourselves()
        self._client = client or SlurmClient(
            env=dict(self._slurm.env),
            clock=clock,
            timeout_seconds=self._slurm.timeout_seconds,
            read_rpc_per_second=max(self._slurm.read_rpc_per_second, _LEAST_RATE),
            may_act=_never,
        )
        self._settings = Shared(self._read_settings)
        self._standing = Shared(self._read_standing)

    def checks(self) -> tuple[Check, ...]:
        # A few reads may wait for one another, each for its answer and for its turn.
        seconds = 4 * self._slurm.timeout_seconds + 5
        return (
            Check("slurm.answers", self.answers, seconds),
            Check("slurm.version", self.version, seconds),
            Check("slurm.environment", self.environment, seconds),
            Check("slurm.rights", self.rights, seconds),
            Check("slurm.settings", self.settings, seconds),
            Check("slurm.clock", self.clock, seconds),
        )

    def answers(self) -> Iterator[Result]:
        """``scontrol ping`` answers at once, where other commands wait for MessageTimeout."""
        name = "slurm.answers"
        try:
            said = self._client.read(PING).decode("utf-8", errors="replace")
        except BackendError as error:
            said = str(error)
        found = [match.groupdict() for match in _CONTROLLER.finditer(said)]
        up = [one for one in found if one["state"] == "UP"]
        down = [f"{one['role']} {one['host']}" for one in found if one["state"] == "DOWN"]
        if not up:
            shown = f"{', '.join(down)} is down" if down else " ".join(said.split())[:200]
            yield fail(
                name,
                f"slurmctld does not answer: {shown}",
                "check that slurmctld runs and that this machine's scontrol reaches it; where slurm.conf is "
                "not in its usual place set scheduler.slurm.env: {SLURM_CONF: /path}",
            )
        elif down:
            yield warn(
                name,
                f"slurmctld at {up[0]['host']} answers, but {', '.join(down)} is down",
                "bring the other controller back: the next failure would leave nobody",
            )
        else:
            yield ok(name, f"slurmctld at {up[0]['host']} answers")

    def version(self) -> Iterator[Result]:
        name = "slurm.version"
        version = self._client.version()
        shown = _shown(version)
        if version < OLDEST:
            yield fail(
                name,
                f"the commands are of Slurm {shown}; sickbay reads {_shown(OLDEST)} and later",
                "upgrade Slurm's client commands on this machine",
            )
        elif version > NEWEST:
            yield warn(
                name,
                f"the commands are of Slurm {shown}, newer than any this sickbay was made for "
                f"({_shown(NEWEST)})",
                "stay in observe mode until `sickbay collect slurm` shows what you expect",
            )
        else:
            yield ok(name, f"Slurm {shown}")
        controller = _version_of(self._settings.get().settings.text("SLURM_VERSION"))
        if controller is not None and controller != version:
            yield warn(
                "slurm.version_match",
                f"slurmctld is {_shown(controller)}, the commands here are {shown}: a drain by an older "
                "client can be undone by a newer controller (seen with 23.02)",
                "install the same release of Slurm on this machine",
            )

    def environment(self) -> Iterator[Result]:
        """The service drops SLURM_* from its environment, lest it steer what the commands print."""
        name = "slurm.environment"
        shell = self._environ.get("SLURM_CONF")
        ours = self._slurm.env.get("SLURM_CONF")
        if shell is not None and ours is None:
            yield warn(
                name,
                f"SLURM_CONF is {shell} in this shell, but the service does not take it from its environment",
                f"write it into the configuration: scheduler.slurm.env: {{SLURM_CONF: {shell}}}",
            )
        elif shell is not None and shell != ours:
            yield warn(
                name,
                f"SLURM_CONF is {shell} in this shell and {ours} in the configuration: two clusters?",
                "make sure that your own commands and sickbay speak to the same slurmctld",
            )
        else:
            yield ok(name, f"Slurm's commands use {ours or 'their usual slurm.conf'}")

    def rights(self) -> Iterator[Result]:
        """May we drain and reboot nodes? Asked of the accounting database; nothing is tried.

        scontrol(1): Administrator, SlurmUser or root update nodes. Operator may hold and requeue jobs only;
        without slurmdbd nobody has a level.
        """
        name = "slurm.rights"
        standing, level = self._standing.get()
        if standing.exempt_from_limits:
            yield ok(name, f"{self._user} may drain and reboot nodes (root or SlurmUser)")
        elif "SLURM_JWT" in self._slurm.env:
            yield unknown(
                name,
                "SLURM_JWT is set: its user counts, not the one this runs as",
                "make sure that the token's user is Administrator, and that it is renewed in time",
            )
        elif level == "Administrator":
            yield ok(name, f"{self._user} is Administrator and may drain and reboot nodes")
        elif level is None:
            yield unknown(
                name,
                f"sacctmgr says nothing of {self._user}'s level",
                f"run: sacctmgr show user {self._user} format=User,AdminLevel",
            )
        else:
            yield self._no_right(name, level)

    def _no_right(self, name: str, level: str) -> Result:
        why = "no slurmdbd, so no level" if level == NO_LEVELS else f"level {level}"
        said = f"{self._user} ({why}) may not drain or reboot nodes"
        remedy = (
            "run sickbay as SlurmUser"
            if level == NO_LEVELS
            else f"run: sacctmgr modify user {self._user} set AdminLevel=Administrator"
        )
        if acts(self._config):
            return fail(name, f"{said}, and the mode is {self._config.mode}", remedy)
        return ok(name, f"{said}; observe mode needs no right. Before you leave it, {remedy}")

    def settings(self) -> Iterator[Result]:
        settings = self._settings.get().settings
        try:
            standing, _ = self._standing.get()
        except SickbayError:
            standing = Standing(self._user, privileged=None, exempt_from_limits=self._uid == 0)
        yield from judge(Case(settings, self._config, standing))

    def clock(self) -> Iterator[Result]:
        """slurmctld says its time in whole seconds, somewhere between our asking and its answer's arrival."""
        read = self._settings.get()
        yield compare("slurm.clock", "slurmctld", read.settings.taken_at, read.asked_at, read.took)

    # -- reading

    def _read_settings(self) -> _Settings:
        asked_at, started = self._clock.now(), self._clock.monotonic()
        data = self._client.read(SETTINGS)
        return _Settings(parse_settings(data), asked_at, self._clock.monotonic() - started)

    def _read_standing(self) -> tuple[Standing, str | None]:
        """Who we are, and our level: one of ``_LEVELS``, ``-`` without slurmdbd, None when it is not said."""
        settings = self._settings.get().settings
        if self._uid == 0 or self._user == settings.user("SlurmUser"):
            return Standing(self._user, privileged=True, exempt_from_limits=True), None
        if "SLURM_JWT" in self._slurm.env:
            return Standing(self._user, privileged=None, exempt_from_limits=False), None
        if settings.text("AccountingStorageType") != "accounting_storage/slurmdbd":
            return Standing(self._user, privileged=False, exempt_from_limits=False), NO_LEVELS
        argv = ("sacctmgr", "-n", "-P", "show", "user", self._user, "format=User,AdminLevel")
        level = read_level(self._client.read(argv), self._user)
        privileged = None if level is None else level in ("Operator", "Administrator")
        return Standing(self._user, privileged=privileged, exempt_from_limits=False), level


def read_level(data: bytes, user: str) -> str | None:
    """``sacctmgr -nP show user NAME format=User,AdminLevel``: the level. A user it does not know has none."""
    rows = [line.split("|") for line in data.decode("utf-8", errors="replace").splitlines() if line.strip()]
    if not rows:
        return "None"
    levels = [row[1].strip() for row in rows if len(row) > 1 and row[0].strip() == user]
    return levels[0] if levels and levels[0] in _LEVELS else None


def _never(_: float) -> None:
    raise RefusedError("the doctor changes nothing")


def _ourselves() -> tuple[str, int]:
    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name, uid
    except KeyError:
        return str(uid), uid


def _version_of(text: str | None) -> tuple[int, int] | None:
    parts = (text or "").split(".")
    if len(parts) < len(OLDEST) or not all(part.isdecimal() for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])


def _shown(version: Sequence[int]) -> str:
    return f"{version[0]}.{version[1]:02d}"
