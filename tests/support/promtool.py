"""promtool and amtool for tests: found, skipped with a reason, or (on CI) a failure."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

_SEARCH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def tool(name: str, *arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run one of Prometheus' tools; its whole answer."""
    found = shutil.which(name, path=_SEARCH)
    if found is None:
        reason = f"{name} is not installed; run: sh tests/services/install.sh"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return subprocess.run(
        [found, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=cwd, timeout=100
    )
