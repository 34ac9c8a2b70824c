"""A machine without the test services: the reason is said, and on CI it is a failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import requirements

INSTALL = Path(__file__).parent / "install.sh"


def test_without_slurm_a_test_skips_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing_programs", lambda: ["slurmctld", "munged"])
    monkeypatch.delenv("CI", raising=False)

    with pytest.raises(pytest.skip.Exception, match="missing: slurmctld, munged"):
        requirements.require_slurm()


def test_without_slurm_ci_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requirements, "missing_programs", lambda: ["slurmctld"])
    monkeypatch.setenv("CI", "true")

    with pytest.raises(pytest.fail.Exception, match=r"run: sh tests/services/install\.sh"):
        requirements.require_slurm()


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_the_installer_without_rights_says_one_line(ci: str, status: int, tmp_path: Path) -> None:
    # A PATH with `id` alone: no Slurm that could be found, no apt-get, whoever runs this.
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    script = tmp_path / "install.sh"
    script.write_text(INSTALL.read_text().replace("/usr/sbin:/sbin", "/nonexistent"))

    done = subprocess.run(
        ["/bin/sh", str(script)],
        env={"PATH": str(tmp_path), "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == status
    assert len(done.stderr.splitlines()) == 1
    assert "as root, run: apt-get install --no-install-recommends slurmctld slurmd" in done.stderr
