"""What a study says, as one value: the ranking, the suspect, the command to run, and sentences on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from results.launch_script import command_text, user_command
from results.objective import Objective
from results.ranked_settings import RankedSetting
from results.ranking import Ranking, rank
from results.records import CONFIRMING, TrialRecord
from results.report_sentences import caveats, next_step, summary_sentences
from results.search_notes import SearchNotes, read_notes
from results.store import StudyFolder
from results.switch_comparison import judge_switching
from results.switch_trust import SwitchTrust


@dataclass(frozen=True, kw_only=True)
class LaunchCommand:
    """How to start the recommended server: words, the variables it needs, and the script in the study's folder."""

    words: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    script: Path

    def __str__(self) -> str:
        return command_text(self.words, self.environment)


@dataclass(frozen=True, kw_only=True)
class Report:
    """What a study says. `verdicts` are sentences on the cause of the suspect's trouble, if that was analysed.

    `search` is None unless the search followed a surface, `switching` unless servers were switched.
    """

    study: str
    ranking: Ranking
    suspect: RankedSetting | None
    launch: LaunchCommand | None
    verdicts: tuple[str, ...]
    search: SearchNotes | None = None
    switching: SwitchTrust | None = None

    @property
    def findings(self) -> tuple[str, ...]:
        """What only shows across trials: of the search first, then of the measurements."""
        return (*(() if self.search is None else self.search.sentences), *self.ranking.findings)

    @property
    def summary(self) -> tuple[str, ...]:
        return (*summary_sentences(self.ranking, self.suspect), *self.verdicts)

    @property
    def caveats(self) -> tuple[str, ...]:
        return caveats(self.ranking)

    @property
    def next_step(self) -> str:
        return next_step(self.ranking, self.suspect, self.study, explained=bool(self.verdicts))


def build_report(
    folder: StudyFolder,
    objective: Objective,
    *,
    study: str,
    greedy: bool = True,
    verdicts: Sequence[str] = (),
    records: Sequence[TrialRecord] | None = None,
) -> Report:
    """Read a study's records (unless given) and rank them; request rows are read where comparisons need them.

    InputError when a record or a table of requests is corrupt.
    """
    known = folder.records() if records is None else records
    rows_of = lru_cache(maxsize=32)(folder.rows)
    ranking = rank(known, objective, rows_of=rows_of, greedy=greedy)
    switched = any(record.launch is not None and record.launch.switch_s is not None for record in known)
    return Report(
        study=study,
        ranking=ranking,
        suspect=ranking.suspect(),
        launch=None if ranking.choice is None else launch_command(ranking.choice, folder),
        verdicts=tuple(verdicts),
        search=read_notes(folder),
        switching=judge_switching(known, rows_of) if switched else None,
    )


def launch_command(row: RankedSetting, folder: StudyFolder) -> LaunchCommand | None:
    """From the launch that measured the setting, a fresh one rather than a switched one, a confirming one first."""
    launched = [(record, record.launch) for record in row.setting.measured if record.launch is not None]
    launched.sort(key=lambda pair: (pair[1].switch_s is not None, pair[0].role not in CONFIRMING))
    if not launched:
        return None
    record, launch = launched[0]
    place = folder.record_path(record.trial_id)
    return LaunchCommand(
        words=user_command(launch, row.setting.effective, lambda name: str(place / name)),
        environment=launch.environment,
        script=folder.trial_file(record.trial_id, "launch.sh"),
    )
