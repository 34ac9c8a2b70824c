"""Whose semantics the demo's scheduler has; by itself, so that the command line loads nothing else."""

from __future__ import annotations

from enum import StrEnum


class SchedulerKind(StrEnum):
    SLURM = "slurm"
    KUBERNETES = "kubernetes"
