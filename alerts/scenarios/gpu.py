"""Rules of the catalogue: what a GPU shows, and who is told."""

from __future__ import annotations

from alerts.scenarios.words import Expect, Labels, Scenario


def _gpu(index: int, node: str = "n01") -> str:
    return f'cluster="alpha", gpu="{index}", UUID="GPU-{node}-{index}", hostname="{node}"'


def _who(index: int, node: str = "n01") -> Labels:
    return {"cluster": "alpha", "node": node, "gpu": str(index), "uuid": f"GPU-{node}-{index}"}


def gpu_rules() -> tuple[Scenario, ...]:
    return (_slowed(), _sliced(), _memory(), _recovery(), _vanished(), _named_only(), _moved(), _replaced())


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


def _named_only() -> Scenario:
    """A GPU whose values are all blank is named and not lost; one whose index alone is taken over is lost."""
    shifted = 'cluster="alpha", gpu="1", UUID="GPU-n01-2", hostname="n01"'
    return Scenario(
        name="a GPU without values is not lost, a lost one is missed although the others moved up",
        series={
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(0)}}}": "60x20 0x80",
            f"DCGM_FI_DEV_SM_CLOCK{{{_gpu(0)}}}": "1410x20 2147483632x80",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(1)}}}": "60x20 stale",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(2)}}}": "60x20 stale",
            f"DCGM_FI_DEV_GPU_TEMP{{{shifted}}}": "_x21 60x80",
        },
        expects=(Expect(alert="GpuVanished", at=900, firing=(_who(1),)),),
    )


def _replaced() -> Scenario:
    """Nothing reports while hands are at the machine; then as many GPUs as before, one of them new."""
    new = 'cluster="alpha", gpu="7", UUID="GPU-new", hostname="n01"'
    return Scenario(
        name="a card that was replaced is not missed",
        series={
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(6)}}}": "60x20 stale _x20 60x80",
            f"DCGM_FI_DEV_GPU_TEMP{{{_gpu(7)}}}": "60x20 stale",
            f"DCGM_FI_DEV_GPU_TEMP{{{new}}}": "_x41 60x80",
        },
        expects=(Expect(alert="GpuVanished", at=480), Expect(alert="GpuVanished", at=1500)),
    )


def _sliced() -> Scenario:
    """A busy instance says nothing of the board: whether a MIG GPU is busy as a whole is not known."""
    mig = f'{_gpu(0)}, GPU_I_ID="3", GPU_I_PROFILE="1g.10gb"'
    return Scenario(
        name="a MIG GPU is not judged by the work of one of its instances",
        series={
            f"DCGM_FI_DEV_CLOCKS_EVENT_REASONS{{{_gpu(0)}}}": "232x100",
            f"DCGM_FI_PROF_SM_ACTIVE{{{mig}}}": "0.9x100",
        },
        expects=tuple(
            Expect(alert=alert, at=1200)
            for alert in ("GpuThermalHwSlowdown", "GpuThermalSwSlowdown", "GpuPowerBrake")
        ),
    )
