"""Counters of a server that was switched to another number of draft tokens."""

from __future__ import annotations

from dataclasses import replace

from results.observations import CellObservation, LaunchObservation
from search_spaces.config import Triple


def with_switched_counters(cell: CellObservation, launch: LaunchObservation, triple: Triple | None) -> CellObservation:
    """The cell with `proposed_drafts` as the switched server should have counted them.

    The server's front process multiplies verify steps by the num_draft_tokens that the server was *started* with
    (`_calculate_spec_decoding_metrics`, srt/managers/tokenizer_manager.py), which a switch in the scheduler does not
    reach. Verify steps, accepted drafts and the histogram come from the scheduler itself and are left alone. A launch
    that was not switched is returned as it is.
    """
    if launch.switch_s is None or triple is None:
        return cell
    drafts = triple.num_draft_tokens - 1
    rows = tuple(
        row
        if row.proposed_drafts is None or row.verify_steps is None
        else replace(row, proposed_drafts=row.verify_steps * drafts)
        for row in cell.rows
    )
    return replace(cell, rows=rows)
