"""A driver process for tests: runs or resumes a study, and dies at the moment it is told to.

    drive.py SPEC HOME [MOMENT TRIAL]

MOMENT is `before_write`, `after_write` or `after_tell`: the process kills itself (SIGKILL) there, in trial TRIAL.
Prints every event as a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from actors.load.workload import Prompt, Workload
from results.records import TrialRecord
from results.store import StudyFolder
from sweeps import compose
from sweeps.claiming import claim_study
from sweeps.progress import Standing
from sweeps.spec import load_spec
from sweeps.spec_schema import SweepSpec
from sweeps.study_trial import StudyTrial
from sweeps.tasks import Task


class Printer:
    """Tells every event, and dies after the study was told when that is the moment."""

    def __init__(self, moment: str, trial: str) -> None:
        self._moment, self._trial = moment, trial

    def started(self, task: Task) -> None:
        triple = task.config.triple
        say("started", trial=task.trial_id, steps=0 if triple is None else triple.num_steps)

    def finished(self, record: TrialRecord) -> None:
        if self._moment == "after_tell" and record.trial_id == self._trial:
            die()
        say("finished", trial=record.trial_id, kind=record.failure and record.failure.kind)

    def answered(self, trial: StudyTrial, record: TrialRecord) -> None:
        say("answered", number=trial.number, trial=record.trial_id)

    def interrupted(self, task: Task) -> None:
        say("interrupted", trial=task.trial_id)

    def said(self, line: str) -> None:
        say("said", line=line)

    def standing(self, standing: Standing) -> None:
        pass


def make_workload(spec: SweepSpec) -> Workload:
    """The spec's workload on plain prompts: loading a tokenizer takes longer than all else here."""
    prompts = [Prompt(prompt_id=f"p{i}", text=f"prompt {i}") for i in range(int(spec.workload.prompts) + 1)]
    return Workload(
        prompts=tuple(prompts[1:]),
        warmup=tuple(prompts[:1]),
        concurrency=spec.workload.concurrency,
        max_new_tokens=spec.workload.max_new_tokens,
        temperature=0.0,
        ignore_eos=True,
        stream=True,
        request_timeout_s=60.0,
        max_attempts=1,
    )


def say(event: str, **fields: Any) -> None:
    print(json.dumps({"event": event, **fields}), flush=True)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    spec = load_spec(Path(sys.argv[1]))
    place = claim_study(spec, Path(sys.argv[2]))
    moment, trial = (sys.argv[3], sys.argv[4]) if len(sys.argv) > 3 else ("", "")
    write = StudyFolder.write_trial

    def dying_write(self: StudyFolder, record: TrialRecord, *args: Any) -> Path:
        if moment == "before_write" and record.trial_id == trial:
            die()
        path = write(self, record, *args)
        if moment == "after_write" and record.trial_id == trial:
            die()
        return path

    compose.make_workload = make_workload
    StudyFolder.write_trial = dying_write  # type: ignore[method-assign]
    result = compose.run_sweep(spec, place, Printer(moment, trial))
    say(
        "result",
        reason=result.reason,
        done=result.standing.done,
        failed=result.standing.failed,
        best=result.best,
        told=result.recovered.told,
        again=result.recovered.again,
    )
    sys.exit(130 if result.interrupted else 0)


if __name__ == "__main__":
    main()
