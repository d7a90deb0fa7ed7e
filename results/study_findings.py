"""What only shows across trials: simulated acceptance, and outputs that differ from the baseline's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain

from results.measured_settings import MeasuredSetting
from results.output_identity import OutputIdentity
from results.request_table import CellKey
from results.stats.spreads import relative_spread
from results.switch_trust import SwitchTrust
from search_spaces.config import Triple, layout_label

SIMULATED_LAYOUTS = 3
SIMULATED_SPREAD = 0.005
SIMULATED_MIN_LENGTH = 1.2
MAX_SENTENCES = 5


Outputs = Mapping[str, Mapping[CellKey, OutputIdentity]]
"""By a setting's identity and load: its outputs against the baseline's."""


def study_findings(
    groups: Sequence[MeasuredSetting], *, switching: SwitchTrust | None = None, outputs: Outputs | None = None
) -> tuple[str, ...]:
    """Sentences about the study as a whole, the most serious kind first."""
    findings = [*_simulated(groups), *_recorded(groups)]
    findings += switching.sentences if switching is not None else ()
    findings += _outputs(groups, outputs or {})
    return tuple(findings)


def _simulated(groups: Sequence[MeasuredSetting]) -> list[str]:
    """One accept length for every layout is not what drafts do: a layout decides whether a draft works at all."""
    lengths: dict[Triple, dict[str, float]] = defaultdict(dict)
    for group in groups:
        cells = [cell for record in group.measured for cell in record.cells if cell.accept_length is not None]
        if group.effective.triple is not None and group.effective.layout is not None and cells:
            values = [cell.accept_length.value for cell in cells if cell.accept_length is not None]
            lengths[group.effective.triple][layout_label(group.effective.layout)] = sum(values) / len(values)
    return [
        f"accept length is {min(of.values()):.2f} for all {len(of)} layouts at {triple}: simulated acceptance is "
        "probably on (SGLANG_SIMULATE_ACC_LEN), and then nothing here is true"
        for triple, of in lengths.items()
        if len(of) >= SIMULATED_LAYOUTS
        and relative_spread(list(of.values())) < SIMULATED_SPREAD
        and min(of.values()) > SIMULATED_MIN_LENGTH
    ]


def _recorded(groups: Sequence[MeasuredSetting]) -> list[str]:
    """Findings that launches recorded, each once."""
    found: dict[str, None] = {}
    for record in chain.from_iterable(group.records for group in groups):
        found |= dict.fromkeys((*record.findings, *(record.launch.findings if record.launch is not None else ())))
    return list(found)


def _outputs(groups: Sequence[MeasuredSetting], outputs: Outputs) -> list[str]:
    """At temperature 0 every setting must say what the baseline says; that all do is worth a sentence as well."""
    compared = [group for group in groups if outputs.get(group.effective.identity)]
    sentences = []
    for group in compared:
        worst = max(outputs[group.effective.identity].values(), key=lambda found: 1 - (found.identical_share or 0))
        if worst.divergences:
            sentences.append(f"trial {group.measured[0].trial_id}: {worst} from the baseline's")
    if compared and not sentences:
        of = "the one setting" if len(compared) == 1 else f"all {len(compared)} settings"
        return [f"the outputs of {of} that could be compared are the baseline's, token by token"]
    equal = len(compared) - len(sentences)
    of = "the other setting that could be compared" if equal == 1 else f"the other {equal} settings that were compared"
    rest = [f"the outputs of {of} are the baseline's"] if equal else []
    if len(sentences) > MAX_SENTENCES:
        more = len(sentences) - MAX_SENTENCES
        sentences = [*sentences[:MAX_SENTENCES], f"outputs of {more} further trials differ from the baseline's"]
    return [*sentences, *rest]
