"""Who a line speaks of, and who holds that GPU: the labels of every dcgm-exporter, federated or not.

Label names: dcgm-exporter's ``internal/pkg/rendermetrics`` (``Hostname`` became ``hostname`` after 4.5.3,
NVLink rows say ``gpu_uuid`` and ``model_name``), gpu-monitoring-tools (``pod_name``), our own
``collector.prometheus_text``. Where Prometheus renamed an exporter's label to ``exported_<label>``, that one
is the exporter's word.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from collector.dcgm.exposition import Labels
from fleet.identity import MigInstance, normalise_pci

MAX_INDEX = 4095
_UUID = re.compile(r"GPU-[0-9A-Za-z-]{1,64}")
# gpu-monitoring-tools named a GPU instance MIG-<uuid of its GPU>/<gi>/<ci>.
_MIG_UUID = re.compile(r"MIG-(GPU-[0-9A-Za-z-]{1,64})/(\d{1,4})(?:/(\d{1,4}))?")
# The exporter's own pod, where NODE_NAME is not set (dcgm-exporter issue 78): never a node, never a workload.
_EXPORTER = re.compile(r"(?:^|[-_/])dcgm-exporter(?:[-_.]|$)")
_DEVICE = re.compile(r"nvidia(\d{1,4})")
_FABRIC = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

_HOSTS = ("Hostname", "hostname")
_UUIDS = ("UUID", "uuid", "gpu_uuid")
_MODELS = ("modelName", "model_name", "model")
_DRIVERS = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION", "driver")
_JOBS = ("hpc_job",)
# What makes one series of a signal differ from another, by dcgm-exporter's name and by ours.
_KEPT = {
    "nvlink": "nvlink",
    "xid": "xid",
    "clock_event": "clock_event",
    "window_seconds": "window_seconds",
    "port": "port",
    "cluster_uuid": "cluster_uuid",
    "clique": "clique",
}
_WINDOW = "window_size_in_ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a line is about, as it says itself. ``series`` tells several series of one signal apart."""

    host: str | None
    uuid: str | None
    index: int | None
    pci: str | None
    mig: MigInstance | None
    series: tuple[tuple[str, str], ...] = ()

    @property
    def names_gpu(self) -> bool:
        return self.uuid is not None or self.index is not None or self.pci is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Who holds the GPU, as one line says. ``direct_pod`` counts if nothing in the body is ``exported_``."""

    job: str | None = None
    exported_pod: str | None = None
    direct_pod: str | None = None
    nameless_pod: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything the reader needs of one set of labels."""

    identity: Identity
    workload: Workload
    model: str | None
    driver: str | None
    federated: bool
    other_entity: bool
    info: dict[str, str] = field(default_factory=dict)


def is_exporter_pod(name: str) -> bool:
    """True for a name such as ``nvidia-dcgm-exporter-p9d2k``."""
    return _EXPORTER.search(name) is not None


def read_labels(labels: Labels) -> Subject:
    """The labels of one line, read. Nothing is guessed: what is malformed is None."""
    renamed = {
        name.removeprefix("exported_"): v for name, v in labels.items() if name.startswith("exported_")
    }
    own = {**labels, **renamed} if renamed else labels
    uuid, mig = _gpu(own)
    pci = _first(own, "pci_bus_id", "pci")
    identity = Identity(
        host=_host(own),
        uuid=uuid,
        index=_index(own),
        pci=None if pci is None else normalise_pci(pci),
        mig=mig,
        series=_series(own),
    )
    return Subject(
        identity=identity,
        workload=_workload(labels, _first(own, *_JOBS)),
        model=_first(own, *_MODELS),
        driver=_first(own, *_DRIVERS),
        federated=bool(renamed),
        other_entity=not identity.names_gpu and any(n in labels for n in ("nvswitch", "cpu", "cpucore")),
        info={name: labels[name] for name in ("model", "driver", "vbios") if name in labels},
    )


def _first(labels: Labels, *names: str) -> str | None:
    for name in names:
        value = labels.get(name)
        if value:
            return value
    return None


def _host(labels: Labels) -> str | None:
    """The exporter's own host; where that is a pod or missing, ``node`` (ours, or a site's relabelling)."""
    said = _first(labels, *_HOSTS)
    node = _first(labels, "node", "kubernetes_node", "nodename")
    return node if node is not None and (said is None or is_exporter_pod(said)) else said


def _gpu(labels: Labels) -> tuple[str | None, MigInstance | None]:
    text = _first(labels, *_UUIDS) or ""
    mig = _mig(labels)
    of_instance = _MIG_UUID.fullmatch(text)
    if of_instance is not None:
        ci = None if of_instance[3] is None else int(of_instance[3])
        return of_instance[1], mig or MigInstance(gi=int(of_instance[2]), ci=ci)
    return (text if _UUID.fullmatch(text) else None), mig


def _mig(labels: Labels) -> MigInstance | None:
    gi = _number(_first(labels, "GPU_I_ID", "gi"))
    if gi is None:
        return None
    return MigInstance(gi=gi, ci=_number(_first(labels, "ci")), profile=_first(labels, "GPU_I_PROFILE"))


def _index(labels: Labels) -> int | None:
    index = _number(_first(labels, "gpu"))
    if index is not None:
        return index
    device = _DEVICE.fullmatch(_first(labels, "device") or _first(labels, "gpu") or "")
    return None if device is None else int(device[1])


def _number(text: str | None) -> int | None:
    if text is None or len(text) > 4 or not (text.isascii() and text.isdecimal()):  # noqa: PLR2004
        return None
    number = int(text)
    return number if number <= MAX_INDEX else None


def _series(labels: Labels) -> tuple[tuple[str, str], ...]:
    kept = [(ours, labels[name]) for name, ours in _KEPT.items() if name in labels]
    # A network card of our own agents' pages; dcgm-exporter's ``nvidia0`` is another name of the index.
    device = labels.get("device", "")
    if device and _DEVICE.fullmatch(device) is None:
        kept.append(("device", device))
    # On our own pages the fabric's id stands beside the clique; elsewhere ``cluster`` is the site's name.
    if "clique" in labels and _FABRIC.fullmatch(labels.get("cluster", "")):
        kept.append(("cluster", labels["cluster"]))
    window = labels.get(_WINDOW, "")
    if window.isascii() and window.isdecimal() and len(window) <= 12:  # noqa: PLR2004 - thirty years
        kept.append(("window_seconds", f"{int(window) / 1000:g}"))
    return tuple(kept)


def _workload(labels: Labels, job: str | None) -> Workload:
    pod = labels.get("exported_pod") or labels.get("exported_pod_name")
    exported = None
    if pod:
        exported = _pod(pod, labels.get("exported_namespace") or labels.get("exported_pod_namespace"))
        return Workload(job=_job(job), exported_pod=exported, nameless_pod=exported is None)
    pod = labels.get("pod") or labels.get("pod_name")
    if not pod or is_exporter_pod(pod):
        return Workload(job=_job(job))
    direct = _pod(pod, labels.get("namespace") or labels.get("pod_namespace"))
    return Workload(job=_job(job), direct_pod=direct, nameless_pod=direct is None)


def _job(text: str | None) -> str | None:
    """The job's id; some prologs write 0 for "none"."""
    return None if text is None or text == "0" else text


def _pod(name: str, namespace: str | None) -> str | None:
    return None if namespace is None else f"{namespace}/{name}"
