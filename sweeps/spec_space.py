"""The spec's space and a single setting of it: which values are searched, and one of them by name."""

from __future__ import annotations

from pydantic import Field

from search_spaces.config import Flags, Setting, layout_label
from sweeps.spec_fields import (
    Count,
    CountOrNull,
    Counts,
    CountsOrNull,
    FlagName,
    Layout,
    Layouts,
    LayoutValue,
    Swept,
    SweptValues,
)
from sweeps.spec_section import Section, Text


class SpaceSpec(Section):
    """What is searched: the product of all values. A number dimension is a list or a range {low, high, step}."""

    catalog: Text | None = Field(
        None,
        description="A ready space to start from: `small` (up to 16 servers), `chain_only` (8), `sglang_default_grid` "
        "(36), `wide` (hundreds: with `search.sampler: surface` only). Other keys here replace its keys.",
    )
    layout: Layouts = Field(
        ("shipped",),
        description="Lists of taps, `default` (SGLang's own choice) or `shipped` (as the draft's config says).",
    )
    num_steps: CountsOrNull = Field(
        (None,), description="Values of --speculative-num-steps. null: left to SGLang, then for the other two as well."
    )
    eagle_topk: CountsOrNull = Field((None,), description="Values of --speculative-eagle-topk.")
    num_draft_tokens: CountsOrNull = Field(
        (None,), description="Values of --speculative-num-draft-tokens, the root included."
    )
    tp_size: Counts = Field((1,), description="Tensor-parallel sizes.")
    flags: dict[FlagName, SweptValues] = Field({}, description="Any further SGLang flag as a dimension.")

    @property
    def layout_labels(self) -> tuple[str, ...]:
        return tuple(label_of(layout) for layout in self.layout)


class SettingSpec(Section):
    """One setting, such as the one that is complained about."""

    layout: LayoutValue = Field("shipped", description="A list of taps, `default` or `shipped`.")
    num_steps: CountOrNull = Field(None, description="--speculative-num-steps.")
    eagle_topk: CountOrNull = Field(None, description="--speculative-eagle-topk.")
    num_draft_tokens: CountOrNull = Field(None, description="--speculative-num-draft-tokens.")
    tp_size: Count = Field(1, description="The tensor-parallel size.")
    flags: dict[FlagName, Swept] = Field({}, description="Further SGLang flags.")

    def to_setting(self) -> Setting:
        flags: Flags = tuple(sorted(self.flags.items()))
        return Setting(
            layout=label_of(self.layout),
            num_steps=self.num_steps,
            eagle_topk=self.eagle_topk,
            num_draft_tokens=self.num_draft_tokens,
            tp_size=self.tp_size,
            flags=flags,
        )


def label_of(layout: Layout) -> str:
    """The label under which a layout value is stored: `default`, `shipped` or taps such as `0,3,7`."""
    return layout if isinstance(layout, str) else layout_label(layout)
