"""Node: one machine's GPUs, and how fresh what we know of them is. Drilled into from the overview."""

from __future__ import annotations

from dashboards.grafana import (
    GREEN,
    ORANGE,
    RED,
    YELLOW,
    Board,
    Panel,
    Query,
    Row,
    Step,
    Variable,
    stat,
    state_timeline,
    table,
    timeseries,
    value_names,
)
from dashboards.queries import CLUSTER_VARIABLE, at_most, none_is_good, of_node
from fleet.metric_names import STALE_AGENT_SECONDS

UID = "sickbay-node"
_GPU = "{{node}} gpu {{gpu}}"
# nvml.h, nvmlClocksEventReason*: what slows a GPU and is not idleness or a setting.
_REASONS = (
    (0x40, "hw_thermal"),
    (0x20, "sw_thermal"),
    (0x80, "power_brake"),
    (0x8, "hw_slowdown"),
    (0x4, "sw_power_cap"),
)
# NVML's nvmlDeviceGetGpuRecoveryAction, as the agent and XID 154 give it.
_ACTIONS = {
    0: ("none", GREEN),
    1: ("reset GPU", ORANGE),
    2: ("reboot", RED),
    3: ("drain P2P", ORANGE),
    4: ("drain and reset", ORANGE),
    5: ("recover IMEX domain", ORANGE),
    6: ("bus reset", RED),
    7: ("system reboot", RED),
}
_YES_NO = value_names({0: ("no", GREEN), 1: ("yes", RED)})


def board() -> Board:
    return Board(
        uid=UID,
        title="Node",
        description="One machine's GPUs: heat, clocks, power, memory errors, links; and how fresh this is.",
        variables=(
            CLUSTER_VARIABLE,
            Variable(
                name="node",
                label="Node",
                query='label_values({__name__=~"sickbay_gpu_temperature_celsius|sickbay_agent_build_info",'
                'cluster=~"$cluster"}, node)',
                every=False,
            ),
        ),
        rows=(
            Row("Now", (*_now(), *_findings())),
            Row("Heat, clocks, power", _clocks()),
            Row("Work", _work()),
            Row("Memory errors", _memory()),
            Row("Links and XIDs", _links()),
            Row("Agent", _agent()),
        ),
    )


def _now() -> tuple[Panel, ...]:
    return (
        stat(
            "GPUs seen",
            "GPUs that report now. One too few: it has vanished; none: the exporter is away.",
            unit="short",
            query=Query(
                expr=f"count by (node) ({of_node('gpu:sickbay_gpu_present:group')})", legend="{{node}}"
            ),
        ),
        stat(
            "Hottest GPU",
            "The limits differ by product: the panel below draws what the device itself says.",
            unit="celsius",
            query=Query(expr=f"max({of_node('sickbay_gpu_temperature_celsius')})"),
        ),
        stat(
            "Power of all GPUs",
            "Sum over the GPUs, without the host.",
            unit="watt",
            query=Query(expr=f"sum({of_node('sickbay_gpu_power_watts')})"),
        ),
        stat(
            "Uncorrected errors",
            "Volatile double-bit errors since the driver was loaded.",
            unit="short",
            query=Query(expr=f"sum({of_node('sickbay_gpu_ecc_uncorrected_volatile_total')})"),
            steps=none_is_good(),
        ),
        stat(
            "Row remap failed",
            "GPUs whose bad memory could not be taken out of service: the part is replaced.",
            unit="short",
            query=Query(expr=f"sum({of_node('sickbay_gpu_row_remap_failed')})"),
            steps=none_is_good(),
        ),
        stat(
            "Agent's last push",
            "Age of the last push the controller answered.",
            unit="s",
            query=Query(
                expr=f"time() - min({of_node('sickbay_agent_last_push_timestamp_seconds')})",
            ),
            steps=at_most(STALE_AGENT_SECONDS),
        ),
    )


def _findings() -> tuple[Panel, ...]:
    return (
        table(
            "Open findings",
            "What sickbay holds against this node or one of its GPUs. sickbay why NODE gives the sentences.",
            unit="short",
            query=Query(expr=f"max by (node, rule, severity, gpu, uuid) ({of_node('sickbay_finding')})"),
            columns={
                "node": "Node",
                "rule": "Rule",
                "severity": "Severity",
                "gpu": "GPU (PCI)",
                "uuid": "UUID",
                "Value": "Open",
            },
            steps=(Step(None, RED),),
            width=16,
            height=6,
        ),
        stat(
            "Exporter answers",
            "Whether the node's exporter gave the controller samples in its last pass. No data where the "
            "controller scrapes nothing itself.",
            unit="none",
            query=Query(expr=f"max by (node) ({of_node('sickbay_scrape_target_up')})", legend="{{node}}"),
            steps=(Step(None, RED), Step(1, GREEN)),
            mappings=(value_names({0: ("no", RED), 1: ("yes", GREEN)}),),
            height=6,
        ),
        stat(
            "Last samples",
            "Age of the last samples the controller had from the node's exporter.",
            unit="s",
            query=Query(
                expr=f"time() - max({of_node('sickbay_scrape_target_last_success_timestamp_seconds')})"
            ),
            steps=at_most(STALE_AGENT_SECONDS),
            height=6,
        ),
    )


def _line(metric: str, legend: str = _GPU) -> Query:
    return Query(expr=of_node(metric), legend=legend)


def _clocks() -> tuple[Panel, ...]:
    return (
        timeseries(
            "Temperature",
            "Core and memory, and the device's own slowdown limit where it gives one.",
            unit="celsius",
            queries=[
                _line("sickbay_gpu_temperature_celsius", f"{_GPU} core"),
                _line("sickbay_gpu_memory_temperature_celsius", f"{_GPU} memory"),
                Query(
                    expr=f"min by (node) ({of_node('sickbay_gpu_temperature_limit_celsius')})",
                    legend="{{node}} slowdown limit",
                ),
            ],
        ),
        timeseries(
            "SM clock",
            "In a synchronous job the GPU whose clock is low is the one the others wait for.",
            unit="hertz",
            minimum=0,
            queries=[_line("sickbay_gpu_sm_clock_hertz")],
        ),
        state_timeline(
            "Why clocks are held down",
            "The bits of the clock event reasons that slow a GPU. A power cap is often a setting, heat and "
            "the power brake are not. Idle GPUs are not shown as slowed.",
            queries=[
                Query(
                    expr=f"floor({of_node('sickbay_gpu_clock_event_reasons')} / {bit}) % 2",
                    legend=f"{_GPU} {name}",
                )
                for bit, name in _REASONS
            ],
            mappings=[_YES_NO],
        ),
        timeseries(
            "Power",
            "Draw per GPU and the lowest enforced limit of the node.",
            unit="watt",
            minimum=0,
            queries=[
                _line("sickbay_gpu_power_watts"),
                Query(
                    expr=f"min by (node) ({of_node('sickbay_gpu_power_limit_watts')})",
                    legend="{{node}} lowest limit",
                ),
            ],
        ),
    )


def _work() -> tuple[Panel, ...]:
    return (
        timeseries(
            "Utilisation",
            "Share of time with a kernel running. 100 % is not useful work: a waiting GPU shows it too.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            queries=[_line("sickbay_gpu_utilization_ratio")],
            width=8,
        ),
        timeseries(
            "Tensor pipe",
            "Share of cycles with the tensor pipe active (profiling metrics). The slow one works hardest.",
            unit="percentunit",
            minimum=0,
            maximum=1,
            queries=[_line("sickbay_gpu_tensor_active_ratio")],
            width=8,
        ),
        timeseries(
            "Memory used",
            "Framebuffer in use.",
            unit="bytes",
            minimum=0,
            queries=[_line("sickbay_gpu_memory_used_bytes")],
            width=8,
        ),
    )


def _memory() -> tuple[Panel, ...]:
    return (
        timeseries(
            "ECC errors",
            "Errors in the hour before each point. Corrected ones are normal in small numbers.",
            unit="short",
            minimum=0,
            queries=[
                Query(expr=f"increase({of_node(metric)}[1h])", legend=f"{_GPU} {word}")
                for metric, word in (
                    ("sickbay_gpu_ecc_corrected_volatile_total", "corrected"),
                    ("sickbay_gpu_ecc_uncorrected_volatile_total", "uncorrected"),
                )
            ],
        ),
        state_timeline(
            "Rows waiting for retirement, or that failed it",
            "Pending: applied at the next reset, no reason to replace a card. Failed: the card is replaced.",
            queries=[
                Query(expr=of_node(metric), legend=f"{_GPU} {word}")
                for metric, word in (
                    ("sickbay_gpu_row_remap_pending", "pending"),
                    ("sickbay_gpu_row_remap_failed", "failed"),
                    ("sickbay_gpu_retired_pages_pending", "page pending"),
                )
            ],
            mappings=[_YES_NO],
        ),
    )


def _links() -> tuple[Panel, ...]:
    return (
        timeseries(
            "PCIe link",
            "Width in lanes and generation. Both fall when a GPU is idle: judge them under load only.",
            unit="none",
            minimum=0,
            queries=[
                _line("sickbay_gpu_pcie_link_width", f"{_GPU} width"),
                _line("sickbay_gpu_pcie_link_generation", f"{_GPU} generation"),
            ],
        ),
        timeseries(
            "PCIe and NVLink errors",
            "Replays and CRC errors a second. Some replays are normal; a rate that stays is a bad contact.",
            unit="cps",
            minimum=0,
            queries=[
                Query(
                    expr=f"sum by (node, gpu) (rate({of_node(metric)}[$__rate_interval]))",
                    legend=f"{_GPU} {word}",
                )
                for metric, word in (
                    ("sickbay_gpu_pcie_replays_total", "PCIe replays"),
                    ("sickbay_gpu_nvlink_replay_errors_total", "NVLink replays"),
                    ("sickbay_gpu_nvlink_crc_flit_errors_total", "NVLink CRC"),
                )
            ],
        ),
        table(
            "Last XID per GPU",
            "The last code DCGM has seen, latched: it happened, but not when. sickbay xid CODE explains.",
            unit="none",
            query=Query(expr=f"max by (node, gpu, uuid) ({of_node('sickbay_gpu_xid_last_code')} > 0)"),
            columns={"node": "Node", "gpu": "GPU", "uuid": "UUID", "Value": "XID"},
            steps=(Step(None, YELLOW),),
            width=12,
        ),
        state_timeline(
            "Recovery action",
            "What the driver itself asks for.",
            queries=[_line("sickbay_gpu_recovery_action")],
            mappings=[value_names(_ACTIONS)],
        ),
    )


def _agent() -> tuple[Panel, ...]:
    return (
        timeseries(
            "Age of the last answered push",
            f"An agent pushes every 15 s; above {STALE_AGENT_SECONDS:.0f} s the node's verdict is unknown.",
            unit="s",
            minimum=0,
            steps=at_most(STALE_AGENT_SECONDS),
            queries=[
                Query(
                    expr=f"time() - {of_node('sickbay_agent_last_push_timestamp_seconds')}", legend="{{node}}"
                )
            ],
        ),
        timeseries(
            "Events and problems",
            "Hardware events read from the kernel log, and lines that could not be used or were not trusted.",
            unit="cps",
            minimum=0,
            queries=[
                Query(
                    expr="sum by (node, kind) "
                    f"(rate({of_node('sickbay_agent_events_total')}[$__rate_interval]))",
                    legend="{{node}} {{kind}}",
                ),
                Query(
                    expr="sum by (node, source, reason) "
                    f"(rate({of_node('sickbay_agent_problems_total')}[$__rate_interval]))",
                    legend="{{node}} {{source}} {{reason}}",
                ),
            ],
        ),
        timeseries(
            "Spool",
            "Events that wait for the controller's answer.",
            unit="short",
            minimum=0,
            queries=[_line("sickbay_agent_spool_events", "{{node}}")],
        ),
        state_timeline(
            "Spool on disk",
            "No: events that wait would be lost with the agent's process.",
            queries=[_line("sickbay_agent_spool_durable", "{{node}}")],
            mappings=[value_names({0: ("no", RED), 1: ("yes", GREEN)})],
            steps=(Step(None, RED), Step(1, GREEN)),
        ),
    )
