"""Sections about what we do: pools and their limits, domains, rules, jobs, repair, return, money."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from fleet.findings import Mode, Repair
from sickbay.config import types as t
from sickbay.config.base import Section


class Match(Section):
    """Which nodes are in a pool: exactly one of the three."""

    partition: t.Text | None = Field(default=None, description="A Slurm partition.")
    label: t.LabelSelector | None = Field(default=None, description='A Kubernetes node label, `"key=value"`.')
    nodes: t.Hostlist | None = Field(default=None, description="A hostlist, such as `n[01-16]`.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Match:
        given = [name for name in ("partition", "label", "nodes") if getattr(self, name) is not None]
        if len(given) != 1:
            said = " and ".join(given) or "nothing"
            raise ValueError(f"has {said}; write exactly one of partition, label, nodes")
        return self


class Budget(Section):
    """How much of a pool may be out at once."""

    max_in_flight: t.Count = Field(
        default=2,
        description="Nodes we may hold at once, not counting those handed over. 0: never act.",
        json_schema_extra={"unit": "nodes"},
    )
    max_unavailable_percent: t.Percent = Field(
        default=10,
        description="Share of the pool that may be unavailable for any cause but planned maintenance and "
        "powered-down nodes; the limit is max(1, floor(share x nodes)).",
        json_schema_extra={"unit": "%"},
    )


class RateLimit(Section):
    """How fast a pool may lose nodes to us."""

    max_cordons: t.Count = Field(
        default=3, description="Cordons within the window.", json_schema_extra={"unit": "nodes"}
    )
    window_seconds: t.PositiveSeconds = Field(default=600, description="Length of the window.")


class Pool(Section):
    """A partition, a node group or a label selection with its own limits. The first match counts."""

    name: t.Name = Field(description="Unique; a label of metrics and the word for `sickbay pause --pool`.")
    match: Match
    mode: Mode | None = Field(
        default=None, description="`observe`, `approve` or `auto`; null inherits `mode`. A ceiling."
    )
    budget: Budget = Field(default_factory=Budget)
    rate: RateLimit = Field(default_factory=RateLimit)


class Burst(Section):
    """Many nodes at once is not many sick nodes: action freezes and one page goes out."""

    min_nodes: t.PositiveCount = Field(
        default=3,
        description="Freeze at max(this, `pool_percent` of the pool) nodes with the same cause, or half a "
        "domain.",
        json_schema_extra={"unit": "nodes"},
    )
    pool_percent: t.Percent = Field(
        default=2, description="See `min_nodes`.", json_schema_extra={"unit": "%"}
    )
    window_seconds: t.PositiveSeconds = Field(default=300, description="What counts as at once.")


class Domains(Section):
    """What fails together: racks, NVLink domains, switches, power feeds."""

    nodes: Mapping[t.Name, t.Hostlist] = Field(
        default_factory=dict, description="Domain name to hostlist; a node may be in several."
    )
    burst: Burst = Field(default_factory=Burst)


class Rules(Section):
    """The catalogue: shipped rules, your own, and how far each may go."""

    directories: tuple[t.FilePath, ...] = Field(
        default=(), description="Folders with rule files of your own, read after the shipped ones."
    )
    disabled: tuple[t.RuleId, ...] = Field(default=(), description="Ids of rules that are not evaluated.")
    modes: Mapping[t.RuleId, Mode] = Field(
        default_factory=dict,
        description="Rule id to mode. Layer 0 rules default to auto, all others to observe; the most "
        "cautious of cluster, pool and rule wins.",
    )


class Checkpoint(Section):
    """A notice to jobs that asked for one, before their node is drained."""

    signal: t.SignalName | None = Field(
        default=None, description="Signal name such as `USR1`; null: no notice is sent."
    )
    target: Literal["batch", "steps", "full"] = Field(
        default="batch",
        description="Who gets it: the batch script (`scancel --batch`), the steps, or both (`--full`).",
    )
    opt_in_comment: t.Text = Field(
        default="sickbay:ckpt", description="Only jobs whose comment contains this text get a notice."
    )
    grace_seconds: t.Seconds = Field(default=120, description="Time between the notice and the requeue.")


class Jobs(Section):
    """What happens to the jobs of a node that is drained."""

    checkpoint: Checkpoint = Field(default_factory=Checkpoint)
    requeue: t.Flag = Field(
        default=True, description="Requeue jobs that allow it; false: they run (or hang) to their end."
    )
    exclude_node: t.Flag = Field(
        default=True, description="Keep a requeued job off the bad node, by its own exclude list."
    )
    max_requeues: t.Count = Field(
        default=3,
        description="A job that was requeued this often is left alone: it may be the cause.",
        json_schema_extra={"unit": "requeues per job"},
    )


CommandName = Literal[Repair.RESET_GPU, Repair.REBOOT, Repair.POWER_CYCLE]


def _rungs(value: Any) -> Any:
    known = [rung.value for rung in Repair if rung is not Repair.NONE]
    if not isinstance(value, list | tuple):
        return value
    ranks = []
    for rung in value:
        if rung not in known:
            raise ValueError(f"{rung!r:.80} is no step of the ladder; write some of {', '.join(known)}")
        ranks.append(Repair(rung).rank)
    if ranks != sorted(set(ranks)):
        raise ValueError(f"is out of order or repeats a step; write the gentlest first: {', '.join(known)}")
    return tuple(Repair(rung) for rung in value)


class RepairSection(Section):
    """What is tried before a node is handed over."""

    enabled: t.Flag = Field(default=True, description="false: drained nodes are handed over at once.")
    ladder: tuple[Repair, ...] = Field(
        default=(Repair.RESET_GPU, Repair.REBOOT),
        description="The steps that may be tried, gentlest first: `reset_gpu`, `reboot`, `power_cycle`, "
        "`hand_over`. The fault's class says where to begin.",
    )
    max_attempts: t.Count = Field(
        default=2,
        description="Repairs of one incident before it is handed over.",
        json_schema_extra={"unit": "attempts"},
    )
    commands: Mapping[CommandName, t.Argv] = Field(
        default_factory=dict,
        description="Step (`reset_gpu`, `reboot`, `power_cycle`) to an argv list that does it in place of "
        "the scheduler, run with SICKBAY_NODE, SICKBAY_INCIDENT, SICKBAY_GPU in its environment.",
    )

    @field_validator("ladder", mode="before")
    @classmethod
    def _ladder(cls, value: Any) -> Any:
        return _rungs(value)

    @model_validator(mode="after")
    def _power_cycle_needs_command(self) -> RepairSection:
        if Repair.POWER_CYCLE in self.ladder and Repair.POWER_CYCLE not in self.commands:
            raise ValueError(
                "ladder has power_cycle, which no scheduler can do; add commands.power_cycle or drop the step"
            )
        return self


class Verify(Section):
    """What a node must show before it returns."""

    command: t.Argv | None = Field(
        default=None,
        description="argv list of a check that must exit 0, run with SICKBAY_NODE, SICKBAY_INCIDENT, "
        "SICKBAY_GPU; null: new epoch, GPU count and clean counters suffice.",
    )
    timeout_seconds: t.PositiveSeconds = Field(
        default=1800, description="How long a node may take from repair to verified before it is handed over."
    )
    probation_seconds: t.Seconds = Field(
        default=3600, description="Time back in service under tighter triggers before the incident closes."
    )


class Webhook(Section):
    """Where to send a message."""

    webhook_url: t.Url | None = Field(
        default=None,
        description="Receives a JSON POST; null: nothing is sent.",
        json_schema_extra={"unit": "URL"},
    )


class Prices(Section):
    """What an hour costs: the SLA report turns lost GPU-hours into money."""

    currency: t.Currency = Field(default="USD", description="Three-letter code, printed only.")
    gpu_hour: Mapping[t.Text, t.Price] = Field(
        default_factory=lambda: {"default": 2.5},
        description="GPU type to price per GPU-hour; `default` is used for every other type.",
        json_schema_extra={"unit": "currency/GPU-hour"},
    )
    power_kwh: t.Price = Field(
        default=0.12, description="Price of energy.", json_schema_extra={"unit": "currency/kWh"}
    )
    pue: Annotated[t.Price, Field(ge=1, le=10)] = Field(
        default=1.3,
        description="Power usage effectiveness: facility power over IT power.",
        json_schema_extra={"unit": "ratio >= 1"},
    )

    @field_validator("gpu_hour")
    @classmethod
    def _has_default(cls, value: Mapping[str, float]) -> Mapping[str, float]:
        if "default" not in value:
            raise ValueError("has no price for other GPU types; add default")
        return value


class Slo(Section):
    """The promise availability is measured against."""

    availability: Annotated[t.Price, Field(gt=0, lt=1)] = Field(
        default=0.95,
        description="Share of GPU-seconds that are available.",
        json_schema_extra={"unit": "ratio"},
    )
    window_days: Annotated[int, Field(strict=True, ge=1, le=366)] = Field(
        default=30, description="Window of the error budget.", json_schema_extra={"unit": "days"}
    )
