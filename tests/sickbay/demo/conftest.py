"""One run of the shipped script, shared; it takes a few seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from rules.model import Catalogue
from sickbay.demo.clockwork import Clockwork, node_names
from sickbay.demo.scenes import Script, default_script


@pytest.fixture
def clockwork() -> Iterator[Callable[..., Clockwork]]:
    """A factory of clockworks that are closed at the end."""
    made: list[Clockwork] = []

    def make(
        script: Script | None = None, *, nodes: int = 16, seed: int = 1, catalogue: Catalogue | None = None
    ) -> Clockwork:
        made.append(Clockwork(nodes=nodes, seed=seed, database=None, script=script, catalogue=catalogue))
        return made[-1]

    yield make
    for work in made:
        work.close()


@pytest.fixture
def only() -> Callable[..., Script]:
    """The shipped script with one scene left, its end moved to ``ends_at``, and no buttons."""

    def make(scene: str, *, ends_at: float, **changes: object) -> Script:
        script = default_script(node_names(16))
        kept = tuple(replace(s, **changes) for s in script.scenes if s.name == scene)
        assert kept, f"no scene {scene}"
        return replace(script, scenes=kept, buttons=(), ends_at=ends_at)

    return make
