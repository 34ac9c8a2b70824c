"""The rules that a configuration names: a typo must not silently leave a rule bolder than was meant.

A warning and no error: a file may name rules of another version.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from rules.model import Catalogue
from sickbay.config import Config


def unknown_rules(config: Config, catalogue: Catalogue) -> Sequence[str]:
    """A line for each id in ``rules.disabled`` or ``rules.modes`` that no rule has."""
    named = [("disabled", rule) for rule in config.rules.disabled]
    named += [("modes", rule) for rule in config.rules.modes]
    return [
        f"{config.path}: rules.{key}: there is no rule {rule!r}{_near(rule, catalogue)}, so this does "
        "nothing; sickbay rules list shows them all"
        for key, rule in named
        if rule not in catalogue.by_id
    ]


def _near(rule: str, catalogue: Catalogue) -> str:
    near = difflib.get_close_matches(rule, catalogue.by_id, n=1)
    return f" (perhaps {near[0]!r})" if near else ""
