"""The library object: what we need of it, how it is found, and what its errors say.

Names and numbers are those of NVIDIA's NVML API reference as the ``pynvml`` module of nvidia-ml-py gives
them; a test holds every one of them to that module. The object is injected everywhere, so that a fake one
can stand in.
"""

from __future__ import annotations

import importlib
from enum import IntEnum
from typing import Any, Protocol, cast

MODULE = "pynvml"


class Nvml(Protocol):
    """The part of the module that every pass needs. Handles are opaque; texts may be bytes in old versions.

    All raise ``NVMLError``, whose ``value`` is an nvmlReturn_t. What else is asked for (``probes``) is
    asked by name: an older module that lacks it is a function not found.
    """

    NVMLError: type[Exception]

    def nvmlInit(self) -> object: ...  # noqa: N802 - NVIDIA's names
    def nvmlShutdown(self) -> object: ...  # noqa: N802
    def nvmlDeviceGetCount(self) -> int: ...  # noqa: N802
    def nvmlDeviceGetHandleByIndex(self, index: int) -> object: ...  # noqa: N802


class NvmlReturn(IntEnum):
    """nvmlReturn_t: part of the library's stable interface."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    ALREADY_INITIALIZED = 5
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    INSUFFICIENT_POWER = 8
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    IRQ_ISSUE = 11
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    CORRUPTED_INFOROM = 14
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    NO_DATA = 21
    VGPU_ECC_NOT_SUPPORTED = 22
    INSUFFICIENT_RESOURCES = 23
    FREQ_NOT_SUPPORTED = 24
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    NOT_READY = 27
    GPU_NOT_FOUND = 28
    INVALID_STATE = 29
    RESET_TYPE_NOT_SUPPORTED = 30
    UNKNOWN = 999


# The device has no such thing, or this driver or binding does not know the question: null, no problem.
ABSENT = frozenset(
    {
        NvmlReturn.NOT_SUPPORTED,
        NvmlReturn.FUNCTION_NOT_FOUND,
        NvmlReturn.NO_DATA,
        NvmlReturn.VGPU_ECC_NOT_SUPPORTED,
        NvmlReturn.FREQ_NOT_SUPPORTED,
        NvmlReturn.RESET_TYPE_NOT_SUPPORTED,
        NvmlReturn.ARGUMENT_VERSION_MISMATCH,
        NvmlReturn.DEPRECATED,
    }
)
# nvmlErrorString's words, which nvidia-smi prints in its cells: one vocabulary for both sources.
_WORDS = {
    NvmlReturn.NO_PERMISSION: "Insufficient Permissions",
    NvmlReturn.INSUFFICIENT_POWER: "Insufficient External Power",
    NvmlReturn.IRQ_ISSUE: "Interrupt Request Issue",
    NvmlReturn.CORRUPTED_INFOROM: "Corrupted infoROM",
    NvmlReturn.GPU_IS_LOST: "GPU is lost",
    NvmlReturn.RESET_REQUIRED: "GPU requires reset",
    NvmlReturn.LIB_RM_VERSION_MISMATCH: "Driver/library version mismatch",
    NvmlReturn.IN_USE: "In use by another client",
    NvmlReturn.MEMORY: "Insufficient Memory",
    NvmlReturn.GPU_NOT_FOUND: "GPU not found",
    NvmlReturn.UNKNOWN: "Unknown Error",
}


class NvmlFailure(Exception):  # noqa: N818 - an answer of the library, often an expected one
    """A call did not give a value; ``code`` says why (a code we do not know is UNKNOWN)."""

    def __init__(self, code: NvmlReturn) -> None:
        super().__init__(word_of(code))
        self.code = code


def code_of(value: object) -> NvmlReturn:
    """An nvmlReturn_t as our enum; one that we don't know is UNKNOWN, never success."""
    try:
        return NvmlReturn(cast(int, value))
    except ValueError:
        return NvmlReturn.UNKNOWN


def word_of(code: NvmlReturn) -> str:
    """The word that nvidia-smi prints for ``code``: absent ones are all "Not Supported"."""
    if code in ABSENT:
        return "Not Supported"
    return _WORDS.get(code, code.name.replace("_", " ").capitalize())


def load_library() -> Nvml | None:
    """The pynvml module, or None when it is not installed. Loading it opens no device and needs no GPU."""
    try:
        return cast(Nvml, importlib.import_module(MODULE))
    except ImportError:
        return None


class Asker:
    """Calls by name, one at a time. ``doing`` is the call that is under way: what hangs is named."""

    def __init__(self, library: Nvml) -> None:
        self._library = library
        # pynvml says in this way of its own that the library lacks a function in the binding's version.
        mismatch = getattr(library, "NVMLLibraryMismatchError", None)
        self._not_there: tuple[type[Exception], ...] = (
            (TypeError,) if mismatch is None else (TypeError, mismatch)
        )
        self.doing: str | None = None

    def ask(self, function: str, *args: object) -> Any:
        """The call's value. Raises NvmlFailure, also for a module that lacks it or has another signature."""
        self.doing = function
        call = getattr(self._library, function, None)
        if call is None:
            raise NvmlFailure(NvmlReturn.FUNCTION_NOT_FOUND)
        try:
            return call(*args)
        except self._library.NVMLError as error:
            raise NvmlFailure(code_of(getattr(error, "value", None))) from error
        except self._not_there as error:
            raise NvmlFailure(NvmlReturn.FUNCTION_NOT_FOUND) from error

    def constant(self, name: str) -> Any:
        """A constant or a structure of the module. Raises NvmlFailure when this version has none."""
        value = getattr(self._library, name, None)
        if value is None:
            raise NvmlFailure(NvmlReturn.FUNCTION_NOT_FOUND)
        return value


def text_of(value: object) -> str:
    """A text of the library, which old bindings give as bytes."""
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)
