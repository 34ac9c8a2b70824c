"""Killed at any write, the same end is reached and nothing is done twice (invariants 5 and 6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.findings import IncidentState as State
from tests.support.rig import BACKEND_WRITES, KillSwitch, Rig, counts

pytestmark = pytest.mark.slow

ONCE = {"cordon": 1, "exclude": 1, "reboot": 1, "release": 1, "requeue": 1, "uncordon": 1}
#: How many ledger lines and write transactions the undisturbed story makes; asserted below.
APPENDS = 15
COMMITS = 12
POINTS = [
    *(("append", at) for at in range(1, APPENDS + 1)),
    *(("commit", at) for at in range(1, COMMITS + 1)),
    *((f"{when}:{verb}", 1) for when in ("before", "after") for verb in BACKEND_WRITES if verb != "annotate"),
    ("before:requeue", 2),
    ("after:requeue", 2),
]


def story(folder: Path) -> Rig:
    rig = Rig(folder)
    rig.submit("n01")
    rig.tick(2)
    return rig


def run_to_the_end(rig: Rig) -> None:
    rig.xid("n01")
    rig.run_until(lambda: [i.state for i in rig.incidents()] == [State.RETURNED])


def test_every_write_of_the_story_is_a_point(tmp_path: Path) -> None:
    rig = story(tmp_path)
    run_to_the_end(rig)
    assert (rig.switch.passed["append"], rig.switch.passed["commit"]) == (APPENDS, COMMITS)
    rig.close()


@pytest.mark.parametrize(("point", "at"), POINTS)
def test_killed_once(tmp_path: Path, point: str, at: int) -> None:
    rig = story(tmp_path)
    rig.switch.point, rig.switch.at = point, at
    run_to_the_end(rig)
    assert rig.switch.fired, f"{point} #{at} was never passed: {rig.switch.passed}"
    assert counts(rig.our_verbs()) == ONCE
    rig.close()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kills=st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from([point for point, _ in POINTS])), min_size=1, max_size=5
    )
)
def test_killed_again_and_again(
    tmp_path_factory: pytest.TempPathFactory, kills: list[tuple[int, str]]
) -> None:
    rig = story(tmp_path_factory.mktemp("rig"))
    rig.xid("n01")
    for pause, point in kills:
        rig.switch = KillSwitch(point, 1)
        rig.restart()
        rig.tick(pause)
    rig.switch = KillSwitch()
    rig.restart()
    rig.run_until(lambda: [i.state for i in rig.incidents()] == [State.RETURNED])
    assert counts(rig.our_verbs()) == ONCE
    rig.close()
