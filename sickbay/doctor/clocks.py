"""Somebody else's clock against ours, as well as one question can tell."""

from __future__ import annotations

from sickbay.doctor.model import Result, fail, ok, unknown, warn

# Times are told in whole seconds.
_RESOLUTION = 1.0
WARN_SECONDS, FAIL_SECONDS = 3.0, 60.0
_MEND = "let chrony or systemd-timesyncd keep the time on both machines"


def compare(name: str, whose: str, theirs: float | None, asked_at: float, took: float) -> Result:
    """``theirs``: epoch seconds, said within ``took`` seconds after ``asked_at``, rounded down.

    Only what is certainly a difference counts: the answer may have been made at any moment in between.
    """
    if theirs is None:
        return unknown(name, f"{whose} says no time", _MEND)
    ahead = theirs - (asked_at + took)
    behind = asked_at - (theirs + _RESOLUTION)
    apart = max(0.0, ahead, behind)
    if apart < WARN_SECONDS:
        return ok(name, f"the clocks of {whose} and of this machine agree")
    side = "ahead of" if ahead > behind else "behind"
    said = f"the clock of {whose} is {apart:.0f} s {side} ours"
    harm = "ages of drains, jobs and samples are wrong by as much"
    if apart < FAIL_SECONDS:
        return warn(name, f"{said}: {harm}", _MEND)
    return fail(name, f"{said}: {harm}, and authentication by munge or tokens will fail", _MEND)
