"""dcgm-exporter's metrics become ours."""

from __future__ import annotations

from alerts.scenarios.words import Scenario, Value

_OLD = 'gpu="0", UUID="GPU-0", Hostname="n01", device="nvidia0", DCGM_FI_DRIVER_VERSION="545.29.06"'
_NEW = 'gpu="1", UUID="GPU-1", hostname="n01", pci_bus_id="00000000:8D:00.0"'
_POD = 'gpu="2", UUID="GPU-2", Hostname="dcgm-exporter-x7k2p", node="n02", pod="dcgm-exporter-x7k2p"'
_LINK = 'gpu="0", gpu_uuid="GPU-0", hostname="n01", nvlink="3"'
_MIG = 'gpu="3", UUID="GPU-3", hostname="n01", GPU_I_ID="7", GPU_I_PROFILE="1g.10gb"'


def normalised() -> tuple[Scenario, ...]:
    return (*_basics(), _several(), _edges())


def _basics() -> tuple[Scenario, ...]:
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


def _several() -> Scenario:
    """Series that differ by more than the GPU stay apart, and the window's length is in seconds."""
    code = "sickbay_gpu_xid_window_count"
    window = 'window_size_in_ms="300000"'
    gpu = 'node="n01", gpu="1", uuid="GPU-1"'
    return Scenario(
        name="one series per XID, clock event and link",
        series={
            f'DCGM_EXP_XID_ERRORS_COUNT{{{_NEW}, {window}, xid="31"}}': "2x10",
            f'DCGM_EXP_XID_ERRORS_COUNT{{{_NEW}, {window}, xid="79"}}': "1x10",
            f'DCGM_EXP_CLOCK_EVENTS_TOTAL{{{_NEW}, clock_event="hw_thermal"}}': "5x10",
            f'DCGM_EXP_CLOCK_EVENTS_TOTAL{{{_NEW}, clock_event="sw_thermal"}}': "7x10",
            f'DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{{{_NEW}, nvlink="0"}}': "1x10",
            f'DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL{{{_NEW}, nvlink="1"}}': "2x10",
        },
        values=(
            Value(
                expr=code,
                at=120,
                samples={
                    f'{code}{{{gpu}, window_seconds="300", xid="31"}}': 2,
                    f'{code}{{{gpu}, window_seconds="300", xid="79"}}': 1,
                },
            ),
            Value(
                expr="sum by (clock_event) (sickbay_gpu_clock_events_total)",
                at=120,
                samples={'{clock_event="hw_thermal"}': 5, '{clock_event="sw_thermal"}': 7},
            ),
            Value(
                expr="sum by (nvlink) (sickbay_gpu_nvlink_crc_flit_errors_total)",
                at=120,
                samples={'{nvlink="0"}': 1, '{nvlink="1"}': 2},
            ),
        ),
    )


def _edges() -> Scenario:
    """Large counters are numbers, flags are 0 or 1, old names and suffixes are understood."""
    old = 'gpu="0", uuid="GPU-0", Hostname="n01", device="nvidia0"'
    return Scenario(
        name="beyond 31 bits, flags, parts of the memory, old labels, names with another _total",
        series={
            f"DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{_NEW}}}": "4000000000x10",
            f"DCGM_FI_DEV_ROW_REMAP_PENDING{{{_NEW}}}": "3x10",
            f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{_NEW}}}": "0x10",
            f"DCGM_FI_DEV_FB_USED{{{_NEW}}}": "1024x10",
            f"DCGM_FI_DEV_FB_FREE{{{_NEW}}}": "2048x10",
            f"DCGM_FI_DEV_FB_RESERVED{{{_NEW}}}": "1024x10",
            f"DCGM_FI_DEV_FB_USED{{{_OLD}}}": "1024x10",
            f"DCGM_FI_PROF_SM_ACTIVE{{{_MIG}}}": "1.173x10",
            f"DCGM_FI_PROF_SM_ACTIVE{{{_NEW}}}": "1.173x10",
            f"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL_total{{{_NEW}}}": "2x10",
            f"dcgm_gpu_temp{{{old}}}": "51x10",
        },
        values=(
            _single("sickbay_gpu_pcie_replays_total", 1, 4e9),
            _single("sickbay_gpu_row_remap_pending", 1, 1),
            _single("sickbay_gpu_row_remap_failed", 1, 0),
            # GPU 0 gives one part only: its total is not known.
            _single("sickbay_gpu_memory_total_bytes", 1, 2.0**32),
            _single("sickbay_gpu_sm_active_ratio", 3, 1.173, 'gi="7"'),
            _single("sickbay_gpu_ecc_uncorrected_volatile_total", 1, 2),
            _single("sickbay_gpu_temperature_celsius", 0, 51),
        ),
    )
