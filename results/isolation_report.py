"""An isolation as it is read: two or three plain sentences, and the documented JSON."""

from __future__ import annotations

import json
from typing import Any

from results.attribution import Group
from results.isolation import Isolation, IsolationCase
from results.isolation_evidence import parallel_fault
from results.isolation_rows import config_words
from results.store import StudyFolder
from results.verdicts import CauseVerdict

ISOLATION_FILE = "isolate.json"
"""The last isolation of a study, in its folder."""

_NAMES: dict[Group, str] = {"config": "the config", "layout": "the layout", "parallelism": "parallelism"}


def sentences(isolation: Isolation) -> tuple[str, ...]:
    """What the verdicts come to: the gap, the causes with their size and evidence, then what is cleared or open."""
    verdicts = isolation.explanation.verdicts
    causes = sorted((v for v in verdicts if v.verdict == "yes"), key=lambda verdict: -(verdict.share or 0.0))
    found = [_gap_sentence(isolation)]
    if causes:
        found.append("Cause: " + "; and ".join(_cause(isolation, verdict) for verdict in causes) + ".")
    cleared = [_cleared(isolation, verdict) for verdict in verdicts if verdict.verdict == "no"]
    if cleared:
        start = "Not the cause: " if causes else "No cause found: "
        found.append(start + "; ".join(cleared) + ".")
    for verdict in verdicts:
        if verdict.verdict == "undecided":
            found.append(f"Undecided: {_NAMES[verdict.cause]}{_open(verdict)}.")
    return tuple(found)


def _gap_sentence(isolation: Isolation) -> str:
    case, attribution = isolation.case, isolation.attribution
    words = config_words(case.suspect)
    if attribution is None:
        return f"The gap between the suspect ({words}) and the reference could not be split: a trial is missing."
    if not case.differing:
        return f"The suspect ({words}) is the best setting: accept length {attribution.suspect_value:.2f}."
    gap = isolation.explanation.gap or {}
    return (
        f"The suspect ({words}) reaches accept length {attribution.suspect_value:.2f}, the reference "
        f"({gap['reference']['label']}) {attribution.reference_value:.2f}, on the same {attribution.prompts} prompts."
    )


def _cause(isolation: Isolation, verdict: CauseVerdict) -> str:
    case = isolation.case
    text = _NAMES[verdict.cause]
    if verdict.share:
        low, high = verdict.interval or (verdict.share, verdict.share)
        text += f", {verdict.share:+.2f} [{low:+.2f}, {high:+.2f}] of the gap"
    if verdict.cause == "layout":
        return f"{text}: {_fed(case)}"
    fault = parallel_fault(case.feeds)
    if verdict.cause == "parallelism" and fault is not None:
        return f"{text}: {_lower(fault.sentence()).rstrip('.')}"
    if verdict.cause == "parallelism":
        return f"{text}: accept length depends on it at a fixed layout and config"
    ours, theirs = case.suspect.triple, case.reference.triple
    if ours is None or theirs is None:
        return text
    if ours.ceiling < theirs.ceiling:
        return f"{text}: {ours} cannot reach more than {ours.ceiling}, {theirs} can reach {theirs.ceiling}"
    return f"{text}: {theirs} accepts more than {ours}" + ("" if ours != theirs else " with the reference's flags")


def _fed(case: IsolationCase) -> str:
    """What the draft is fed against what it was trained on, in one clause."""
    suspect = list(case.suspect.layout or ())
    probed = any(feed.config.layout == case.suspect.layout and feed.report is not None for feed in case.feeds)
    fed = f"the draft is fed taps {suspect}" + (" (probed)" if probed else "")
    if case.trained is None:
        return f"{fed}, the reference's {list(case.reference.layout or ())}"
    return f"{fed} and was {case.trained}"


def _cleared(isolation: Isolation, verdict: CauseVerdict) -> str:
    case, name = isolation.case, _NAMES[verdict.cause]
    if verdict.cause not in case.differing:
        if verdict.cause == "parallelism" and case.suspect.tp_size == 1:
            return f"{name} (both run at tp 1, where nothing is split)"
        return f"{name} (the same in both)"
    if verdict.share is not None and verdict.share < 0 and _outside(isolation, verdict):
        return f"{name} (the suspect's is the better one)"
    if verdict.cause == "parallelism" and isolation.pairs:
        sizes = sorted({size for pair in isolation.pairs for size in (pair.first.tp_size, pair.second.tp_size)})
        return f"{name} (tp {' and '.join(map(str, sizes))} are equivalent within {case.margin:.0%})"
    return f"{name} (its share, {verdict.share:+.2f}, lies within the margin)"


def _outside(isolation: Isolation, verdict: CauseVerdict) -> bool:
    margin = isolation.attribution.margin if isolation.attribution is not None else 0.0
    return abs(verdict.share or 0.0) > margin


def _open(verdict: CauseVerdict) -> str:
    interval = "" if verdict.interval is None else f", share [{verdict.interval[0]:+.2f}, {verdict.interval[1]:+.2f}]"
    return interval + (f"; {_lower(verdict.next)}" if verdict.next else "")


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def isolation_json(isolation: Isolation) -> dict[str, Any]:
    """What `isolate --json` prints and the study keeps: `explain`'s object, with the trials and probes behind it."""
    case = isolation.case
    return isolation.explanation.to_json() | {
        "study": case.study,
        "sentences": list(sentences(isolation)),
        "suspect": config_words(case.suspect),
        "reference": config_words(case.reference),
        "reference_is": case.chosen_as,
        "trained_on": None
        if case.trained is None
        else {"taps": list(case.trained.taps), "source": case.trained.source},
        "corners": [
            {
                "from_reference": sorted(corner),
                "setting": config_words(measured.config),
                "id": measured.config.identity,
                "accept_length": None if measured.accept_length is None else round(measured.accept_length, 6),
                "prompts": len(measured.pairs),
                "trials": [record.trial_id for record in measured.records],
                "problem": measured.problem or None,
            }
            for corner, measured in case.corners.items()
        ],
        "probes": [feed.to_json(case.trained) for feed in case.feeds],
    }


def kept_sentences(folder: StudyFolder) -> tuple[str, ...]:
    """The sentences of the last isolation of a study; empty when there was none, or it cannot be read."""
    try:
        content = json.loads((folder.path / ISOLATION_FILE).read_bytes())
        return tuple(str(sentence) for sentence in content["sentences"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()
