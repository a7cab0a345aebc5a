"""Which streaming queries read a log, how far each has come, and whom rows are kept for."""

from __future__ import annotations

from evflow.errors import FlowError
from evflow.spark.sinklog.log import RowLog

_MOST = 1_000
"""Queries that are remembered; of more, one that was quiet for too long is forgotten."""


class Queries:
    """The queries that read a log.

    A row is kept until all queries that were heard of lately have committed it. One that was not heard of for
    ``patience`` seconds holds back nothing; when none was heard of, nothing goes.

    Args:
        log: what they read. Those that it knows have just been heard of.
        patience: see above.
        now: seconds on a clock that only goes forward.
    """

    def __init__(self, log: RowLog, patience: float, now: float) -> None:
        self.patience = patience
        self._log = log
        self._heard = dict.fromkeys(log.queries, now)

    def hear(self, query: str, at: int, now: float) -> None:
        """A query reads on at an offset: it is new, goes on, or has gone back to an older checkpoint."""
        self._admit(query, now)
        known = self._log.queries.get(query)
        if known is None or at < known:
            self._log.commit(query, at)
        self._heard[query] = now

    def commit(self, query: str, row: int, now: float) -> None:
        """A query has done with all rows before an offset."""
        self._admit(query, now)
        self._log.commit(query, max(row, self._log.queries.get(query, 0)))
        self._heard[query] = now

    def _admit(self, query: str, now: float) -> None:
        """Sees to it that there is room for a query: one that is waited for does not make way."""
        if query in self._heard or len(self._heard) < _MOST:
            return
        quiet = min(self._heard, key=self._heard.__getitem__)
        if now - self._heard[quiet] <= self.patience:
            raise FlowError(f"{_MOST} queries read from the sink, expected fewer; wait until some have ended")
        self.leave(quiet)

    def leave(self, query: str) -> None:
        """A query does not read any more."""
        self._heard.pop(query, None)
        self._log.forget(query)

    def committed(self, now: float) -> int:
        """The offset up to which all queries that were heard of lately have committed."""
        heard = [query for query, at in self._heard.items() if now - at <= self.patience]
        return min((self._log.queries[query] for query in heard), default=self._log.first)
