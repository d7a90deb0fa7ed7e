"""Doubles for the driver's loop: simple rules, a study, a store and a pool in this process, a list of events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from trial_builders import cell, launch

from actors.job import TrialJob, TrialOutcome
from results.failures import Failure
from results.observations import RequestRow
from results.records import TrialRecord
from results.request_table import CellKey
from search_spaces.config import EngineConfig, Setting, Triple
from search_spaces.rulings import Illegal, Legal, Ruling
from search_spaces.space import SearchSpace
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.progress import Standing
from sweeps.stored_study import open_study
from sweeps.study import SearchStudy
from sweeps.study_trial import State, StudyTrial
from sweeps.tasks import Task

SPACE = SearchSpace(
    layout=("default", "0,3,7"),
    num_steps=(1, 2, 3),
    eagle_topk=(1, 4),
    num_draft_tokens=(2, 4, 8),
    tp_size=(1,),
)
"""36 settings: 18 at topk 1 are 6 servers; of topk 4, 6 triples are legal: 12 servers."""

SMALL = SearchSpace(layout=("0,3,7",), num_steps=(1, 2), eagle_topk=(1, 4), num_draft_tokens=(2, 4, 8), tp_size=(1,))
"""12 settings, 6 servers: (1,1,2), (2,1,3), (1,4,2), (1,4,4), (2,4,4) and (2,4,8)."""

LAYOUTS = {"default": (2, 4, 5), "shipped": (2, 4, 5)}


def resolve(setting: Setting) -> Ruling:
    """The two rules on triples that matter most: topk 1 sets the tokens, a tree must fit its pool and its depth."""
    assert setting.num_steps is not None
    assert setting.eagle_topk is not None
    assert setting.num_draft_tokens is not None
    steps, topk, tokens = setting.num_steps, setting.eagle_topk, setting.num_draft_tokens
    if topk == 1:
        tokens = steps + 1
    elif tokens - 1 > topk + (steps - 1) * topk * topk:
        return Illegal(rule="tree_pool", message=f"need n-1={tokens - 1} > pool")
    elif tokens < steps + 1:
        return Illegal(rule="tokens_below_steps", message=f"{tokens} < {steps + 1}")
    layout = LAYOUTS.get(setting.layout) or tuple(int(tap) for tap in setting.layout.split(","))
    triple = Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens)
    config = EngineConfig(layout=layout, triple=triple, tp_size=setting.tp_size, flags=setting.flags)
    return Legal(effective=config, ids=None, adjustments=())


def setting(layout: str = "0,3,7", steps: int = 3, topk: int = 1, tokens: int = 4, tp_size: int = 1) -> Setting:
    return Setting(layout=layout, num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens, tp_size=tp_size)


def study_in(folder: Path | None, ledger: Ledger, space: SearchSpace = SPACE, **changes: Any) -> SearchStudy:
    """A real Optuna study on SQLite in `folder`, in memory when that is None."""
    options: dict[str, Any] = {
        "legal": LegalSpace(space, resolve),
        "ledger": ledger,
        "direction": "maximize",
        "sampler": "random",
        "seed": 7,
        "identity": {"target": "T"},
    }
    url = changes.pop("url", "sqlite://" if folder is None else f"sqlite:///{folder / 'study.db'}")
    return open_study(url, "s", **(options | changes))


def trials_of(study: SearchStudy) -> list[tuple[int, str]]:
    return [(trial.number, trial.state) for trial in study.trials()]


class MemoryStore:
    """Records in a list; refuses to write one twice, as the real one does."""

    def __init__(self, records: Sequence[TrialRecord] = ()) -> None:
        self.kept = list(records)

    def write_trial(
        self, record: TrialRecord, rows_by_cell: Mapping[CellKey, Sequence[RequestRow]], files: Mapping[str, bytes]
    ) -> None:
        assert record.trial_id not in [kept.trial_id for kept in self.kept]
        assert "server.log" in files
        self.kept.append(record)

    def records(self) -> tuple[TrialRecord, ...]:
        return tuple(self.kept)

    def rows(self, trial_id: str) -> Mapping[CellKey, Sequence[RequestRow]]:
        return {}


def speed_of(config: EngineConfig) -> float:
    """Seconds that a cell takes: the layout 0,3,7 and more steps are better."""
    if config.triple is None or config.layout is None:
        return 8.0
    return 8.0 / (config.triple.num_steps + (3 if config.layout[0] == 0 else 0))


def succeed(job: TrialJob, slower: float = 1.0) -> TrialOutcome:
    config = job.config
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=100.0,
        finished_at_unix_s=110.0,
        launch=launch(),
        cells=(cell(seconds=slower * speed_of(config), triple=config.triple),),
        failure=None,
        server_log="log",
    )


def fail(job: TrialJob, failure: Failure) -> TrialOutcome:
    return TrialOutcome(
        trial_id=job.trial_id,
        started_at_unix_s=100.0,
        finished_at_unix_s=101.0,
        launch=None,
        cells=(),
        failure=failure,
        server_log="log",
    )


@dataclass
class InstantPool:
    """Runs each job when it is waited for, `capacity` at once; the last one started ends first."""

    run: Callable[[TrialJob], TrialOutcome] = succeed
    capacity: int = 1
    launched: list[TrialJob] = field(default_factory=list)
    running: list[TrialJob] = field(default_factory=list)

    def has_room(self) -> bool:
        return len(self.running) < self.capacity

    def try_start(self, job: TrialJob) -> bool:
        if len(self.running) >= self.capacity:
            return False
        self.launched.append(job)
        self.running.append(job)
        return True

    def wait(self, timeout_s: float) -> Sequence[TrialOutcome]:
        return [self.run(self.running.pop())] if self.running else []


@dataclass
class Events:
    """Everything an observer is told, in order."""

    seen: list[tuple[str, str]] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)

    def started(self, task: Task) -> None:
        self.seen.append(("started", task.trial_id))

    def finished(self, record: TrialRecord) -> None:
        self.seen.append(("finished", record.trial_id))

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        self.seen.append(("answered", record.trial_id))

    def interrupted(self, task: Task) -> None:
        self.seen.append(("interrupted", task.trial_id))

    def said(self, line: str) -> None:
        self.seen.append(("said", line))

    def standing(self, standing: Standing) -> None:
        self.standings.append(standing)


class MemoryStudy:
    """A study without Optuna: enqueued trials first, then the open configurations in order."""

    name = "s"

    def __init__(self, legal: LegalSpace, ledger: Ledger) -> None:
        self.legal, self.ledger = legal, ledger
        self.kept: list[StudyTrial] = []
        self.attrs: dict[str, Any] = {}
        self.told: list[tuple[int, float | str]] = []

    def add(self, wanted: Setting, state: State = "waiting", **attrs: Any) -> None:
        self.kept.append(StudyTrial(number=len(self.kept), state=state, setting=wanted, value=None, attrs=attrs))

    def ask(self) -> StudyTrial:
        number = next((trial.number for trial in self.kept if trial.state == "waiting"), len(self.kept))
        if number == len(self.kept):
            config = next(config for config in self.legal.configs if self.ledger.is_unseen(config))
            candidate = self.legal.nearest(next(self.legal.space.settings()), lambda it: it == config, Random(0))
            assert candidate is not None
            self.add(candidate.setting)
        self._end(number, "running")
        return self.kept[number]

    def tell_value(self, number: int, value: float, attrs: Mapping[str, Any]) -> None:
        self.told.append((number, value))
        self._end(number, "complete", **attrs)

    def tell_failure(self, number: int, failure: Failure, attrs: Mapping[str, Any]) -> None:
        self.told.append((number, failure.kind))
        self._end(number, "fail", reason=failure.kind, message=failure.message, **attrs)

    def requeue(self, trial: StudyTrial, *, attempt: int, reason: str) -> None:
        self.told.append((trial.number, reason))
        assert trial.setting is not None
        self._end(trial.number, "fail", reason=reason)
        self.add(trial.setting, attempt=attempt + 1, retry_of=trial.number, role=trial.role)

    def trials(self) -> tuple[StudyTrial, ...]:
        return tuple(self.kept)

    @property
    def waiting(self) -> int:
        return sum(trial.state == "waiting" for trial in self.kept)

    def attr(self, name: str) -> Any:
        return self.attrs.get(name)

    def set_attr(self, name: str, value: Any) -> None:
        self.attrs[name] = value

    def _end(self, number: int, state: State, **attrs: Any) -> None:
        trial = self.kept[number]
        self.kept[number] = replace(trial, state=state, attrs={**trial.attrs, **attrs})
