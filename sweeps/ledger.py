"""The ledger: which effective configurations were launched, run now, or are settled by a record. Pure."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable

from results.records import TrialRecord
from search_spaces.config import EngineConfig

TEACHES: frozenset[str] = frozenset({"bad_config", "oom", "crash", "mismatch"})
"""Failure kinds that the configuration itself caused: the search learns that such settings are bad."""

FATAL: frozenset[str] = frozenset({"environment", "no_engine", "simulated"})
"""Failure kinds that every further trial would meet as well: the sweep stops."""

SEARCH_ROLES: frozenset[str] = frozenset({"search", "suspect", "reference"})
"""Roles whose records answer a later trial of the search with the same effective configuration."""


def counts_as_result(record: TrialRecord) -> bool:
    """Whether the record settles its configuration: measured, or failed by its own fault."""
    failure = record.failure
    return failure is None or (not failure.is_infrastructure and failure.kind not in FATAL)


class Ledger:
    """Counts launches per effective configuration. Rebuilt from the records at every start; one thread."""

    def __init__(self, records: Iterable[TrialRecord] = (), *, repeats: int = 1) -> None:
        self._repeats = repeats
        self._launched: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._given_up: set[str] = set()
        self._results: dict[str, TrialRecord] = {}
        self._out_of_memory: list[EngineConfig] = []
        self._refused: dict[str, str] = {}
        self.last_tp_size: int | None = None
        for record in records:
            self.add(record)

    def start(self, config: EngineConfig) -> None:
        """A launch of `config` begins."""
        self.last_tp_size = config.tp_size
        self._running[_identity(config)] += 1

    def end(self, config: EngineConfig) -> None:
        """That launch is over, with or without a record."""
        self._running[_identity(config)] -= 1

    def add(self, record: TrialRecord) -> None:
        """A record exists. Baselines and trials without a result do not count."""
        if record.role not in SEARCH_ROLES or not counts_as_result(record):
            return
        identity = _identity(record.effective)
        self._launched[identity] += 1
        known = self._results.get(identity)
        if known is None or (record.ok and not known.ok):
            self._results[identity] = record
        if record.failure is not None and record.failure.kind == "oom":
            self._out_of_memory.append(record.effective)

    def give_up(self, config: EngineConfig) -> None:
        """The retries of this configuration are used up; not proposed again until the next start of the driver."""
        self._given_up.add(_identity(config))

    def refuse(self, config: EngineConfig, reason: str) -> None:
        """The engine itself would not run this configuration: never proposed, and failed with `reason` when asked."""
        self._refused[_identity(config)] = reason

    def refusal(self, config: EngineConfig) -> str | None:
        return self._refused.get(_identity(config))

    def answer(self, config: EngineConfig) -> TrialRecord | None:
        """The record that answers a further trial of `config` without a launch; None when it is to be launched."""
        known = self._results.get(_identity(config))
        settled = known is not None and (not known.ok or self._launched[_identity(config)] >= self._repeats)
        return known if settled else None

    def larger_than_memory(self, config: EngineConfig) -> EngineConfig | None:
        """A configuration that ran out of memory although its tree is nowhere larger and all else is equal."""
        return next((small for small in self._out_of_memory if _dominates(config, small)), None)

    def launches(self, config: EngineConfig) -> int:
        """How often `config` was launched, running launches included."""
        return self._launched[_identity(config)] + self._running[_identity(config)]

    def is_running(self, config: EngineConfig) -> bool:
        return self._running[_identity(config)] > 0

    def is_open(self, config: EngineConfig) -> bool:
        """Whether the search may still launch `config`."""
        return (
            self.answer(config) is None
            and self.launches(config) < self._repeats
            and _identity(config) not in self._given_up
            and _identity(config) not in self._refused
            and self.larger_than_memory(config) is None
        )

    def is_unseen(self, config: EngineConfig) -> bool:
        return self.is_open(config) and self.launches(config) == 0


@functools.lru_cache(maxsize=65536)
def _identity(config: EngineConfig) -> str:
    return config.identity


def _dominates(large: EngineConfig, small: EngineConfig) -> bool:
    """Whether `large` needs at least the memory of `small`: the same but for a tree that is nowhere smaller."""
    if large.triple is None or small.triple is None:
        return False
    return (
        large.tp_size == small.tp_size
        and large.layout == small.layout
        and large.flags == small.flags
        and large.triple != small.triple
        and large.triple.num_steps >= small.triple.num_steps
        and large.triple.eagle_topk >= small.triple.eagle_topk
        and large.triple.num_draft_tokens >= small.triple.num_draft_tokens
    )
