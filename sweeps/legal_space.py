"""The legal part of a space, resolved once: every setting that can run, grouped by the server it ends up as. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from search_spaces.config import EngineConfig, Setting
from search_spaces.rulings import Illegal, Legal, Ruling
from search_spaces.space import SearchSpace
from sweeps.dimensions import Value, contains, dimensions_of, params_of

Resolve = Callable[[Setting], Ruling]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A legal setting and what a server makes of it."""

    setting: Setting
    config: EngineConfig


class LegalSpace:
    """All legal settings of a space. Costs one resolution per setting of the product at construction."""

    def __init__(self, space: SearchSpace, resolve: Resolve) -> None:
        self.space = space
        self._resolve = resolve
        self._ranks: Mapping[str, Mapping[Value, int]] = {
            name: {value: i for i, value in enumerate(values)} for name, values in dimensions_of(space).items()
        }
        self._by_identity: dict[str, list[Candidate]] = {}
        for setting in space.settings():
            ruling = resolve(setting)
            if isinstance(ruling, Legal):
                candidate = Candidate(setting=setting, config=ruling.effective)
                self._by_identity.setdefault(ruling.effective.identity, []).append(candidate)

    @property
    def configs(self) -> tuple[EngineConfig, ...]:
        """The distinct effective configurations, in the order of the product."""
        return tuple(candidates[0].config for candidates in self._by_identity.values())

    @property
    def size(self) -> int:
        """How many distinct servers the legal settings end up as."""
        return len(self._by_identity)

    def judge(self, setting: Setting) -> Ruling:
        """Any setting, also one outside the space."""
        return self._resolve(setting)

    def candidate(self, setting: Setting) -> Candidate | Illegal:
        """The setting with its effective configuration, or why it cannot run."""
        ruling = self._resolve(setting)
        return Candidate(setting=setting, config=ruling.effective) if isinstance(ruling, Legal) else ruling

    def contains(self, setting: Setting) -> bool:
        """Whether the setting is one of the product, legal or not."""
        return contains(self.space, setting)

    def first_with_layout(self, label: str) -> Setting | None:
        """The first legal setting of the product with this layout label."""
        return next(
            (item.setting for group in self._by_identity.values() for item in group if item.setting.layout == label),
            None,
        )

    def nearest(
        self, setting: Setting, accept: Callable[[EngineConfig], bool], draw: random.Random
    ) -> Candidate | None:
        """An accepted candidate closest to `setting`, ties drawn; None when none is accepted.

        Distance is summed over dimensions: 1 for another layout or flag, the distance in rank as a share of the
        dimension's range for numbers.
        """
        best: list[Candidate] = []
        least = float("inf")
        wanted = params_of(setting)
        for candidate in self._accepted(accept):
            distance = self._distance(wanted, params_of(candidate.setting))
            if distance < least:
                best, least = [candidate], distance
            elif distance == least:
                best.append(candidate)
        return draw.choice(best) if best else None

    def _accepted(self, accept: Callable[[EngineConfig], bool]) -> Iterable[Candidate]:
        for candidates in self._by_identity.values():
            if accept(candidates[0].config):
                yield from candidates

    def _distance(self, first: Mapping[str, Value], second: Mapping[str, Value]) -> float:
        total = 0.0
        for name, ranks in self._ranks.items():
            here, there = first.get(name), second.get(name)
            if here == there:
                continue
            if isinstance(here, str) or isinstance(there, str) or here not in ranks:
                total += 1.0
            else:
                total += abs(ranks[here] - ranks[there]) / (len(ranks) - 1)
        return total
