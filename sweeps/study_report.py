"""The report on a study, read from its folder, with the suspect that its spec names now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from results.isolation_report import kept_sentences
from results.records import TrialRecord
from results.report import Report, build_report
from search_spaces.errors import InputError
from sweeps.home import StudyPlace
from sweeps.objectives import objective_of
from sweeps.planning import resolve_suspect, rule_context
from sweeps.spec_schema import SweepSpec


def report_of(place: StudyPlace) -> Report:
    """The report on a study, from its spec and records. InputError when one of them is unreadable."""
    spec = place.read_spec()
    greedy = spec.workload.temperature == 0
    verdicts = kept_sentences(place.records)
    return build_report(
        place.records,
        objective_of(spec),
        study=place.name,
        greedy=greedy,
        verdicts=verdicts,
        records=with_suspect(place.records.records(), spec),
    )


def with_suspect(records: Iterable[TrialRecord], spec: SweepSpec) -> tuple[TrialRecord, ...]:
    """The search's records with the role that each has beside the spec's suspect, which may be another by now.

    As they were recorded when the models, without which it cannot be told what a suspect runs, are not on this machine.
    """
    records = tuple(records)
    try:
        suspect = None if spec.suspect is None else resolve_suspect(spec.suspect.to_setting(), rule_context(spec))
    except InputError:
        return records
    config = suspect and suspect.effective
    return tuple(
        replace(record, role="suspect" if record.effective == config else "search")
        if record.role in ("search", "suspect")
        else record
        for record in records
    )
