"""A search by surface: traces first, on one server; then the setting most likely to win, each compared with its
prediction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from statistics import mean
from typing import Protocol

from results.measured_settings import RowsOf
from results.other_loads import rounds_at_other_loads, sent_accept_lengths
from results.predicted_rounds import RoundsCheck, check_rounds, rounds_problem
from results.prediction import AcceptLengths, Comparison, Trust
from results.records import TrialRecord
from results.search_notes import SearchNotes, comparison_row, read_notes, write_notes
from results.store import StudyFolder
from results.study_surface import study_surface, traces_path
from results.trace_launches import read_trace_launches
from results.traced_points import Points, points_that_count
from results.traces import trace_flags
from search_spaces.config import Flags
from search_spaces.errors import InputError
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.progress import Standing
from sweeps.study_trial import StudyTrial
from sweeps.surface_candidates import candidates_of
from sweeps.surface_sampler import Prices, SurfaceSampler
from sweeps.tasks import Task
from sweeps.tracing import TraceRun

LOG = logging.getLogger(__name__)


class SurfaceStudy(Protocol):
    """What a search by surface needs of the study; `sweeps.study.SearchStudy` is one."""

    def follow(self, sampler: SurfaceSampler) -> None: ...
    def comparisons(self, sampler: SurfaceSampler, known: Collection[int]) -> tuple[Comparison, ...]: ...
    def expected_gain(self, sampler: SurfaceSampler) -> float | None: ...


class SurfaceSearch:
    """An `Observer` that keeps the study's notes. Without a usable trace the study goes on with TPE, and says so."""

    def __init__(
        self,
        study: SurfaceStudy,
        folder: StudyFolder,
        legal: LegalSpace,
        ledger: Ledger,
        *,
        batch: int,
        seed: int,
        stop_at_gain: float | None,
        switches: Callable[[], bool] = lambda: True,
        say: Callable[[str], None] = LOG.info,
        rows_of: RowsOf | None = None,
    ) -> None:
        """`switches` says, at each proposal, whether another setting of a TP size costs no launch. `rows_of` gives the
        request rows of a trial, by default those in the folder."""
        self._study, self._folder, self._legal, self._ledger = study, folder, legal, ledger
        self._rows_of = rows_of or folder.rows
        self._points: Points = {}
        self._sent: dict[str, float] = {}
        self._rounds: dict[str, tuple[RoundsCheck, ...]] = {}
        self._batch, self._seed, self._stop_at_gain, self._say = batch, seed, stop_at_gain, say
        self._switches = switches
        self._sampler: SurfaceSampler | None = None
        self._one_variant = all(len(values) == 1 for _, values in legal.space.flags)
        self._gain: float | None = None
        self._gain_is_old = True
        self.notes = replace(read_notes(folder) or SearchNotes(), gain_left=None)

    def begin(self, run: TraceRun, records: Sequence[TrialRecord]) -> None:
        """Follow the surface of what is traced by now; `run` is how it came about in this session."""
        self.notes = replace(self._billed(), traces=tuple(trace.to_json() for trace in run.traces))
        sizes = {config.triple.num_draft_tokens for config in self._legal.configs if config.triple is not None}
        try:
            points = points_that_count(study_surface(self._folder, sorted(sizes)), self._flags())
            problem = "" if points else "nothing could be traced"
        except InputError as error:
            points, problem = {}, str(error)
        if not points and run.stopped:
            return  # no word on whether this can be traced, and the session ends
        if problem:
            reasons = {trace.failure.message for trace in run.failures if trace.failure is not None}
            self.fall_back("; ".join([problem, *sorted(reasons)]))
            return
        self._points = points
        self._sampler = SurfaceSampler(
            AcceptLengths.of(points, self._sent),
            candidates_of(self._legal),
            batch=self._batch,
            prices=prices_of(records),
            switches=self._switches,
            seed=self._seed,
            is_open=self._ledger.is_open,
        )
        self._study.follow(self._sampler)
        for record in records:
            self._take(record)
        self.notes = replace(self.notes, fallback=None)
        self.note()

    def _flags(self) -> list[Flags]:
        """Of what may be traced, those of the smallest TP size first."""
        drafts = [config for config in self._legal.configs if config.triple is not None]
        return [trace_flags(config.flags) for config in sorted(drafts, key=lambda config: config.tp_size)]

    def fall_back(self, reason: str) -> None:
        """Leave the search to TPE, and say why."""
        LOG.warning("the search falls back to TPE: %s", reason)
        self._say(f"the search falls back to TPE: {reason}")
        self.notes = replace(self._billed(), fallback=" ".join(reason.split()))
        write_notes(self._folder, self.notes)

    def _billed(self) -> SearchNotes:
        """The notes with what traces cost by now, over all sessions."""
        spent = read_trace_launches(traces_path(self._folder))
        return replace(self.notes, weight_loads=spent.weight_loads, trace_s=round(spent.elapsed_s, 3))

    def note(self) -> None:
        """Compare every new measurement with its prediction, and keep that."""
        sampler = self._sampler
        if sampler is None:
            return
        # rows of releases before this one have no number
        rows = {row["number"]: row for row in self.notes.comparisons if "number" in row}
        rows |= {found.number: comparison_row(found) for found in self._study.comparisons(sampler, rows.keys())}
        self.notes = replace(
            self.notes,
            comparisons=tuple(rows[number] for number in sorted(rows)),
            rounds=tuple(check.to_json() for checks in self._rounds.values() for check in checks),
            findings=tuple(sampler.findings),
            trusted=sampler.trust.trusted,
        )
        write_notes(self._folder, self.notes)

    def _take(self, record: TrialRecord) -> None:
        """What a trial says beside its value: its verify steps, what its requests should accept, and its rounds at
        other loads than the objective's."""
        sampler = self._sampler
        if sampler is None or not record.ok:
            return
        rows = self._rows_of(record.trial_id)
        self._check_rounds(sampler, record, check_rounds(record, rows, self._points))
        lengths = sent_accept_lengths(record, rows, self._points)
        if (self._batch, None) in lengths:
            self._sent[record.trial_id] = lengths[self._batch, None]
        if self._one_variant and record.number is not None:
            sampler.learn(rounds_at_other_loads(record, lengths, self._batch), before=record.number + 1)

    def _check_rounds(self, sampler: SurfaceSampler, record: TrialRecord, checks: tuple[RoundsCheck, ...]) -> None:
        """Hold a trial's verify steps against its traces. Where they are wrong, so is every prediction."""
        if not checks:
            return
        self._rounds[record.trial_id] = checks
        problem = rounds_problem([check for found in self._rounds.values() for check in found])
        if problem is not None and sampler.trust.trusted:
            LOG.warning("the traces are not followed any more: %s", problem)
            self._say(f"the traces are not followed any more: {problem}")
            sampler.findings.append(f"the traces are not followed any more: {problem}")
            sampler.trust = Trust(trusted=False, reason=problem)

    def enough(self) -> bool:
        """Whether the spec asks to end where so little is left to gain, and every setting left is predicted."""
        if self._stop_at_gain is None or self._sampler is None:
            return False
        if not self._sampler.covers_all or not self._one_variant:
            return False
        if self._gain_is_old:
            self._gain, self._gain_is_old = self._study.expected_gain(self._sampler), False
        return self._gain is not None and self._gain < self._stop_at_gain

    def end(self, reason: str) -> None:
        """Note how the search ended."""
        self.notes = replace(self.notes, gain_left=self._gain if reason == "gain" else None)
        if self._sampler is None:
            write_notes(self._folder, self.notes)
        else:
            self.note()

    def started(self, task: Task) -> None:
        self._gain_is_old = True

    def finished(self, record: TrialRecord) -> None:
        self._gain_is_old = True
        self._take(record)
        self.note()

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        self._gain_is_old = True

    def interrupted(self, task: Task) -> None:
        """Nothing: it was not measured."""

    def said(self, line: str) -> None:
        """Nothing."""

    def standing(self, standing: Standing) -> None:
        """Nothing."""


def prices_of(records: Sequence[TrialRecord]) -> Prices:
    """What a measurement, a switch and a launch took in this study so far."""
    launches = [r.launch.ready_s for r in records if r.launch is not None and r.launch.weights_loaded]
    measures = [sum(cell.duration_s for cell in record.cells) for record in records if record.ok and record.cells]
    switches = [r.launch.switch_s for r in records if r.launch is not None and r.launch.switch_s is not None]
    usual = Prices()
    return Prices(
        measure_s=mean(measures) if measures else usual.measure_s,
        switch_s=mean(switches) if switches else usual.switch_s,
        launch_s=mean(launches) if launches else usual.launch_s,
    )
