"""Human words, and the lease."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from sqlalchemy import insert, or_, select, update

from remediator.ledger import rows, schema
from remediator.ledger.session import Session
from remediator.records import Lease, Word, WordKind

_LEASE = "controller"


class WordPart(Session):
    def add_word(self, word: Word) -> Word:
        """The word with its number."""
        return dataclasses.replace(word, id=self._insert(insert(schema.word), rows.word_values(word)))

    def end_words(self, kind: WordKind, target: str | None, at: float) -> int:
        """End what stands for exactly this target (None: the fleet); how many words that were."""
        table = schema.word
        same = table.c.target.is_(None) if target is None else table.c.target == target
        return self._run(
            update(table)
            .where(
                table.c.kind == kind.value,
                same,
                table.c.ended_at.is_(None),
                or_(table.c.expires_at.is_(None), table.c.expires_at > at),
            )
            .values(ended_at=at)
        ).rowcount

    def words(self, now: float) -> Sequence[Word]:
        """What binds us now, oldest first."""
        table = schema.word
        standing = (
            select(table)
            .where(table.c.ended_at.is_(None), or_(table.c.expires_at.is_(None), table.c.expires_at > now))
            .order_by(table.c.id)
        )
        return [rows.word_record(row) for row in self._rows(standing)]


class LeasePart(Session):
    def acquire_lease(self, holder: str, now: float, duration: float) -> Lease | None:
        """Take or renew the lease; None while somebody else holds it.

        The epoch grows with every change of holder, a release between two terms of one holder included;
        it never goes back.
        """
        table = schema.lease
        row = self._first(select(table).where(table.c.name == _LEASE))
        if row is not None and row.holder not in (None, holder) and row.expires_at > now:
            return None
        epoch = 1 if row is None else row.epoch + (row.holder != holder)
        taken = Lease(holder=holder, expires_at=now + duration, epoch=epoch)
        values = {"name": _LEASE, **dataclasses.asdict(taken)}
        self._run(self._dialect.upsert(table, ["name"]), values)
        return taken

    def release_lease(self, holder: str) -> None:
        """Let the next one take it at once; nothing happens when ``holder`` has lost it already."""
        table = schema.lease
        self._run(
            update(table)
            .where(table.c.name == _LEASE, table.c.holder == holder)
            .values(holder=None, expires_at=0.0)
        )

    def lease(self) -> Lease | None:
        table = schema.lease
        row = self._first(select(table).where(table.c.name == _LEASE, table.c.holder.is_not(None)))
        return None if row is None else Lease(holder=row.holder, expires_at=row.expires_at, epoch=row.epoch)
