"""What every section of the configuration has in common.

Every field says what it means and why it has that default; docs/configuration.md is made from these
texts (``python -m sickbay.config.docs``). Names, units and defaults are a contract.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """Strict and frozen: an unknown key is an error, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)
