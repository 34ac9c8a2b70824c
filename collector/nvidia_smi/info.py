"""The labels of ``gpu_info``: what a GPU is, and what whoever resets it should know first."""

from __future__ import annotations

from collector.nvidia_smi.cells import CellKind, clean_name, read_cell
from collector.nvidia_smi.fields import Layout
from collector.nvidia_smi.view import GpuView

# Label -> (XML path, column).
_NAMES = {"model": ("product_name", "name"), "vbios": ("vbios_version", "vbios_version")}
_MIG = (("mig_mode/current_mig", "mig.mode.current"), ("mig_mode/pending_mig", "mig.mode.pending"))
_VIRTUALIZATION = "gpu_virtualization_mode/virtualization_mode"
_LICENCE = "vgpu_software_licensed_product/license_status"
_MODES = {"enabled": "enabled", "1": "enabled", "disabled": "disabled", "0": "disabled"}


def info_labels(view: GpuView, layout: Layout, *, driver: str | None) -> dict[str, str]:
    """``model``, ``driver``, ``vbios`` where known, and where it is so:

    * ``mig_pending``: ``enabled`` or ``disabled``, the MIG mode that the next reset brings (it differs);
    * ``virtualization``: ``vgpu`` for a guest, which sees little of the device;
    * ``license``: a guest's licence status, which throttles it and is no fault of the hardware.
    """
    labels = {"model": _name(view, _NAMES["model"], layout), "driver": driver}
    labels["vbios"] = _name(view, _NAMES["vbios"], layout)
    current, pending = (_MODES.get((_name(view, keys, layout) or "").lower()) for keys in _MIG)
    if current is not None and pending is not None and current != pending:
        labels["mig_pending"] = pending
    if layout is Layout.XML and (_name(view, (_VIRTUALIZATION, ""), layout) or "").lower() == "vgpu":
        labels["virtualization"] = "vgpu"
        labels["license"] = _name(view, (_LICENCE, ""), layout)
    return {label: text for label, text in labels.items() if text is not None}


def _name(view: GpuView, keys: tuple[str, str], layout: Layout) -> str | None:
    """The first text there that is neither absent nor an error."""
    texts = view.texts(keys[0] if layout is Layout.XML else keys[1])
    names = (name for text in texts if (name := clean_name(text)) is not None)
    return next((name for name in names if read_cell(name).kind is not CellKind.ERROR), None)
