"""GPUs in Slurm's GRES and TRES strings.

Node truth is ``gres`` / ``gres_used`` (``gpu:h100:8(S:0-1)``, ``gpu:h100:5(IDX:0-3,5)``), job truth is
``tres_alloc_str`` (``gres/gpu=8,gres/gpu:h100=8`` is the same eight: tres.html recommends to configure
both). Separators differ by version (``gres:gpu:2``, ``gres/gpu:2``, ``gres/gpu=2``); brackets hold commas.
MIG slices (``a100_3g.20gb``, gres.html) and shards are no GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

UNTYPED = "gpu"
_NOTHING = frozenset({"", "(null)", "null"})
_PREFIX = re.compile(r"^(?:gres[:/])")
_MIG = re.compile(r"\d+g\.\d+gb", re.IGNORECASE)
# cpu=2,mem=8G,node=1: every item has a value; one without was cut (sinfo and squeue -O cut at 20 columns).
_TRES = re.compile(r"^(?:cpu|mem|node|billing|energy|gres/[^,=:]+(?::[^,=]+)?)=\d")
_ITEM = re.compile(r"^(?P<name>[^:=(]+)(?:[:=](?P<rest>[^()]*))?(?:\((?P<detail>.*)\))?$")
_COUNT = re.compile(r"^(\d{1,12})([KMG]?)$", re.ASCII)
_FACTORS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
# A GRES may be configured as `name[:type][:no_consume]:count`.
_WORDS_BESIDE = frozenset({"no_consume"})
_INDEX = re.compile(r"^\d{1,6}$", re.ASCII)
# No node has more; a longer range is damage.
_MAX_INDICES = 1024


@dataclass(frozen=True, slots=True)
class Gpus:
    """What a GRES or TRES string says about GPUs.

    ``total`` counts whole GPUs; None when it cannot be known: unparsable, or (for a node) cut into MIG
    slices. ``slices`` counts MIG instances, ``shards`` shares. ``indices`` are Slurm's own (never NVML's).
    """

    total: int | None
    types: Mapping[str, int] = field(default_factory=dict)
    slices: int = 0
    shards: int = 0
    indices: tuple[int, ...] = ()
    problem: str | None = None


NO_GPUS = Gpus(0)


@lru_cache(maxsize=4096)
def parse_gres(text: str | None, *, request: bool = False) -> Gpus:
    """A comma separated GRES or TRES string. In a ``request`` a GPU without a count means one."""
    if text is None or text.strip() in _NOTHING:
        return NO_GPUS
    if text.strip().upper() == "N/A":
        return Gpus(None)
    untyped: int | None = None
    typed: dict[str, int] = {}
    shards = 0
    indices: list[int] = []
    problems: list[str] = []
    is_tres = _TRES.match(text.strip()) is not None
    for item in _split(text.strip()):
        if is_tres and "=" not in item:
            return Gpus(None, problem=f"TRES {text[:80]!r} is cut off at {item[:40]!r}")
        kind, gpu_type, amount, detail = _item(item, request=request)
        if kind == "other":
            continue
        if kind == "bad" or amount is None:
            return Gpus(None, problem=f"GRES {text[:80]!r} cannot be understood at {item[:40]!r}")
        if kind == "shard":
            shards += amount
            continue
        listed = _indices(detail)
        if listed is not None and len(listed) != amount:
            problems.append(f"GRES {item[:80]!r} counts {amount} GPUs but lists {len(listed)}")
        indices.extend(listed or ())
        if gpu_type is None:
            untyped = (untyped or 0) + amount
        else:
            typed[gpu_type] = typed.get(gpu_type, 0) + amount
    return _summary(text, untyped, typed, shards, tuple(indices), problems)


def _summary(
    text: str,
    untyped: int | None,
    typed: dict[str, int],
    shards: int,
    indices: tuple[int, ...],
    problems: list[str],
) -> Gpus:
    slices = sum(amount for name, amount in typed.items() if _MIG.search(name))
    whole = sum(typed.values()) - slices
    # In TRES strings the untyped entry is the sum of the typed ones; in GRES strings it stands beside them.
    is_tres = "gres/gpu=" in text or "gres/gpu:" in text
    if untyped is None:
        total = whole
    elif is_tres and typed:
        total = max(untyped - slices, whole)
    else:
        total = untyped + whole
    types = dict(typed)
    rest = total - whole
    if rest > 0 or (untyped is not None and not typed):
        types[UNTYPED] = rest
    problem = problems[0] if problems else None
    return Gpus(total, types, slices, shards, indices, problem)


def node_total(gpus: Gpus) -> int | None:
    """Physical GPUs of a node: unknown once MIG hides how many boards the slices were cut from."""
    return None if gpus.slices else gpus.total


def _split(text: str) -> list[str]:
    items, depth, start = [], 0, 0
    for position, char in enumerate(text):
        if char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        elif char == "," and depth == 0:
            items.append(text[start:position].strip())
            start = position + 1
    items.append(text[start:].strip())
    return [item for item in items if item]


def _item(item: str, *, request: bool) -> tuple[str, str | None, int | None, str | None]:
    """(kind, type, count, bracket text); kind is ``gpu``, ``shard``, ``other`` or ``bad``.

    Up to 25.11 the type of an untyped GPU with topology prints as ``(null)``.
    """
    match = _ITEM.match(_PREFIX.sub("", item).replace(":(null)", ""))
    if match is None:
        return "bad", None, None, None
    name, rest, detail = match["name"].strip(), match["rest"], match["detail"]
    if name not in ("gpu", "shard"):
        return "other", None, None, None
    parts = [part for part in re.split(r"[:=]", rest or "") if part]
    gpu_type: str | None = None
    amount: int | None = 1 if request else None
    if parts and (counted := _COUNT.match(parts[-1])):
        amount = int(counted[1]) * _FACTORS[counted[2]]
        parts.pop()
    parts = [part for part in parts if part not in _WORDS_BESIDE]
    if parts:
        gpu_type = ":".join(parts)
    return name, gpu_type, amount, detail


def _indices(detail: str | None) -> list[int] | None:
    """``IDX:0-3,5`` -> [0, 1, 2, 3, 5]; None when the bracket says nothing about indices."""
    if detail is None or not detail.startswith("IDX:"):
        return None
    body = detail[len("IDX:") :]
    if body in ("", "N/A"):
        return []
    found: list[int] = []
    for part in body.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (_INDEX.match(first) and _INDEX.match(last)) or int(last) - int(first) > _MAX_INDICES:
            return None
        found.extend(range(int(first), int(last) + 1))
    return found
