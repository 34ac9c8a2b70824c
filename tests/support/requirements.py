"""What a test needs of the machine: there, skipped with a reason, or (on CI) a failure."""

from __future__ import annotations

import os

import pytest

from tests.support.minislurm import missing_programs


def require_slurm() -> None:
    """Skip with the reason when Slurm is not installed; on CI its absence is a failure."""
    missing = missing_programs()
    if not missing:
        return
    reason = f"Slurm is not installed (missing: {', '.join(missing)}); run: sh tests/services/install.sh"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
