"""What follows from one row alone: effective triple, captured taps, accept length, first-position acceptance."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

from results.acceptance import acceptance_by_position
from results.explain.accept_length import accept_length
from results.explain.refusals import layout_problem, triple_refusal
from results.explain.target_classes import dialect_for, find_architecture, known_version
from results.external_row import ExternalRow
from search_spaces.config import Taps, Triple
from search_spaces.triple_rules import auto_triple


@dataclass(frozen=True, kw_only=True)
class Range:
    """A value known between bounds; `estimate` is the most plausible one, equal to both when it was measured."""

    low: float
    high: float
    estimate: float

    @property
    def known(self) -> bool:
        return self.high - self.low < 1e-9

    def __str__(self) -> str:
        return (
            f"{self.estimate:.2f}" if self.known else f"about {self.estimate:.2f} ({self.low:.2f} to {self.high:.2f})"
        )


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One row with what follows from it. None where the row does not say enough.

    `triple` is effective (SGLang's own rules applied to what the row names), `asked` as the row names it.
    `accept_length_from` says how it was obtained; `faults` are contradictions inside the row, in words, `rejections`
    those of them after which the row says nothing. `triple_refusal` says why SGLang cannot run the numbers as asked,
    `layout_problem` why it cannot capture the ids as written (both None when it can, or when too little is known).
    `p1` is the share of verify steps whose first draft was accepted, `last` that whose last possible one was.
    """

    row: ExternalRow
    asked: tuple[int | None, int | None, int | None]
    triple: Triple | None
    taps: Taps | None
    accept_length: float | None
    accept_length_from: str
    positions: tuple[float, ...] | None
    faults: tuple[str, ...]
    rejections: tuple[str, ...]
    triple_refusal: str | None
    layout_problem: str | None
    p1: Range | None
    last: Range | None

    @property
    def name(self) -> str:
        return self.row.name

    @property
    def speculative(self) -> bool:
        return self.row.role != "baseline" and (self.triple is not None or self.accept_length is not None)

    @property
    def tp_size(self) -> int:
        """SGLang's own default is 1, so a row that names no size is taken to have none."""
        return self.row.tp_size or 1

    @property
    def config(self) -> tuple[Any, ...]:
        """The group C: the triple (effective) and further server flags."""
        return (self.triple or self.asked, tuple(sorted(self.flags.items())))

    @property
    def flags(self) -> dict[str, str]:
        """Further server flags, as far as they belong to the group C."""
        return {name: str(value) for name, value in self.row.flags.items() if name not in _NOT_CONFIG}

    @property
    def layout(self) -> tuple[Any, ...]:
        """The group L: what is captured, else the ids as written and the file that overrides the draft's config."""
        if self.taps is not None:
            return ("taps", self.taps)
        return ("ids", self.row.layout_ids, self.row.flags.get("decrypted_draft_config_file"))

    @property
    def layout_known(self) -> bool:
        return self.layout != ("ids", None, None)

    @property
    def parallelism(self) -> tuple[Any, ...]:
        """The group P."""
        return (self.tp_size, self.row.dp_size or 1, bool(self.row.dp_attention))

    @property
    def server_state(self) -> tuple[tuple[str, Any], ...]:
        """Engine flags with a field of their own. They should not change acceptance, so they are in no group."""
        names = ("chunked_prefill_size", "cuda_graph", "radix_cache", "max_running_requests")
        return tuple((name, getattr(self.row, name)) for name in names)

    @property
    def setup(self) -> tuple[Any, ...]:
        """All that a row names of what was measured, and how, but the load: equal for rows that repeat each other."""
        row = self.row
        warmth = (row.cached_token_share or 0.0) >= 0.01
        state = (self.server_state, warmth, row.sglang_version)
        return (self.config, self.layout, self.parallelism, self.conditions, state)

    @property
    def model(self) -> tuple[Any, ...]:
        """Target and draft, as far as a row tells them apart."""
        draft = self.row.flags.get("speculative_draft_model_path")
        return (self.row.target_class, self.row.num_layers, self.row.hidden_size, draft)

    @property
    def conditions(self) -> tuple[Any, ...]:
        """What must be equal for two accept lengths to be comparable, apart from the three groups."""
        return (self.model, self.row.prompt_set, self.row.temperature or 0.0, self.row.context_tokens)


_NOT_CONFIG = {
    "SGLANG_SIMULATE_ACC_LEN",
    "accept_rate",
    "decrypted_draft_config_file",
    "json_model_override_args",
    "model_path",
    "speculative_algorithm",
    "speculative_draft_model_path",
}
"""Flags that belong to the layout, the model or the way of measuring."""


def read(row: ExternalRow) -> Reading:
    """Everything that one row says by itself."""
    triple = effective_triple(row)
    positions = _positions(row, triple)
    said = accept_length(row, triple, positions)
    length = said.value
    sound = positions if not any("conditional" in fault for fault in said.faults) else None
    return Reading(
        row=row,
        asked=(row.num_steps, row.eagle_topk, row.num_draft_tokens),
        triple=triple,
        taps=_taps(row),
        accept_length=length,
        accept_length_from=said.source,
        positions=sound,
        faults=said.faults,
        rejections=said.rejections,
        triple_refusal=triple_refusal(row),
        layout_problem=layout_problem(row),
        p1=_widened(_first(length, triple, positions), row),
        last=_widened(_last(length, triple, sound), row),
    )


def effective_triple(row: ExternalRow) -> Triple | None:
    """SGLang's rules on the three numbers: topk 1 makes n = s + 1; none of them is chosen by architecture."""
    steps, topk, tokens = row.num_steps, row.eagle_topk, row.num_draft_tokens
    if steps is None and topk is None and tokens is None:
        version = known_version(row.sglang_version)
        architecture = find_architecture(row.target_class, version) if row.target_class else None
        if architecture is None or row.role == "baseline" or row.accept_length is None:
            return None
        steps, topk, tokens = auto_triple(architecture)
    if steps is None:
        return None
    if topk is None and (tokens is None or tokens == steps + 1):
        topk = 1
    if topk == 1:
        return Triple(num_steps=steps, eagle_topk=1, num_draft_tokens=steps + 1)
    if topk is None or tokens is None:
        return None
    return Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)


def _taps(row: ExternalRow) -> Taps | None:
    """What is captured: as stated, else from the ids in the dialect of the class, else its default."""
    if row.layout_taps is not None:
        return row.layout_taps
    dialect = dialect_for(row.target_class, row.sglang_version)
    if dialect is None or row.num_layers is None or row.role == "baseline":
        return None
    return dialect.capture(row.layout_ids, row.num_layers).taps


def _positions(row: ExternalRow, triple: Triple | None) -> tuple[float, ...] | None:
    if row.histogram and sum(row.histogram):
        longest = max(i for i, count in enumerate(row.histogram) if count)
        return acceptance_by_position(row.histogram, max(triple.num_steps if triple else 0, longest, 1))
    if row.acceptance_by_position:
        return row.acceptance_by_position[: triple.num_steps] if triple else row.acceptance_by_position
    return None


def _first(length: float | None, triple: Triple | None, positions: tuple[float, ...] | None) -> Range | None:
    """First-position acceptance: measured, or bounded by AL = 1 + a sum of shares that never rise."""
    if positions:
        return Range(low=positions[0], high=positions[0], estimate=positions[0])
    if length is None or length < 1:
        return None
    high = min(1.0, length - 1)
    if triple is None:
        return Range(low=0.0, high=high, estimate=high)
    low = min(high, (length - 1) / triple.num_steps)
    return Range(low=low, high=high, estimate=min(max(low, _geometric(length, triple.num_steps)), high))


def _last(length: float | None, triple: Triple | None, positions: tuple[float, ...] | None) -> Range | None:
    """Share of verify steps that accepted num_steps drafts: those that the ceiling cut short."""
    if triple is None:
        return None
    steps = triple.num_steps
    if positions and len(positions) >= steps:
        return Range(low=positions[steps - 1], high=positions[steps - 1], estimate=positions[steps - 1])
    if length is None or length < 1:
        return None
    low, high = min(1.0, max(0.0, length - steps)), min(1.0, (length - 1) / steps)
    return Range(low=low, high=high, estimate=min(max(low, _geometric(length, steps) ** steps), high))


FEW_STEPS = 30
"""Verify steps below which a share counted from them is given with its interval: less than one short answer."""


def _widened(share: Range | None, row: ExternalRow) -> Range | None:
    """A share with its Wilson interval (95 %) when it rests on a handful of verify steps."""
    steps = row.verify_steps or sum(row.histogram or ())
    if share is None or not 0 < steps < FEW_STEPS:
        return share
    low, high = (_wilson(bound, steps)[side] for side, bound in enumerate((share.low, share.high)))
    return Range(low=low, high=high, estimate=share.estimate)


def _wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    middle, spread = share + z**2 / (2 * count), z * sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return max(0.0, (middle - spread) / (1 + z**2 / count)), min(1.0, (middle + spread) / (1 + z**2 / count))


def _geometric(length: float, steps: int) -> float:
    """The acceptance a per position for which 1 + a + a^2 + ... + a^steps is the accept length, within [0, 1]."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        if 1 + middle * (1 - middle**steps) / (1 - middle) < length:
            low = middle
        else:
            high = middle
    return (low + high) / 2
