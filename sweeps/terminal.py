"""What a sweep says while it runs: one line for each event, and where it stands."""

from __future__ import annotations

from results.objective import METRIC_WORDS, Objective
from results.records import TrialRecord
from search_spaces.config import EngineConfig, layout_label
from sweeps.progress import Progress, Standing, show_duration
from sweeps.study_trial import StudyTrial
from sweeps.tasks import Task


class TerminalObserver:
    """An `Observer` that writes to a `Progress`; `opening` is said when the sweep really begins."""

    def __init__(self, progress: Progress, objective: Objective, opening: str) -> None:
        self._progress = progress
        self._opening = opening
        self._objective = objective

    def started(self, task: Task) -> None:
        self._progress.say(f"{task.trial_id}  started    {show_config(task.config)}{_role(task.role)}")

    def finished(self, record: TrialRecord) -> None:
        took = show_duration(record.finished_at_unix_s - record.started_at_unix_s)
        failure = record.failure
        if failure is None:
            self._progress.say(f"{record.trial_id}  measured   {show_values(record, self._objective)}, {took}")
        else:
            self._progress.say(
                f"{record.trial_id}  failed     {failure.kind} in {failure.phase}: {failure.message}, {took}"
            )

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        self._progress.say(f"trial {trial.number} is the same server as {record.trial_id}: not launched again")

    def interrupted(self, task: Task) -> None:
        self._progress.say(f"{task.trial_id}  broken off; it will be run again")

    def said(self, line: str) -> None:
        self._progress.say(line)

    def standing(self, standing: Standing) -> None:
        if self._opening:
            self._progress.say(self._opening)
            self._opening = ""
        self._progress.update(standing)


def show_config(config: EngineConfig) -> str:
    """A configuration in a few words: `layout 0,3,7 (3,1,4) tp 2`."""
    flags = "".join(f" {name}={value}" for name, value in config.flags)
    if config.layout is None:
        return f"no speculation tp {config.tp_size}{flags}"
    return f"layout {layout_label(config.layout)} {config.triple} tp {config.tp_size}{flags}"


def show_values(record: TrialRecord, objective: Objective) -> str:
    """The objective's value and the accept length of a trial, or why there is none."""
    cell = objective.cell(record)
    if cell is None:
        return f"nothing at {objective.load_words}"
    value = objective.estimate(cell)
    parts = [f"{METRIC_WORDS[objective.metric]} {value.value:.4g}" if value is not None else "no value"]
    if cell.accept_length is not None and objective.metric != "accept_length":
        parts.append(f"accept length {cell.accept_length.value:.3f}")
    if cell.not_ranked:
        parts.append(f"not ranked ({cell.not_ranked[0]})")
    return ", ".join(parts)


def _role(role: str) -> str:
    return "" if role in ("search", "baseline") else f" [{role}]"
