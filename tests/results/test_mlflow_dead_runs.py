"""Runs whose driver or trial died are closed in MLflow, and what comes after is linked to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tracked_study import TrackedStudy, done, start

DEAD_DRIVER = """
import os, signal, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pathlib import Path
from result_builders import config, setting_of
from results.mlflow_view import MlflowView
from results.store import StudyFolder

uri, folder, name, root = sys.argv[3:7]
view = MlflowView.open_or_fail(uri, StudyFolder(Path(folder)), study=name, artifact_root=Path(root))
effective = config()
view.start_run("t1", setting=setting_of(effective), effective=effective, role="search")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_left_by_a_killed_driver_is_closed_and_linked(tracked: TrackedStudy) -> None:
    root, here = Path(__file__).parents[2], Path(__file__).parent
    arguments = [str(root), str(here), tracked.uri, str(tracked.folder.path), tracked.name, str(tracked.artifact_root)]
    environment = {**os.environ, "MLFLOW_RUN_ID": "0" * 32}
    dead = subprocess.run(
        [sys.executable, "-c", DEAD_DRIVER, *arguments], env=environment, capture_output=True, timeout=120, check=False
    )
    assert dead.returncode == -signal.SIGKILL, dead.stderr.decode()[-500:]
    assert b"INFO" not in dead.stderr
    (left,) = tracked.runs()
    assert left.info.status == "RUNNING"

    resumed = tracked.reopened()
    assert resumed.sync([]).removed == 0
    assert resumed.close_dead_runs() == ("t1",)
    assert resumed.close_dead_runs() == ()
    start(resumed)
    assert resumed.close_dead_runs() == ()  # its own run lives
    made = done(tracked)
    resumed.finish(made)
    killed, fresh = tracked.runs()
    assert (killed.info.status, killed.data.tags["status"]) == ("KILLED", "killed")
    assert fresh.info.status == "FINISHED"
    assert fresh.data.tags["retry_of"] == "t1"
    assert fresh.data.tags["retry_of_run"] == killed.info.run_id
    assert tracked.reopened().sync([made]).unchanged == ("t1",)
    assert len(tracked.runs()) == 2


def test_a_driver_that_died_after_the_record_leaves_one_finished_run(tracked: TrackedStudy) -> None:
    start(tracked.view)
    made = done(tracked)
    resumed = tracked.reopened()
    resumed.close_dead_runs()
    resumed.sync([made])
    (run,) = tracked.runs()
    assert run.info.status == "FINISHED"


def test_an_interrupted_trial_is_killed_and_its_next_run_linked(tracked: TrackedStudy) -> None:
    start(tracked.view)
    tracked.view.kill("t1")
    tracked.view.kill("unknown")
    assert tracked.runs()[0].info.status == "KILLED"
    start(tracked.view)
    assert tracked.runs()[1].data.tags["retry_of"] == "t1"


def test_a_retry_under_its_own_id_is_linked_by_trial(tracked: TrackedStudy) -> None:
    start(tracked.view, trial_id="t1-a1", retry_of="t1-a0")
    assert tracked.runs()[0].data.tags["retry_of"] == "t1-a0"
