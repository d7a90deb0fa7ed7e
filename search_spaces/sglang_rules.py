"""SGLang's rules as we know them: from a setting to what a server would run, without importing the engine.

The rules exist to reject and deduplicate before anything is launched. Each stands in one explicit table with the
releases in which it holds and the upstream place where it was read; where a running engine disagrees, the engine wins.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from search_spaces.config import EngineConfig, Flags, Setting, Triple
from search_spaces.engine_args import EngineArgs
from search_spaces.flag_rules import FLAG_RULES, FlagChange, flag_changes
from search_spaces.layout_rules import LAYOUT_SOURCES, LayoutRuling, judge_layout
from search_spaces.placement_rules import PLACEMENT_RULES, PlacementCase, is_mla, judge_placement
from search_spaces.rulings import Adjustment, Illegal, Legal, RuleContext, Ruling
from search_spaces.triple_rules import TRIPLE_RULES, Numbers, TripleCase, TripleRuling, judge_triple

__all__ = [
    "Adjustment",
    "Illegal",
    "Legal",
    "RuleBook",
    "RuleContext",
    "RuleLine",
    "Ruling",
    "launch_notes",
    "resolve_setting",
    "rule_table",
]


def resolve_setting(setting: Setting, context: RuleContext) -> Ruling:
    """What a server started with `setting` would run, or why it would not. InputError on a bad layout label.

    A layout is judged first, then the placement, then the numbers: the first refusal is reported.
    """
    return RuleBook(context).resolve(setting)


@dataclass
class RuleBook:
    """The rules against one context, remembering the parts that many settings share (a plan asks thousands)."""

    context: RuleContext
    _layouts: dict[str, LayoutRuling] = field(default_factory=dict, repr=False)
    _args: dict[Flags, EngineArgs] = field(default_factory=dict, repr=False)
    _placements: dict[tuple[int, Flags], tuple[str, str] | None] = field(default_factory=dict, repr=False)
    _triples: dict[tuple[Numbers, Flags], TripleRuling] = field(default_factory=dict, repr=False)
    _changes: dict[tuple[int, Flags], tuple[FlagChange, ...]] = field(default_factory=dict, repr=False)

    def resolve(self, setting: Setting) -> Ruling:
        """See `resolve_setting`."""
        layout = self.layout(setting.layout)
        triple = self.triple(setting)
        refusal = layout.refusal or self.placement(setting) or triple.refusal
        if refusal is not None:
            return Illegal(rule=refusal[0], message=refusal[1])
        assert layout.taps is not None
        assert triple.numbers is not None
        steps, topk, tokens = triple.numbers
        flags, changed = self._effective_flags(setting.flags, topk)
        effective = EngineConfig(
            layout=layout.taps,
            triple=Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens),
            tp_size=setting.tp_size,
            flags=flags,
        )
        adjustments = tuple(Adjustment(rule=rule, message=message) for rule, message in triple.changes)
        return Legal(effective=effective, ids=layout.ids, adjustments=adjustments + changed)

    def layout(self, label: str) -> LayoutRuling:
        """The ruling on a layout label alone."""
        if label not in self._layouts:
            self._layouts[label] = judge_layout(label, self.context)
        return self._layouts[label]

    def placement(self, setting: Setting) -> tuple[str, str] | None:
        """(rule, message) when the model cannot be split as the setting asks."""
        key = (setting.tp_size, setting.flags)
        if key not in self._placements:
            case = PlacementCase(setting.tp_size, self._args_of(setting.flags), self.context)
            self._placements[key] = judge_placement(case)
        return self._placements[key]

    def triple(self, setting: Setting) -> TripleRuling:
        """The ruling on the three numbers with the setting's flags."""
        numbers = (setting.num_steps, setting.eagle_topk, setting.num_draft_tokens)
        key = (numbers, setting.flags)
        if key not in self._triples:
            case = TripleCase(
                numbers=numbers,
                args=self._args_of(setting.flags),
                architecture=self.context.target.architecture,
                mla_draft=is_mla(self.context.draft.text_config),
            )
            self._triples[key] = judge_triple(case, self.context.sglang_version)
        return self._triples[key]

    def _args_of(self, flags: Flags) -> EngineArgs:
        if flags not in self._args:
            self._args[flags] = EngineArgs({**self.context.args, **dict(flags)})
        return self._args[flags]

    def _effective_flags(self, flags: Flags, topk: int) -> tuple[Flags, tuple[Adjustment, ...]]:
        """Swept flags as they end up, with the adjustments; what happens to fixed flags is in `launch_notes`."""
        if not flags:
            return flags, ()
        key = (topk, flags)
        if key not in self._changes:
            self._changes[key] = flag_changes(self._args_of(flags), topk, self.context.sglang_version)
        effective = dict(flags)
        changes = [change for change in self._changes[key] if change.flag in effective]
        for change in changes:
            effective[change.flag] = change.value
        return tuple(sorted(effective.items())), tuple(change.adjustment for change in changes)


def launch_notes(context: RuleContext) -> tuple[Adjustment, ...]:
    """Silent changes to flags that every launch of a study shares (a cap on running requests, for one)."""
    changes = flag_changes(EngineArgs(context.args), 1, context.sglang_version)
    return tuple(change.adjustment for change in changes)


@dataclass(frozen=True, kw_only=True, slots=True)
class RuleLine:
    """One rule for a reader: the releases in which it holds (None: open) and where it was read."""

    name: str
    since: str | None
    until: str | None
    source: str


def rule_table() -> tuple[RuleLine, ...]:
    """Every rule, in the order in which they are applied."""
    layouts = [RuleLine(name=name, since=None, until=None, source=source) for name, source in LAYOUT_SOURCES]
    others = [
        RuleLine(name=rule.name, since=rule.since, until=rule.until, source=rule.source)
        for table in (PLACEMENT_RULES, TRIPLE_RULES, FLAG_RULES)
        for rule in table
    ]
    return (*layouts, *others)
