"""Our own packages: there, of the right version, and ours."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

import pytest

from rules.catalogue import load_catalogue
from sickbay.config import parse_config
from sickbay.doctor.house import TOP_LEVEL, house, names, needed_extras, packages, python
from sickbay.doctor.model import Status

ROOT = Path(__file__).parents[3]


def config(**more: Any) -> Any:
    return parse_config(
        {"cluster": "a", "scheduler": {"kind": "slurm"}, "metrics": {"source": "scrape"}, **more}
    )


def test_this_house_is_in_order() -> None:
    found = {one.name: one.status for one in names(ROOT)}
    assert found == {"house.names": Status.OK}


@pytest.mark.parametrize("place", [None, Path("/elsewhere/rules")])
def test_somebody_else_under_our_name(place: Path | None) -> None:
    found = list(names(ROOT, {"rules": place, "fleet": ROOT / "fleet"}))
    assert [one.status for one in found] == [Status.FAIL]
    assert "rules" in found[0].sentence
    assert "fleet" not in found[0].sentence
    assert "rules" in TOP_LEVEL


RICH = importlib.metadata.version("rich")


@pytest.mark.parametrize(
    ("requirement", "status"),
    [
        (f"rich>={RICH}", Status.OK),
        ("rich", Status.OK),
        ("rich>=9999", Status.FAIL),
        ("rich<1,>=0.1", Status.FAIL),
        ("no-such-package-of-ours>=1", Status.FAIL),
        ("no-such-package-of-ours>=1 ; extra == 'postgresql'", Status.OK),
        ("no-such-package-of-ours>=1 ; extra == 'controller'", Status.FAIL),
        ("sickbay[controller] ; extra == 'controller'", Status.OK),
    ],
)
def test_packages(requirement: str, status: Status) -> None:
    assert [one.status for one in packages(["controller"], [requirement])] == [status]


@pytest.mark.parametrize(
    ("version", "status"), [((3, 11, 2), Status.OK), ((3, 14, 0), Status.OK), ((3, 10, 9), Status.FAIL)]
)
def test_python(version: tuple[int, ...], status: Status) -> None:
    assert [one.status for one in python(version)] == [status]


def test_extras_are_those_of_the_configuration() -> None:
    assert needed_extras(config()) == ("controller",)
    wide = config(
        scheduler={"kind": "kubernetes"},
        metrics={"source": "prometheus"},
        store={"url": "postgresql+psycopg://u@h/d"},
    )
    assert needed_extras(wide) == ("controller", "postgresql", "kubernetes", "prometheus")


def test_warnings_of_the_configuration_are_told() -> None:
    catalogue = load_catalogue(())
    odd = config(rules={"disabled": ["no-such-rule"]}, lease={"duration_seconds": 5})
    told = [one.sentence for one in house(odd, catalogue) if one.name == "config.warning"]
    assert any("no-such-rule" in line for line in told)
    assert any("lease.duration_seconds" in line for line in told)
    calm = [one.status for one in house(config(), catalogue) if one.name == "config.warning"]
    assert calm == [Status.OK]
