"""What runs before a search by surface is known to the search."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from search_doubles import SMALL, Events, InstantPool, resolve, setting, study_in
from trial_builders import WORKLOAD, baseline, config

from results.objective import Objective
from results.store import StudyFolder
from search_spaces.rulings import RuleContext
from sweeps.budget import Budget
from sweeps.interrupts import StopRequest
from sweeps.ledger import Ledger
from sweeps.legal_space import LegalSpace
from sweeps.loop import LoopPlan, SweepLoop
from sweeps.opening import Opening
from sweeps.study import SearchStudy
from sweeps.tasks import FixedTrial


def opening(tmp_path: Path, pool: InstantPool, study: SearchStudy, ledger: Ledger, **changes: Any) -> Opening:
    store = StudyFolder(tmp_path)
    store.open_for_write()
    options: dict[str, Any] = {
        "study": study,
        "store": store,
        "pool": pool,
        "ledger": ledger,
        "workload": WORKLOAD,
        "objective": Objective(),
        "context": cast("RuleContext", None),
        "budget": Budget(),
        "retries": 0,
        "observer": Events(),
        "stop": StopRequest(),
        "heartbeat": lambda: None,
    }
    return Opening(**(options | changes))


def test_what_the_opening_launched_is_not_launched_by_the_search(tmp_path: Path) -> None:
    """The suspect, asked for by words that the space does not hold, is one of its servers."""
    ledger, pool, stop = Ledger(), InstantPool(), StopRequest()
    study = study_in(tmp_path, ledger, SMALL)
    fixed = (
        FixedTrial(base="baseline-tp1", role="baseline", setting=None, config=baseline()),
        FixedTrial(base="suspect-1", role="suspect", setting=setting(steps=1, tokens=16), config=config(1)),
    )
    opening(tmp_path, pool, study, ledger).measure(fixed)
    assert [job.trial_id for job in pool.launched] == ["baseline-tp1-a1", "suspect-1-a1"]
    assert not ledger.is_open(config(1))
    assert ledger.last_tp_size == 1
    plan = LoopPlan(workload=WORKLOAD, objective=Objective(), fixed=fixed, budget=Budget(), repeats=1, retries=0)
    loop = SweepLoop(
        study=study,
        store=StudyFolder(tmp_path),
        pool=pool,
        legal=LegalSpace(SMALL, resolve),
        ledger=ledger,
        plan=plan,
        observer=Events(),
        stop=stop,
        heartbeat=lambda: None,
    )
    assert loop.run() == "exhausted"
    launched = [job.config for job in pool.launched]
    assert len(launched) == len(set(launched)) == 1 + 6


@pytest.mark.parametrize("distrusted", [False, True])
def test_where_switching_is_distrusted_the_opening_launches_too(tmp_path: Path, distrusted: bool) -> None:
    ledger, pool = Ledger(), InstantPool()
    suspect = FixedTrial(base="suspect-1", role="suspect", setting=setting(steps=1), config=config(1))
    study = study_in(tmp_path, ledger, SMALL)
    opening(tmp_path, pool, study, ledger, must_launch=lambda: distrusted).measure([suspect])
    assert [job.fresh for job in pool.launched] == [distrusted]
