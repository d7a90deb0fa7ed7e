"""What a study over a space would launch: legal, deduplicated, with every refusal and every silent change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from search_spaces.config import EngineConfig, Setting
from search_spaces.errors import InputError
from search_spaces.layout_rules import LAYOUT_SOURCES, LayoutRuling
from search_spaces.rulings import Adjustment, Illegal, Legal, RuleContext
from search_spaces.sglang_rules import RuleBook, launch_notes
from search_spaces.space import SearchSpace

PLAN_SCHEMA = 1

_LAYOUT_RULES = frozenset(name for name, _ in LAYOUT_SOURCES)


@dataclass(frozen=True, kw_only=True, slots=True)
class EffectiveGroup:
    """Settings that end up as one server. `ids` are those of the first of them (see `Legal.ids`)."""

    effective: EngineConfig
    ids: tuple[int, ...] | None
    settings: tuple[Setting, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class IllegalRow:
    """One refused combination. `layout` is None unless the layout is the reason; `settings` counts what it covers."""

    layout: str | None
    num_steps: int | None
    eagle_topk: int | None
    num_draft_tokens: int | None
    tp_size: int
    rule: str
    message: str
    settings: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AdjustedRow:
    """Numbers that SGLang changes: asked and run, with the rule. `settings` counts what the row covers."""

    requested: tuple[int | None, int | None, int | None]
    effective: tuple[int, int, int]
    rule: str
    message: str
    settings: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SpacePlan:
    """The plan. Counts: `requested` is the full product without baselines, `legal` the settings of it that can run,
    `effective` the distinct servers among these, `launches` all starts including baselines and repeats."""

    requested: int
    legal: int
    repeats: int
    groups: tuple[EffectiveGroup, ...]
    baselines: tuple[EngineConfig, ...]
    illegal: tuple[IllegalRow, ...]
    adjusted: tuple[AdjustedRow, ...]
    layouts: tuple[LayoutRuling, ...]
    notes: tuple[Adjustment, ...]

    @property
    def effective(self) -> int:
        return len(self.groups)

    @property
    def launches(self) -> int:
        return len(self.baselines) + len(self.groups) * self.repeats

    def require_legal(self) -> None:
        """InputError that counts the refusals by rule, with an example, when nothing in the space can run."""
        if self.legal:
            return
        counts: Counter[str] = Counter()
        for row in self.illegal:
            counts[row.rule] += row.settings
        reasons = ", ".join(f"{rule} {count}" for rule, count in counts.most_common())
        example = self.illegal[0]
        raise InputError(
            f"space: none of the {self.requested} settings is legal ({reasons}); "
            f"for example {_show(example)}: {example.message}"
        )

    def to_json(self) -> dict[str, Any]:
        """The plan as plain values (schema 1). Rows that differ only in what a rule does not look at are merged, and
        `settings` tells how many settings of the product a row stands for."""
        return {
            "schema": PLAN_SCHEMA,
            "requested": self.requested,
            "legal": self.legal,
            "effective": self.effective,
            "launches": self.launches,
            "baselines": len(self.baselines),
            "repeats": self.repeats,
            "illegal": [{name: getattr(row, name) for name in _ILLEGAL_KEYS} for row in self.illegal],
            "adjusted": [_adjusted_json(row) for row in self.adjusted],
            "layouts": _layouts_json(self.layouts),
            "notes": [{"rule": note.rule, "message": note.message} for note in self.notes],
        }


def plan_space(space: SearchSpace, context: RuleContext, repeats: int = 1) -> SpacePlan:
    """Judges every setting of a space. `repeats` is how often each distinct server is measured.

    Nothing is launched and no engine is imported. InputError when `repeats` is below 1.
    """
    if repeats < 1:
        raise InputError(f"repeats: {repeats} is not a whole number of at least 1")
    book, tally = RuleBook(context), _Tally()
    for setting in space.settings():
        ruling = book.resolve(setting)
        if isinstance(ruling, Illegal):
            tally.refuse(setting, ruling)
        else:
            tally.accept(setting, ruling)
    groups = tuple(
        EffectiveGroup(effective=effective, ids=ids, settings=tuple(settings))
        for effective, (ids, settings) in tally.groups.items()
    )
    return SpacePlan(
        requested=space.size,
        legal=tally.legal,
        repeats=repeats,
        groups=groups,
        baselines=_baselines(space, groups),
        illegal=tally.illegal_rows(),
        adjusted=tally.adjusted_rows(),
        layouts=tuple(book.layout(label) for label in space.layout),
        notes=launch_notes(context),
    )


@dataclass
class _Tally:
    legal: int = 0
    groups: dict[EngineConfig, tuple[tuple[int, ...] | None, list[Setting]]] = field(default_factory=dict)
    refused: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    changed: Counter[tuple[Any, ...]] = field(default_factory=Counter)

    def accept(self, setting: Setting, ruling: Legal) -> None:
        self.legal += 1
        self.groups.setdefault(ruling.effective, (ruling.ids, []))[1].append(setting)
        triple = ruling.effective.triple
        numbers = (setting.num_steps, setting.eagle_topk, setting.num_draft_tokens)
        if triple is None or numbers == (triple.num_steps, triple.eagle_topk, triple.num_draft_tokens):
            return
        effective = (triple.num_steps, triple.eagle_topk, triple.num_draft_tokens)
        # flag adjustments come last; the numbers changed, so the first adjustment is about them
        first = ruling.adjustments[0]
        self.changed[(numbers, effective, first.rule, first.message)] += 1

    def refuse(self, setting: Setting, ruling: Illegal) -> None:
        layout = setting.layout if ruling.rule in _LAYOUT_RULES else None
        numbers = (setting.num_steps, setting.eagle_topk, setting.num_draft_tokens)
        self.refused[(layout, *numbers, setting.tp_size, ruling.rule, ruling.message)] += 1

    def illegal_rows(self) -> tuple[IllegalRow, ...]:
        return tuple(
            IllegalRow(**dict(zip(_ILLEGAL_KEYS, (*key, count), strict=True))) for key, count in self.refused.items()
        )

    def adjusted_rows(self) -> tuple[AdjustedRow, ...]:
        return tuple(
            AdjustedRow(requested=requested, effective=effective, rule=rule, message=message, settings=count)
            for (requested, effective, rule, message), count in self.changed.items()
        )


_ILLEGAL_KEYS = ("layout", "num_steps", "eagle_topk", "num_draft_tokens", "tp_size", "rule", "message", "settings")
_TRIPLE_KEYS = ("num_steps", "eagle_topk", "num_draft_tokens")


def _baselines(space: SearchSpace, groups: tuple[EffectiveGroup, ...]) -> tuple[EngineConfig, ...]:
    """One server without speculation for each TP size that runs, with the flags that all settings share."""
    flags = tuple((name, value) for name, value in space.constant_flags if not name.startswith("speculative_"))
    sizes = dict.fromkeys(group.effective.tp_size for group in groups)
    return tuple(EngineConfig(layout=None, triple=None, tp_size=size, flags=flags) for size in sizes)


def _adjusted_json(row: AdjustedRow) -> dict[str, Any]:
    return {
        "requested": dict(zip(_TRIPLE_KEYS, row.requested, strict=True)),
        "effective": dict(zip(_TRIPLE_KEYS, row.effective, strict=True)),
        "rule": row.rule,
        "message": row.message,
        "settings": row.settings,
    }


def _layouts_json(layouts: tuple[LayoutRuling, ...]) -> list[dict[str, Any]]:
    """Rows of the layouts; `same_as` names an earlier row that feeds the same taps."""
    rows, first = [], dict[Any, str]()
    for ruling in layouts:
        runs = ruling.taps is not None and ruling.refusal is None
        same_as = first.get(ruling.taps) if runs else None
        if runs:
            first.setdefault(ruling.taps, ruling.name)
        rows.append(
            {
                "name": ruling.name,
                "taps": None if ruling.taps is None else list(ruling.taps),
                "ids": None if ruling.ids is None else list(ruling.ids),
                "expressible": ruling.expressible,
                "reason": None if ruling.refusal is None else ruling.refusal[1],
                "same_as": same_as,
            }
        )
    return rows


def _show(row: IllegalRow) -> str:
    numbers = ",".join(
        "null" if value is None else str(value) for value in (row.num_steps, row.eagle_topk, row.num_draft_tokens)
    )
    return f"({numbers}) at tp {row.tp_size}" + (f" with layout {row.layout}" if row.layout else "")
