"""Stories for ``promtool test rules``: what is measured, which alerts must and must not fire when.

Only the texts of the alerts are filled in from the rules; when an alert fires and with which labels is
written here by hand. promtool is the real rule manager in virtual time (its clock starts at 0).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from alerts.model import Alert, Group, duration

_LABEL = re.compile(r"\{\{ \$labels\.(\w+) \}\}")
Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expect:
    """At ``at`` seconds ``alert`` fires for exactly these series (their labels, without the rule's own)."""

    alert: str
    at: float
    firing: tuple[Labels, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """At ``at`` seconds the expression has exactly these samples (series as text -> value)."""

    expr: str
    at: float
    samples: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """``series``: series as text -> promtool's notation of its samples, one per ``step_seconds``."""

    name: str
    series: Mapping[str, str]
    expects: tuple[Expect, ...] = ()
    values: tuple[Value, ...] = ()
    step_seconds: float = 15.0


# -- dcgm-exporter's names become ours

_OLD = 'gpu="0", UUID="GPU-0", Hostname="n01", device="nvidia0", DCGM_FI_DRIVER_VERSION="545.29.06"'
_NEW = 'gpu="1", UUID="GPU-1", hostname="n01", pci_bus_id="00000000:8D:00.0"'
_POD = 'gpu="2", UUID="GPU-2", Hostname="dcgm-exporter-x7k2p", node="n02", pod="dcgm-exporter-x7k2p"'
_LINK = 'gpu="0", gpu_uuid="GPU-0", hostname="n01", nvlink="3"'
_MIG = 'gpu="3", UUID="GPU-3", hostname="n01", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb"'


def normalised() -> tuple[Scenario, ...]:
    return (
        Scenario(
            name="names, units, and the node by any of its labels",
            series={
                f"DCGM_FI_DEV_GPU_TEMP{{{_OLD}}}": "64x10",
                f"DCGM_FI_DEV_GPU_TEMP{{{_NEW}}}": "65x10",
                f"DCGM_FI_DEV_GPU_TEMP{{{_POD}}}": "66x10",
                f"dcgm_sm_clock{{{_OLD}}}": "1410x10",
                f"DCGM_FI_DEV_GPU_UTIL{{{_NEW}}}": "98x10",
                f"DCGM_FI_DEV_FB_USED{{{_NEW}}}": "1024x10",
                f"DCGM_FI_DEV_FB_USED{{{_MIG}}}": "512x10",
                f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_NEW}}}": "5000x10",
                f"DCGM_FI_DEV_THERMAL_VIOLATION{{{_NEW}}}": "60000000000x10",
                f"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL{{{_LINK}}}": "17x10",
                f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_NEW}}}": "72x10",
                f"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{{{_OLD}}}": "1x10",
            },
            values=(
                Value(
                    expr="sickbay_gpu_temperature_celsius",
                    at=120,
                    samples={
                        'sickbay_gpu_temperature_celsius{node="n01", gpu="0", uuid="GPU-0"}': 64,
                        'sickbay_gpu_temperature_celsius{node="n01", gpu="1", uuid="GPU-1"}': 65,
                        'sickbay_gpu_temperature_celsius{node="n02", gpu="2", uuid="GPU-2"}': 66,
                    },
                ),
                _single("sickbay_gpu_sm_clock_hertz", 0, 1.41e9),
                _single("sickbay_gpu_utilization_ratio", 1, 0.98),
                Value(
                    expr="sickbay_gpu_memory_used_bytes",
                    at=120,
                    samples={
                        'sickbay_gpu_memory_used_bytes{node="n01", gpu="1", uuid="GPU-1"}': 2.0**30,
                        'sickbay_gpu_memory_used_bytes{node="n01", gpu="3", uuid="GPU-3", gi="7"}': 2.0**29,
                    },
                ),
                _single("sickbay_gpu_energy_joules_total", 1, 5),
                _single("sickbay_gpu_thermal_violation_seconds_total", 1, 60),
                _single("sickbay_gpu_nvlink_replay_errors_total", 0, 17, 'nvlink="3"'),
                Value(
                    expr="sickbay_gpu_clock_event_reasons",
                    at=120,
                    samples={
                        'sickbay_gpu_clock_event_reasons{node="n01", gpu="0", uuid="GPU-0"}': 1,
                        'sickbay_gpu_clock_event_reasons{node="n01", gpu="1", uuid="GPU-1"}': 72,
                    },
                ),
            ),
        ),
        Scenario(
            name="blank codes and nonsense are absent, never a number",
            series={
                f"DCGM_FI_DEV_GPU_TEMP{{{_NEW}}}": "0x10",
                f"DCGM_FI_DEV_MEMORY_TEMP{{{_NEW}}}": "9223372036854775794x10",
                f"DCGM_FI_DEV_GPU_UTIL{{{_NEW}}}": "183422x10",
                f"DCGM_FI_DEV_POWER_USAGE{{{_NEW}}}": "140737488355328x10",
                f"DCGM_FI_DEV_SM_CLOCK{{{_NEW}}}": "2147483635x10",
                f"DCGM_FI_DEV_FB_USED{{{_NEW}}}": "9223372036854775792x10",
                f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{_NEW}}}": "9223372036854775792x10",
                f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_NEW}}}": "2147483632x10",
                f"DCGM_FI_PROF_DRAM_ACTIVE{{{_NEW}}}": "14073748835532800x10",
                f"DCGM_FI_DEV_PCIE_LINK_GEN{{{_NEW}}}": "0x10",
                f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{_NEW}}}": "9223372036854775792x10",
            },
            values=(Value(expr='count({__name__=~"sickbay_.+"})', at=120, samples={}),),
        ),
        Scenario(
            name="two exporters of one GPU, or a restarted one, are one series; the enforced limit wins",
            series={
                f'DCGM_FI_DEV_GPU_TEMP{{{_NEW}, instance="a:9400"}}': "64x10",
                f'DCGM_FI_DEV_GPU_TEMP{{{_NEW}, instance="b:9400"}}': "65x10",
                f"DCGM_FI_DEV_ENFORCED_POWER_LIMIT{{{_NEW}}}": "600x10",
                f"DCGM_FI_DEV_POWER_MGMT_LIMIT{{{_NEW}}}": "700x10",
            },
            values=(
                _single("sickbay_gpu_temperature_celsius", 1, 65),
                _single("sickbay_gpu_power_limit_watts", 1, 600),
            ),
        ),
    )


def _single(metric: str, gpu: int, value: float, more: str = "") -> Value:
    labels = f'node="n01", gpu="{gpu}", uuid="GPU-{gpu}"' + (f", {more}" if more else "")
    return Value(expr=metric, at=120, samples={f"{metric}{{{labels}}}": value})


# -- rules of the catalogue


def _gpu(index: int, node: str = "n01") -> str:
    return f'cluster="alpha", gpu="{index}", UUID="GPU-{node}-{index}", hostname="{node}"'


def _who(index: int, node: str = "n01") -> Labels:
    return {"cluster": "alpha", "node": node, "gpu": str(index), "uuid": f"GPU-{node}-{index}"}


def gpu_rules() -> tuple[Scenario, ...]:
    return (_slowed(), _memory(), _recovery(), _vanished(), _moved())


def _slowed() -> Scenario:
    """Slowed from 5:00 on. GPU 0 is fine, GPU 4 shows every bit but is idle, GPU 5 only for three minutes."""
    bits = {1: 0x40 | 0x8, 2: 0x20, 3: 0x80 | 0x8, 4: 0xE8}
    reasons = {f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_gpu(i)}}}": f"0x20 {bit}x80" for i, bit in bits.items()}
    reasons[f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_gpu(0)}}}"] = "0x100"
    reasons[f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_gpu(5)}}}"] = "0x20 232x12 0x70"
    busy = {f"DCGM_FI_DEV_GPU_UTIL{{{_gpu(i)}}}": "98x100" for i in (0, 1, 2, 3, 5)}
    names = {"GpuThermalHwSlowdown": 1, "GpuThermalSwSlowdown": 2, "GpuPowerBrake": 3}
    return Scenario(
        name="heat and the power brake, as a share of busy time",
        series={**reasons, **busy, f"DCGM_FI_DEV_GPU_UTIL{{{_gpu(4)}}}": "0x100"},
        expects=tuple(
            expect
            for alert, index in names.items()
            for expect in (
                Expect(alert=alert, at=480),
                Expect(alert=alert, at=900, firing=(_who(index),)),
            )
        ),
    )


def _memory() -> Scenario:
    """Faults from 5:00 on. GPU 3 carries old errors, GPU 4 a flag for half a minute only."""
    return Scenario(
        name="memory: failed and pending remaps, uncorrected errors that grow",
        series={
            f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_gpu(0)}}}": "0x20 1x80",
            f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{_gpu(1)}}}": "0x20 1x80",
            f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_gpu(2)}}}": "0x20 1x80",
            f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{_gpu(3)}}}": "5x100",
            f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_gpu(4)}}}": "0x20 1x1 0x80",
            f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{_gpu(4)}}}": "0x20 1x1 0x80",
        },
        expects=(
            Expect(alert="GpuRowRemapFailedFlag", at=330),
            Expect(alert="GpuRowRemapFailedFlag", at=480, firing=(_who(0),)),
            Expect(alert="GpuRowRemapPendingFlag", at=330),
            Expect(alert="GpuRowRemapPendingFlag", at=480, firing=(_who(1),)),
            Expect(alert="GpuEccUncorrectedRising", at=270),
            Expect(alert="GpuEccUncorrectedRising", at=480, firing=(_who(2),)),
        ),
    )


def _recovery() -> Scenario:
    """The driver's recommendation as a level: each GPU another one, from 5:00 on; GPU 0 none."""
    actions = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 7}
    return Scenario(
        name="what the driver recommends",
        series={
            f"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION{{{_gpu(0)}}}": "0x100",
            **{
                f"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION{{{_gpu(index)}}}": f"0x20 {action}x80"
                for index, action in actions.items()
            },
        },
        expects=tuple(
            expect
            for alert, indices in (
                ("GpuRecoveryResetLevel", (1, 4)),
                ("GpuRecoveryRebootLevel", (2, 6, 7)),
                ("GpuRecoveryP2pLevel", (3,)),
                ("GpuRecoveryImexLevel", (5,)),
            )
            for expect in (
                Expect(alert=alert, at=285),
                Expect(alert=alert, at=420, firing=tuple(map(_who, indices))),
            )
        ),
    )


def _vanished() -> Scenario:
    """GPU 7 of n01 goes at 5:00, its sibling stays. All of n02 goes at once: the exporter, not GPUs."""
    return Scenario(
        name="a GPU that is gone while its siblings report",
        series={
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(6)}}}": "60x100",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(7)}}}": "60x20 stale",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(0, 'n02')}}}": "60x20 stale",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(1, 'n02')}}}": "60x20 stale",
        },
        expects=(
            Expect(alert="GpuVanished", at=360),
            Expect(alert="GpuVanished", at=540, firing=(_who(7),)),
        ),
    )


def _moved() -> Scenario:
    """A card that reports from another machine was carried there."""
    moved = 'cluster="alpha", gpu="5", UUID="GPU-n01-7", hostname="n02"'
    return Scenario(
        name="a GPU that moved is not lost",
        series={
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(6)}}}": "60x100",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(7)}}}": "60x20 stale",
            f"DCGM_FI_DEV_GPU_TEMP{{{moved}}}": "_x22 60x80",
        },
        expects=(Expect(alert="GpuVanished", at=900),),
    )


# -- availability


def availability() -> tuple[Scenario, ...]:
    """Twenty nodes in each cluster; so many of them are down, after five minutes without fault."""
    down = {"a": 18, "b": 8, "c": 4, "d": 2, "e": 1}
    series: dict[str, str] = {}
    for cluster, count in down.items():
        at = f'cluster="{cluster}", pool="gpu", instance="sickbay:8470"'
        series[f'sickbay_nodes{{{at}, state="idle", verdict="healthy"}}'] = f"20x5 {20 - count}x420"
        series[f'sickbay_nodes{{{at}, state="down", verdict="unhealthy"}}'] = f"0x5 {count}x420"
        # Planned work and a standby's copy change nothing.
        series[f'sickbay_nodes{{{at}, state="maintenance", verdict="unknown"}}'] = "7x425"
    standby = 'cluster="e", pool="gpu", instance="standby:8470"'
    series[f'sickbay_nodes{{{standby}, state="idle", verdict="healthy"}}'] = "20x5 19x420"
    fast = _burns("1h", "5m"), _burns("6h", "30m")
    slow = _burns("1d", "2h"), _burns("3d", "6h")
    return (
        Scenario(
            name="burn rates of 18, 8, 4, 2 and 1 times the allowance",
            step_seconds=60,
            series=series,
            expects=(
                Expect(alert="FleetErrorBudgetBurn", at=240),
                Expect(
                    alert="FleetErrorBudgetBurn",
                    at=25_200,
                    firing=tuple(
                        {"cluster": cluster, **windows}
                        for cluster, burning in (
                            ("a", (*fast, *slow)),
                            ("b", (fast[1], *slow)),
                            ("c", slow),
                            ("d", slow[1:]),
                        )
                        for windows in burning
                    ),
                ),
            ),
            values=(
                Value(
                    expr="cluster:sickbay_nodes_available:ratio",
                    at=21_600,
                    samples={
                        f'cluster:sickbay_nodes_available:ratio{{cluster="{cluster}"}}': (20 - count) / 20
                        for cluster, count in down.items()
                    },
                ),
            ),
        ),
        Scenario(
            name="no healthy node is an availability of zero, no node at all is no data",
            series={
                'sickbay_nodes{cluster="a", pool="gpu", state="down", verdict="unhealthy"}': "4x10",
                'sickbay_nodes{cluster="b", pool="gpu", state="maintenance", verdict="unknown"}': "4x10",
            },
            values=(
                Value(
                    expr="cluster:sickbay_nodes_available:ratio",
                    at=120,
                    samples={'cluster:sickbay_nodes_available:ratio{cluster="a"}': 0},
                ),
            ),
        ),
    )


def _burns(long: str, short: str) -> Labels:
    return {"long": long, "short": short}


# -- sickbay itself

_CONTROLLER = 'cluster="alpha", instance="sickbay:8470", job="sickbay"'
_AGENT = 'cluster="alpha", instance="n01:9870", job="sickbay-agent", node="n01"'
_ALPHA: Labels = {"cluster": "alpha"}
_AGENT_LABELS: Labels = {
    "cluster": "alpha",
    "instance": "n01:9870",
    "job": "sickbay-agent",
    "node": "n01",
}
_WELL = {
    f'sickbay_build_info{{{_CONTROLLER}, version="1"}}': "1x200",
    f"sickbay_last_pass_timestamp_seconds{{{_CONTROLLER}}}": "0+15x200",
    f"sickbay_scheduler_last_read_timestamp_seconds{{{_CONTROLLER}}}": "0+15x200",
    f"sickbay_leader{{{_CONTROLLER}}}": "1x200",
    f"sickbay_pages{{{_CONTROLLER}}}": "3x200",
    f"sickbay_pass_failures_total{{{_CONTROLLER}}}": "7x200",
    f"sickbay_inbox_pending{{{_CONTROLLER}}}": "0x200",
    f'sickbay_events_received_total{{{_CONTROLLER}, result="rejected"}}': "2x200",
    f'sickbay_nodes{{{_CONTROLLER}, pool="gpu", state="idle", verdict="healthy"}}': "16x200",
    f'sickbay_nodes{{{_CONTROLLER}, pool="gpu", state="powered_down", verdict="unknown"}}': "2x200",
    f'sickbay_incidents_blocked{{{_CONTROLLER}, gate="mode"}}': "1x200",
    f'sickbay_agent_build_info{{{_AGENT}, version="1"}}': "1x200",
    f"sickbay_agent_last_push_timestamp_seconds{{{_AGENT}}}": "0+15x200",
    f"sickbay_agent_spool_dropped_events_total{{{_AGENT}}}": "4x200",
}
_SELF_ALERTS = (
    "SickbayDown",
    "SickbayLoopNotPassing",
    "SickbayPassesFail",
    "SickbayNoLeader",
    "SickbayPaged",
    "SickbayInboxBacklog",
    "SickbaySchedulerNotRead",
    "SickbayAgentSilent",
    "SickbayNodesUnknown",
    "SickbayEventsDropped",
    "SickbayEventsRejected",
    "SickbayIncidentsBlocked",
    "SickbayApprovalWaiting",
)


def own() -> tuple[Scenario, ...]:
    return (
        Scenario(
            name="all is well: nothing fires but the watchdog",
            series=_WELL,
            expects=(
                Expect(alert="SickbayWatchdog", at=0, firing=({},)),
                *(Expect(alert=alert, at=at) for alert in _SELF_ALERTS for at in (600, 2400)),
            ),
        ),
        _gone(),
        _never_there(),
        _stalled(),
        _trouble(),
        _waits(),
    )


def _gone() -> Scenario:
    return Scenario(
        name="the controller's metrics end at 5:00",
        series={f'sickbay_build_info{{{_CONTROLLER}, version="1"}}': "1x20 stale"},
        expects=(
            Expect(alert="SickbayDown", at=390),
            Expect(alert="SickbayDown", at=480, firing=(_ALPHA,)),
        ),
    )


def _never_there() -> Scenario:
    return Scenario(
        name="no controller was ever seen",
        series={"unrelated": "1x60"},
        expects=(
            Expect(alert="SickbayDown", at=60),
            Expect(alert="SickbayDown", at=300, firing=({},)),
        ),
    )


def _stalled() -> Scenario:
    """From 5:00 on the loop, the scheduler's answers and the agent's pushes stand still, and nobody leads."""
    return Scenario(
        name="everything still answers and nothing moves",
        series={
            f"sickbay_last_pass_timestamp_seconds{{{_CONTROLLER}}}": "0+15x20 300x80",
            f"sickbay_scheduler_last_read_timestamp_seconds{{{_CONTROLLER}}}": "0+15x20 300x80",
            f"sickbay_leader{{{_CONTROLLER}}}": "1x20 0x80",
            f'sickbay_agent_build_info{{{_AGENT}, version="1"}}': "1x100",
            f"sickbay_agent_last_push_timestamp_seconds{{{_AGENT}}}": "0+15x20 300x80",
        },
        expects=(
            Expect(alert="SickbayLoopNotPassing", at=360),
            Expect(alert="SickbayLoopNotPassing", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbaySchedulerNotRead", at=420),
            Expect(alert="SickbaySchedulerNotRead", at=600, firing=(_ALPHA,)),
            Expect(alert="SickbayNoLeader", at=390),
            Expect(alert="SickbayNoLeader", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayAgentSilent", at=420),
            Expect(alert="SickbayAgentSilent", at=600, firing=(_AGENT_LABELS,)),
        ),
    )


def _trouble() -> Scenario:
    """Errors from 5:00 on, and an agent that has never been answered."""
    return Scenario(
        name="failing passes, a page, a backlog, lost events, a silent agent",
        series={
            f"sickbay_pass_failures_total{{{_CONTROLLER}}}": "0x20 4x80",
            f"sickbay_pages{{{_CONTROLLER}}}": "0x20 1x80",
            f"sickbay_inbox_pending{{{_CONTROLLER}}}": "0x20 500x80",
            f'sickbay_events_received_total{{{_CONTROLLER}, result="rejected"}}': "0x20 3x80",
            f"sickbay_agent_spool_dropped_events_total{{{_AGENT}}}": "0x20 9x80",
            f'sickbay_agent_build_info{{{_AGENT}, version="1"}}': "1x100",
        },
        expects=(
            Expect(alert="SickbayPassesFail", at=270),
            Expect(alert="SickbayPassesFail", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayPaged", at=270),
            Expect(alert="SickbayPaged", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayPaged", at=1200),
            Expect(alert="SickbayInboxBacklog", at=600),
            Expect(
                alert="SickbayInboxBacklog",
                at=1000,
                firing=({"cluster": "alpha", "instance": "sickbay:8470", "job": "sickbay"},),
            ),
            Expect(alert="SickbayEventsRejected", at=270),
            Expect(alert="SickbayEventsRejected", at=480, firing=(_ALPHA,)),
            Expect(alert="SickbayEventsDropped", at=270),
            Expect(alert="SickbayEventsDropped", at=480, firing=(_AGENT_LABELS,)),
            Expect(alert="SickbayAgentSilent", at=60),
            Expect(alert="SickbayAgentSilent", at=300, firing=({**_AGENT_LABELS, "version": "1"},)),
        ),
    )


def _waits() -> Scenario:
    """Nodes unknown and incidents waiting from 5:00 on, said by a leader and its standby."""
    series = {}
    for instance in ("a:8470", "b:8470"):
        who = f'cluster="alpha", instance="{instance}", job="sickbay"'
        series[f'sickbay_nodes{{{who}, pool="gpu", state="idle", verdict="unknown"}}'] = "_x20 3x120"
        series[f'sickbay_incidents_blocked{{{who}, gate="budget"}}'] = "_x20 1x120"
        series[f'sickbay_incidents_open{{{who}, pool="gpu", state="awaiting_approval"}}'] = "_x20 1x120"
    pool = {"cluster": "alpha", "pool": "gpu"}
    return Scenario(
        name="unknown nodes, blocked and unapproved incidents",
        series=series,
        expects=(
            Expect(alert="SickbayNodesUnknown", at=840),
            Expect(alert="SickbayNodesUnknown", at=1000, firing=(pool,)),
            Expect(alert="SickbayIncidentsBlocked", at=1100),
            Expect(
                alert="SickbayIncidentsBlocked", at=1300, firing=({"cluster": "alpha", "gate": "budget"},)
            ),
            Expect(alert="SickbayApprovalWaiting", at=1100),
            Expect(alert="SickbayApprovalWaiting", at=1300, firing=(pool,)),
        ),
    )


# -- the files


def documents(groups: Mapping[str, Sequence[Group]], docs_url: str) -> Mapping[str, Mapping[str, Any]]:
    """Test file -> its document. An alert of a site's own catalogue has no story here and is left out."""
    alerts: dict[str, list[Alert]] = {}
    for group in chain.from_iterable(groups.values()):
        for alert in group.alerts:
            alerts.setdefault(alert.name, []).append(alert)
    dcgm, fleet, own_rules = "normalise-dcgm.yml", "fleet.yml", "sickbay.yml"
    return {
        name: {
            "rule_files": [f"../prometheus/{rule_file}" for rule_file in rule_files],
            "evaluation_interval": duration(scenarios[0].step_seconds),
            "tests": [_test(scenario, alerts, docs_url) for scenario in scenarios],
        }
        for name, rule_files, scenarios in (
            ("normalise-dcgm_test.yml", (dcgm,), normalised()),
            ("gpu-rules_test.yml", (dcgm, fleet), gpu_rules()),
            ("availability_test.yml", (fleet,), availability()),
            ("sickbay_test.yml", (own_rules,), own()),
        )
    }


def _test(scenario: Scenario, alerts: Mapping[str, Sequence[Alert]], docs_url: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": scenario.name,
        "interval": duration(scenario.step_seconds),
        "input_series": [{"series": series, "values": values} for series, values in scenario.series.items()],
    }
    expected = [
        _expected(expect, alerts[expect.alert], docs_url)
        for expect in scenario.expects
        if expect.alert in alerts
    ]
    if expected:
        found["alert_rule_test"] = expected
    if scenario.values:
        found["promql_expr_test"] = [
            {
                "expr": value.expr,
                "eval_time": duration(value.at),
                "exp_samples": [
                    {"labels": labels, "value": number} for labels, number in value.samples.items()
                ],
            }
            for value in scenario.values
        ]
    return found


def _expected(expect: Expect, rules: Sequence[Alert], docs_url: str) -> dict[str, Any]:
    return {
        "eval_time": duration(expect.at),
        "alertname": expect.alert,
        "exp_alerts": [
            {
                "exp_labels": {**labels, **rule.all_labels},
                "exp_annotations": dict(_filled(rule.annotations(docs_url), {**labels, **rule.all_labels})),
            }
            for labels in expect.firing
            for rule in [_rule_of(labels, rules)]
        ],
    }


def _rule_of(labels: Labels, rules: Sequence[Alert]) -> Alert:
    """Of several rules with one alert name, the one whose own labels the series has."""
    return next(rule for rule in rules if len(rules) == 1 or rule.labels.items() <= labels.items())


def _filled(annotations: Mapping[str, str], labels: Labels) -> Iterator[tuple[str, str]]:
    for name, text in annotations.items():
        yield name, _LABEL.sub(lambda match: labels.get(match[1], ""), text)
