"""One probed server: what its draft was fed, against which taps, and what the draft was trained on, as far as known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from results.feed import FeedReport, describe_feed
from search_spaces.config import EngineConfig, Taps, layout_label

PROBE_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class TrainedOn:
    """The taps a draft was trained on: `given` by the user, or `inferred` as the layout that accepts best."""

    taps: Taps
    source: Literal["given", "inferred"]

    def __str__(self) -> str:
        if self.source == "given":
            return f"trained on {list(self.taps)} (as given)"
        return f"presumably trained on {list(self.taps)} (the layout that accepts best)"


@dataclass(frozen=True, kw_only=True)
class ProbedFeed:
    """The probe of one configuration; `report` is None when it failed, and `problem` says why.

    `own_taps` is True when the taps come from the probed server itself, because none at tp 1 could be had: states that
    were captured in parts then show only where ranks differ.
    """

    config: EngineConfig
    report: FeedReport | None
    own_taps: bool = False
    problem: str = ""

    def sentence(self, trained: TrainedOn | None = None) -> str:
        """The finding in plain words, beginning with where it was made."""
        where = f"At tp {self.config.tp_size} with layout {layout_label(self.config.layout or ())}"
        if self.report is None:
            return f"{where} the probe failed: {self.problem}."
        known = trained.taps if trained is not None else None
        text = describe_feed(self.report, known)
        if trained is not None and trained.source == "inferred":
            text = text.replace("the draft was trained on", "the draft was presumably trained on").replace(
                "as it was trained", "as it presumably was trained"
            )
        if self.own_taps and self.config.tp_size > 1:
            text += " The taps are this server's own: parts of states show only where ranks differ."
        return f"{where}: {text[0].lower()}{text[1:]}"

    def to_json(self, trained: TrainedOn | None = None) -> dict[str, Any]:
        """Numbers per slot and rank, and the sentence."""
        report = self.report
        content: dict[str, Any] = {
            "layout": list(self.config.layout or ()),
            "tp_size": self.config.tp_size,
            "sentence": self.sentence(trained),
            "problem": self.problem or None,
            "own_taps": self.own_taps,
        }
        if report is None:
            return content | {"fed": None, "fault": None, "equal_ranks": None, "tokens": 0, "slots": []}
        return content | {
            "fed": None if report.layout is None else list(report.layout),
            "fault": report.fault,
            "equal_ranks": report.equal_ranks,
            "tokens": report.tokens,
            "slots": [
                {
                    "slot": match.slot + 1,
                    "rank": match.rank,
                    "kind": match.kind,
                    "tap": match.tap,
                    "error": _finite(match.error),
                    "next_error": _finite(match.next_error),
                }
                for match in report.matches
            ],
        }


def probe_json(study: str, feeds: tuple[ProbedFeed, ...], trained: TrainedOn | None) -> dict[str, Any]:
    """What `probe --json` prints."""
    return {
        "schema": PROBE_SCHEMA,
        "study": study,
        "trained_on": None if trained is None else {"taps": list(trained.taps), "source": trained.source},
        "probes": [feed.to_json(trained) for feed in feeds],
    }


def _finite(value: float) -> float | None:
    return round(value, 8) if value < float("inf") else None
