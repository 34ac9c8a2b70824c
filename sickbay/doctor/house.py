"""Our own house: the packages we need, in versions we were made for, and nobody under our names."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import sickbay
from rules.model import Catalogue
from sickbay.config import Config
from sickbay.config.checks import find_warnings
from sickbay.config_rules import unknown_rules
from sickbay.doctor.model import Result, fail, ok, some, warn

# Short names: another distribution may bring a package of the same name, and the path decides who wins.
TOP_LEVEL = ("fleet", "collector", "rules", "remediator", "simulator", "dashboards", "alerts", "sickbay")
OLDEST_PYTHON = (3, 11)
_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?(?P<ranges>[^;]*)(?:;(?P<marker>.*))?$")
_RANGE = re.compile(r"(>=|<=|==|!=|~=|<|>)\s*([0-9][0-9.]*)")
_EXTRA = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_OF_SECRETS = ("http", "agent")


def house(config: Config, catalogue: Catalogue) -> Iterator[Result]:
    """Python, packages, names, and the warnings of the configuration (secrets are looked at elsewhere)."""
    yield from python()
    yield from packages(needed_extras(config))
    yield from names(Path(sickbay.__file__).resolve().parent.parent)
    remarks = [
        f"{'.'.join(map(str, remark.loc))}: {remark.text}"
        for remark in find_warnings(config)
        if remark.loc[0] not in _OF_SECRETS and "token_file" not in remark.loc
    ]
    remarks += unknown_rules(config, catalogue)
    for remark in remarks:
        yield warn("config.warning", remark, "correct the configuration")
    if not remarks:
        yield ok(
            "config.warning", f"the configuration is valid: cluster {config.cluster}, mode {config.mode}"
        )


def python(version: Sequence[int] = tuple(sys.version_info[:3])) -> Iterator[Result]:
    shown = ".".join(map(str, version[:3]))
    if tuple(version[:2]) < OLDEST_PYTHON:
        yield fail("house.python", f"Python {shown} is older than 3.11", "use a newer Python")
    else:
        yield ok("house.python", f"Python {shown}, sickbay {sickbay.__version__}")


def needed_extras(config: Config) -> tuple[str, ...]:
    """The optional parts that this configuration uses."""
    wanted = {"controller": True}
    wanted["postgresql"] = config.store.url.startswith("postgresql")
    wanted["kubernetes"] = config.scheduler.kind == "kubernetes"
    wanted["prometheus"] = config.metrics.source == "prometheus"
    return tuple(extra for extra, used in wanted.items() if used)


def packages(extras: Sequence[str], requirements: Sequence[str] | None = None) -> Iterator[Result]:
    """What sickbay's own metadata asks for, against what is installed."""
    name = "house.packages"
    if requirements is None:
        try:
            requirements = importlib.metadata.requires("sickbay") or []
        except importlib.metadata.PackageNotFoundError:
            yield warn(
                name,
                "sickbay runs from a folder and is not installed, so what it needs cannot be looked up",
                "pip install '.[controller]' into an environment of its own",
            )
            return
    wanted = dict(_wanted(requirements, frozenset(extras)))
    bad = [(extra, said) for package, (ranges, extra) in wanted.items() if (said := _fault(package, ranges))]
    if bad:
        parts = ",".join(sorted({extra for extra, _ in bad if extra})) or "controller"
        yield fail(
            name,
            f"packages are missing or of another version: {some((said for _, said in bad), 6)}",
            f"pip install 'sickbay[{parts}]'",
        )
    else:
        yield ok(name, f"{len(wanted)} packages are there, in versions that this sickbay was made for")


def _wanted(
    requirements: Sequence[str], extras: frozenset[str]
) -> Iterator[tuple[str, tuple[list[tuple[str, str]], str]]]:
    for line in requirements:
        found = _REQUIREMENT.match(line.strip())
        if found is None:
            continue
        extra = _EXTRA.search(found["marker"] or "")
        if extra is not None and extra[1] not in extras:
            continue
        if found["name"].lower() != "sickbay":  # the extra `all` names the others
            yield found["name"], (_RANGE.findall(found["ranges"]), extra[1] if extra else "")


def _fault(package: str, ranges: Sequence[tuple[str, str]]) -> str | None:
    try:
        installed = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"{package} (not installed)"
    have = _release(installed)
    for operator, text in ranges:
        want = _release(text)
        length = max(len(have), len(want))
        left, right = _padded(have, length), _padded(want, length)
        if (operator == ">=" and left < right) or (operator == "<" and left >= right):
            return f"{package} {installed} (wanted {operator}{text})"
    return None


def _release(text: str) -> tuple[int, ...]:
    """``2.0.30rc1`` -> (2, 0, 30): bounds here are releases, not candidates."""
    numbers = re.match(r"[0-9]+(?:\.[0-9]+)*", text)
    return tuple(int(part) for part in numbers[0].split(".")) if numbers else ()


def _padded(release: tuple[int, ...], length: int) -> tuple[int, ...]:
    return release + (0,) * (length - len(release))


def names(home: Path, found: Mapping[str, Path | None] | None = None) -> Iterator[Result]:
    """Each top-level package is the one beside ``sickbay``."""
    places = {name: _place(name) for name in TOP_LEVEL} if found is None else found
    foreign = [
        f"{name} ({place or 'not found'})"
        for name, place in places.items()
        if place is None or place.resolve().parent != home
    ]
    if foreign:
        yield fail(
            "house.names",
            f"not ours, but under our names: {some(foreign)}",
            "install sickbay into an environment of its own; another package has the same name",
        )
    else:
        yield ok("house.names", f"all {len(places)} packages of sickbay are its own, in {home}")


def _place(name: str) -> Path | None:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent
