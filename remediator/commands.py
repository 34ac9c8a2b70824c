"""The operator's own commands: GPU reset, power cycle, verification.

Argv lists with a deadline, never a shell string. A command gets SICKBAY_NODE, SICKBAY_INCIDENT and
SICKBAY_GPU (UUID or PCI address of the worst finding, or empty) beside PATH, HOME, LANG and TZ, and
nothing else of our environment: no tokens leak into it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Protocol

from collector import process
from collector.process import Completed
from fleet.findings import Repair, Step
from remediator.records import IncidentRecord, Outcome
from remediator.situation import Situation
from remediator.steps import StepResult

OUTPUT_TAIL_CHARS = 300
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
_REPAIR_OF = {
    Step.RESET_GPU: Repair.RESET_GPU,
    Step.REBOOT: Repair.REBOOT,
    Step.POWER_CYCLE: Repair.POWER_CYCLE,
}


class CommandRunner(Protocol):
    """What the executor needs of configured commands."""

    def repair(self, step: Step, situation: Situation, incident: IncidentRecord) -> StepResult: ...

    def verify(self, situation: Situation, incident: IncidentRecord, facts: str) -> StepResult: ...


class ProcessRunner(Protocol):
    """``collector.process.run``, or what stands in for the machines it would reach."""

    def __call__(
        self, argv: Sequence[str], *, env: Mapping[str, str], timeout_seconds: float
    ) -> Completed: ...


class ConfiguredCommands:
    """Runs what the configuration names under ``repair.commands`` and ``verify.command``."""

    def __init__(self, run: ProcessRunner = process.run) -> None:
        self._run = run

    def repair(self, step: Step, situation: Situation, incident: IncidentRecord) -> StepResult:
        argv = situation.policy.repair_commands.get(_REPAIR_OF[step])
        if argv is None:
            return StepResult(Outcome.FAILED, f"no command is configured for {step}")
        return _judge(argv, self._call(argv, situation, incident))

    def verify(self, situation: Situation, incident: IncidentRecord, facts: str) -> StepResult:
        argv = situation.policy.verify_command
        if argv is None:
            return StepResult(Outcome.DONE, facts)
        result = _judge(argv, self._call(argv, situation, incident))
        if result.outcome is Outcome.DONE:
            return StepResult(Outcome.DONE, f"{facts}; {argv[0]} passed")
        return result

    def _call(self, argv: tuple[str, ...], situation: Situation, incident: IncidentRecord) -> Completed:
        return self._run(
            argv,
            env=command_environment(situation, incident, os.environ),
            timeout_seconds=situation.policy.verify_timeout_seconds,
        )


def command_environment(
    situation: Situation, incident: IncidentRecord, ours: Mapping[str, str]
) -> dict[str, str]:
    """The documented environment of a command (docs/configuration.md)."""
    env = {name: ours[name] for name in _PASSED_ON if name in ours}
    worst = max(situation.findings, key=lambda f: f.severity.rank, default=None)
    gpu = (worst.uuid or worst.gpu or "") if worst is not None else ""
    return env | {"SICKBAY_NODE": incident.node, "SICKBAY_INCIDENT": incident.id, "SICKBAY_GPU": gpu}


def _judge(argv: tuple[str, ...], done: Completed) -> StepResult:
    if done.rc == 0:
        return StepResult(Outcome.DONE, f"{argv[0]} exited 0 after {done.duration:.1f} s")
    tail = (done.stderr or done.stdout).decode("utf-8", "replace").strip()[-OUTPUT_TAIL_CHARS:]
    said = f": {' '.join(tail.split())}" if tail else ""
    return StepResult(Outcome.FAILED, f"{argv[0]} exited {done.rc}{said}")
