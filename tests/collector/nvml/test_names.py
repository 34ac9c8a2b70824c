"""Every name and number that we take from NVML stands in the real module; installing it needs no GPU."""

from __future__ import annotations

import inspect

import pynvml
import pytest

from collector.nvml import probes
from collector.nvml.library import Asker, Nvml, NvmlFailure, NvmlReturn, load_library
from collector.nvml.snapshot import Snapshot

_ASKED_BY_NAME = (
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetProcessName",
    *probes.PROCESS_LISTS,
    *(probe.function for probe in (*probes.PROBES, *probes.MIG_PROBES)),
)
_CONSTANTS = (
    *(name for probe in (*probes.PROBES, *probes.MIG_PROBES) for name in probe.arguments),
    *(probe.field for probe in probes.FIELD_PROBES),
    *(probe.scope for probe in probes.FIELD_PROBES if probe.scope is not None),
    *probes._MEMBERS,
)
_STRUCTURES = {probe.structure for probe in probes.PROBES if probe.structure is not None}


@pytest.mark.parametrize("name", sorted(set(_ASKED_BY_NAME)))
def test_every_function_is_there(name: str) -> None:
    assert callable(getattr(pynvml, name))


def test_no_function_is_asked_that_the_list_above_lacks() -> None:
    """Whatever the snapshot's source names, in quotes, is held to the module."""
    source = inspect.getsource(Snapshot)
    named = {word.strip("\"'(),") for word in source.split() if word.strip("(").startswith('"nvml')}
    named |= {part.split('"')[1] for part in source.split("ask(") if part.startswith('"nvml')}
    named |= {part.split('"')[1] for part in source.split("_optional(") if part.startswith('"nvml')}
    assert {name for name in named if name.isidentifier() and name != "nvml"} <= set(_ASKED_BY_NAME)
    assert len(named) > 10


def test_nothing_is_ever_set_reset_or_cleared() -> None:
    others = {name for name in _ASKED_BY_NAME if not name.startswith(("nvmlDeviceGet", "nvmlSystemGet"))}
    assert others == {"nvmlInit", "nvmlShutdown"}


@pytest.mark.parametrize("name", sorted(set(_CONSTANTS)))
def test_every_constant_is_there(name: str) -> None:
    assert isinstance(getattr(pynvml, name), int)


def test_no_field_is_confused_with_another() -> None:
    """An id of nvml.h that we rely on: DCGM's field 230 is the last XID, NVML's the recovery action."""
    assert pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION == 230
    ids = [(getattr(pynvml, probe.field), probe.scope) for probe in probes.FIELD_PROBES]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("code", list(NvmlReturn))
def test_every_error_code_has_the_modules_number(code: NvmlReturn) -> None:
    name = "NVML_SUCCESS" if code is NvmlReturn.SUCCESS else f"NVML_ERROR_{code.name}"
    assert getattr(pynvml, name) == code


def test_every_error_code_of_the_module_is_known() -> None:
    theirs = {value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_")}
    assert theirs <= {int(code) for code in NvmlReturn}


def test_an_error_says_its_code() -> None:
    error = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
    assert isinstance(error, pynvml.NVMLError)
    assert error.value == NvmlReturn.GPU_IS_LOST


@pytest.mark.parametrize("name", sorted(_STRUCTURES))
def test_every_structure_has_what_is_read_from_it(name: str) -> None:
    """The reader of a probe runs on an empty one of the real kind."""
    for probe in probes.PROBES:
        if probe.structure == name:
            texts = probe.read(getattr(pynvml, name)())
            assert len(texts) == len(probe.columns)


def test_the_members_of_a_fields_value() -> None:
    union = {field[0] for field in pynvml.c_nvmlValue_t._fields_}
    assert set(probes._MEMBERS.values()) <= union


def test_the_recovery_actions_have_the_numbers_of_the_table() -> None:
    names = ("NONE", "GPU_RESET", "NODE_REBOOT", "DRAIN_P2P", "DRAIN_AND_RESET", "RECOVER_IMEX_DOMAIN")
    numbers = [getattr(pynvml, f"NVML_GPU_RECOVERY_ACTION_{name}") for name in names]
    assert numbers == [0, 1, 2, 3, 4, 5]


def test_the_default_library_is_the_module_and_fails_without_a_driver() -> None:
    library = load_library()
    assert library is not None
    checked: Nvml = library
    assert checked.NVMLError is pynvml.NVMLError
    with pytest.raises(NvmlFailure) as raised:
        Asker(library).ask("nvmlDeviceGetCount")
    assert raised.value.code is NvmlReturn.UNINITIALIZED
