"""What went wrong with a configuration, one line per problem."""

from __future__ import annotations

from collections.abc import Sequence

from fleet.errors import SickbayError


class ConfigError(SickbayError):
    """The configuration cannot be used. The text is one line per problem:
    ``file:line: path.to.key: what is wrong; what to do``.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        super().__init__("\n".join(lines))
        self.lines = tuple(lines)
