"""Rules on layouts: what a label means for one target and draft, and whether the draft can take it."""

from __future__ import annotations

from dataclasses import dataclass

from search_spaces.capture import Dialect, Inexpressible
from search_spaces.config import Taps, layout_label
from search_spaces.dialects import find_dialect, unsupported
from search_spaces.layouts import DEFAULT, SHIPPED, parse_layout_label
from search_spaces.rulings import RuleContext

NOT_EXPRESSIBLE = "layout_not_expressible"
FC_WIDTH = "layout_fc_width"
AUX_OFF = "aux_hidden_state_off"
UNSUPPORTED = "target_unsupported"

LAYOUT_SOURCES: tuple[tuple[str, str], ...] = (
    (
        UNSUPPORTED,
        "model_executor/model_runner_components/attention_backend_setup.py, configure_aux_hidden_state_capture",
    ),
    (AUX_OFF, "model_executor/model_runner_components/spec_aux_hidden_state.py, _resolve_eagle_aux_hidden_state"),
    (NOT_EXPRESSIBLE, "models/*.py, set_eagle3_layers_to_capture; layers/aux_hidden_states.py, AuxHiddenStatePacker"),
    (FC_WIDTH, "models/llama_eagle3.py, LlamaModel (fc of num_aux_hidden_states x target_hidden_size)"),
)
"""Rule and upstream place, in the order in which they are applied."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayoutRuling:
    """One label against one target and draft.

    `taps` are what the draft would be fed: None when a list of taps was not given and the capture is broken. `ids` go
    into the draft's config (None: the key is absent). `refusal` is (rule, message).
    """

    name: str
    taps: Taps | None
    ids: tuple[int, ...] | None
    refusal: tuple[str, str] | None = None

    @property
    def expressible(self) -> bool:
        return self.refusal is None or self.refusal[0] == FC_WIDTH


def judge_layout(label: str, context: RuleContext) -> LayoutRuling:
    """The ruling on a label; InputError when it is not a layout label at all."""
    parsed = parse_layout_label(label)
    asked = None if parsed in (DEFAULT, SHIPPED) else parsed
    assert asked is None or not isinstance(asked, str)
    dialect = find_dialect(context.target.architecture, context.sglang_version)
    if dialect is None:
        message = unsupported(context.target.architecture, context.sglang_version)
        return LayoutRuling(name=label, taps=asked, ids=None, refusal=(UNSUPPORTED, message))
    if context.draft.eagle_config.get("use_aux_hidden_state", True) is False:
        message = "the draft's eagle_config.use_aux_hidden_state is false: no layer is captured whatever the layout"
        return LayoutRuling(name=label, taps=asked, ids=None, refusal=(AUX_OFF, message))
    if asked is not None:
        return _explicit(label, asked, dialect, context)
    return _resolved(label, context.draft.aux_ids if parsed == SHIPPED else None, dialect, context)


def _explicit(label: str, taps: Taps, dialect: Dialect, context: RuleContext) -> LayoutRuling:
    ids = dialect.ids_for(taps, context.target.num_layers)
    if isinstance(ids, Inexpressible):
        return LayoutRuling(name=label, taps=taps, ids=None, refusal=(NOT_EXPRESSIBLE, ids.reason))
    return LayoutRuling(name=label, taps=taps, ids=ids, refusal=_width_refusal(taps, context))


def _resolved(label: str, ids: tuple[int, ...] | None, dialect: Dialect, context: RuleContext) -> LayoutRuling:
    capture = dialect.capture(ids, context.target.num_layers)
    if capture.problems:
        message = ", ".join(capture.problems)
        return LayoutRuling(name=label, taps=None, ids=ids, refusal=(NOT_EXPRESSIBLE, message))
    return LayoutRuling(name=label, taps=capture.taps, ids=ids, refusal=_width_refusal(capture.taps, context))


def _width_refusal(taps: Taps, context: RuleContext) -> tuple[str, str] | None:
    draft = context.draft
    hidden = draft.config.get("target_hidden_size") or context.target.hidden_size
    fed, takes = len(taps) * hidden, draft.fc_in_features
    if takes is not None and takes != fed:
        text = f"{len(taps)} taps x {hidden} = {fed} wide, the draft's fc takes {takes} ({takes / hidden:g} taps)"
        return (FC_WIDTH, text)
    declared = draft.config.get("num_aux_hidden_states")
    if isinstance(declared, int) and declared != len(taps):
        text = f"layout {layout_label(taps)} has {len(taps)} taps, the draft's num_aux_hidden_states is {declared}"
        return (FC_WIDTH, text)
    return None
