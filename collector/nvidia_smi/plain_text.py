"""What nvidia-smi prints for people: ``--version``, and the table that is no data source."""

from __future__ import annotations

import re
from collections.abc import Sequence

from collector.nvidia_smi.records import Findings, Identity, quoted
from collector.nvidia_smi.xml_reader import read_version
from fleet.identity import normalise_pci
from fleet.observations import ProblemReason

_VERSION_LINE = re.compile(
    r"^(?P<what>NVIDIA-SMI|NVML|DRIVER|KMD|CUDA|CUDA UMD) version\s*:\s*(?P<value>.*)$", re.IGNORECASE
)
_TABLE = re.compile(r"^\|\s*NVIDIA-SMI\s|^\|\s*GPU\s+Name\s", re.MULTILINE)
_ROW_BEGIN = re.compile(r"^\|\s*(?P<index>\d{1,3})\s.*\|\s*(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{5,8})\s")
_OTHER_FORMS = re.compile(r"^=+NVSMI LOG=+|^# gpu\s|^GPU \d+: .*\(UUID: ", re.MULTILINE)
ADVICE = "use nvidia-smi -q -x"


def read_versions(lines: Sequence[str], found: Findings) -> bool:
    """``nvidia-smi --version``: driver and CUDA version as labels of ``gpu_info``. False: it is none.

    Driver 610 renamed both and leaves a sentence under the old names; only a version number counts.
    """
    matches = [match for line in lines if (match := _VERSION_LINE.match(line.strip()))]
    texts = {match["what"].upper(): match["value"] for match in matches}
    if not {"NVIDIA-SMI", "DRIVER", "KMD"} & set(texts):
        return False
    driver = read_version(texts.get("KMD")) or read_version(texts.get("DRIVER"))
    cuda = read_version(texts.get("CUDA UMD")) or read_version(texts.get("CUDA"))
    labels = {name: text for name, text in (("driver", driver), ("cuda", cuda)) if text is not None}
    if driver is None:
        shown = texts.get("KMD", texts.get("DRIVER", "missing"))
        found.problem(
            ProblemReason.UNRECOGNISED_VALUE, f"the driver's version is {quoted(shown)}, no version"
        )
    if labels:
        found.sample("gpu_info", 1.0, labels=labels)
    return True


def looks_like_table(text: str) -> bool:
    return _TABLE.search(text) is not None


def refuse_table(lines: Sequence[str], found: Findings) -> None:
    """The table for people gives no samples; a GPU with ``ERR!`` in it is reported, and nothing more.

    Its columns are cut to fit, ``0MiB`` beside ``ERR!`` is not idleness, and the same facts stand in the XML.
    """
    identity: Identity | None = None
    broken: dict[Identity, int] = {}
    for line in lines:
        if line.startswith("+"):
            identity = None
        elif match := _ROW_BEGIN.match(line):
            identity = Identity(index=int(match["index"]), pci=normalise_pci(match["pci"]))
        if identity is not None and "ERR!" in line:
            broken[identity] = broken.get(identity, 0) + line.count("ERR!")
    for gpu, errors in broken.items():
        found.problem(
            ProblemReason.QUERY_ERROR,
            f"{gpu.label}: {errors} value(s) are ERR! in the table; the driver could not read them",
            identity=gpu,
            count=errors,
        )
    found.problem(ProblemReason.UNREADABLE, f"the table for people is no data source; {ADVICE}")


def refuse(text: str, found: Findings) -> None:
    """Anything else."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    kind = (
        "a form for people, no data source" if _OTHER_FORMS.search(text) else "not recognised as its output"
    )
    found.problem(ProblemReason.UNREADABLE, f"{kind}; it begins {quoted(first)}; {ADVICE}")
