"""What can be wrong with a catalogue, with file and line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleet.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class CatalogueProblem:
    """One mistake in a rule file or table. ``line`` counts from 1; 0 where the file as a whole is meant."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class CatalogueError(InvalidInputError):
    """A catalogue cannot be used. The text is its first problem; ``problems`` holds all of them."""

    def __init__(self, problems: Sequence[CatalogueProblem]) -> None:
        self.problems = tuple(problems)
        more = len(self.problems) - 1
        hint = f" (and {more} more; `sickbay rules check DIR` lists them)" if more > 0 else ""
        super().__init__(f"{self.problems[0]}{hint}" if self.problems else "the catalogue is empty")
