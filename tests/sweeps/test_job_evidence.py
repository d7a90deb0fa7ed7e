"""The demo as a Ray job, from the repository's root, on real servers: stopped while it measures and resumed; and whole.

Writes `benchmarks/results/job.json`. About twenty minutes on two idle cores.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from driver_process import digests, is_busy
from job_cluster import ROOT, Cluster, head_node, job_state, processes_with, ray_job, specsweep, wait_until

from actors.engines.guard import ProcessId
from actors.engines.guarded_process import find_leftovers
from benchmarks.result_file import write_section
from results.records import CONFIRMING
from results.store import StudyFolder
from sweeps.groups import sweep_id

LIMIT_S = 1500
pytestmark = [pytest.mark.server, pytest.mark.evidence, pytest.mark.timeout(2 * LIMIT_S)]

SPEC = "sweeps/specs/demo.yaml"
RESULTS = ROOT / "benchmarks" / "results" / "job.json"
COMMAND = f"ray job submit --working-dir . -- specsweep run {SPEC}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with head_node(tmp_path_factory.mktemp("bin"), RAY_worker_niceness="0") as running:
        yield running


class DemoJob:
    """The demo's study in a home of its own, and what lives of it."""

    def __init__(self, cluster: Cluster, home: Path) -> None:
        self.cluster, self.home = cluster, home
        self.folder = StudyFolder(home / "demo")

    def submit(self, submission_id: str, *options: str) -> None:
        variables = json.dumps({"env_vars": {"SPECSWEEP_HOME": str(self.home)}})
        options = ("--submission-id", submission_id, "--runtime-env-json", variables, *options)
        ray_job(self.cluster, "submit", *options, "--working-dir", ".", "--", "specsweep", "run", SPEC, limit_s=LIMIT_S)

    @property
    def servers(self) -> list[ProcessId]:
        """Living processes of this study's servers: SGLang's, their fork server, their guards."""
        return find_leftovers(sweep_id("demo", self.folder.path) + "/")

    @property
    def alive(self) -> list[int]:
        """The servers, the driver, and what Ray started for the job."""
        return [pid for pid, _ in self.servers] + processes_with(f"SPECSWEEP_HOME={self.home}")

    def busy_port(self) -> int | None:
        """The port of the running server if it answers requests right now; a forked one tells it in its log only."""
        work_dir = Path(tempfile.gettempdir()) / f"specsweep-{os.getuid()}" / sweep_id("demo", self.folder.path)
        logs = sorted(work_dir.glob("*/server-*.log"), key=lambda path: path.stat().st_mtime)
        last = logs[-1].read_text(errors="replace") if logs else ""
        named = re.findall(r"Uvicorn running on http://[^:]+:(\d+)", last)
        port = int(named[-1]) if named else None
        return port if port is not None and is_busy(port) else None

    def searched(self) -> int:
        """How many records of the search there are."""
        return sum(name.startswith("t") for name in self.folder.trial_ids())

    def command(self, *argv: str) -> dict[str, Any]:
        done = specsweep(self.cluster, *argv, "--json", home=self.home, timeout_s=LIMIT_S)
        assert done.returncode == 0, done.stdout + done.stderr
        content: dict[str, Any] = json.loads(done.stdout)
        return content


def check_totals(job: DemoJob) -> dict[str, int]:
    """Every server of the plan was measured once, each baseline once, the winner confirmed; the study agrees."""
    plan = job.command("plan", SPEC)
    records = job.folder.records()
    assert all(record.ok for record in records)
    of_space = [record for record in records if record.role in ("search", "suspect")]
    assert len(of_space) == len({record.effective.identity for record in of_space}) == plan["effective"] == 12
    baselines = [record.effective.tp_size for record in records if record.role == "baseline"]
    assert sorted(baselines) == [1, 2]
    assert sum(record.role in CONFIRMING for record in records) >= 1
    assert job.command("status", "demo")["left"] == 0
    stored = optuna.load_study(study_name="demo", storage=f"sqlite:///{job.folder.path / 'study.db'}")
    complete = [trial for trial in stored.trials if trial.state == optuna.trial.TrialState.COMPLETE]
    assert Counter(trial.user_attrs["trial_id"] for trial in complete if "trial_id" in trial.user_attrs) == Counter(
        record.trial_id for record in records if record.number is not None
    )
    assert not [trial for trial in stored.trials if trial.state == optuna.trial.TrialState.RUNNING]
    return dict(Counter(record.role for record in records))


def test_a_job_stopped_while_it_measures_leaves_nothing_and_is_resumed(cluster: Cluster, tmp_path: Path) -> None:
    job = DemoJob(cluster, tmp_path / "home")
    started_s = time.monotonic()
    job.submit("stopped", "--no-wait")
    wait_until(lambda: job.searched() >= 2, timeout_s=600)
    found: list[int | None] = [None]

    def is_measuring() -> bool:
        found[0] = job.busy_port()
        return found[0] is not None

    wait_until(is_measuring, every_s=0.05)
    before_stop_s = time.monotonic() - started_s
    stopped_s = time.monotonic()
    ray_job(cluster, "stop", "stopped")
    stop_s = time.monotonic() - stopped_s
    assert job_state(cluster, "stopped") == "STOPPED"
    wait_until(lambda: not job.alive, timeout_s=30)
    gone_s = time.monotonic() - stopped_s
    assert found[0] is not None
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", found[0]), timeout=2):  # noqa: PT011
        pass
    kept = digests(job.folder)
    status = job.command("status", "demo")
    assert not status["running"]
    assert status["records"] >= 2
    assert status["left"] > 0

    resumed_s = time.monotonic()
    result = job.command("resume", "demo")
    resume_s = time.monotonic() - resumed_s
    assert result["reason"] == "exhausted"
    assert {path: digest for path, digest in digests(job.folder).items() if path in kept} == kept
    roles = check_totals(job)
    assert job.alive == []
    write_section(
        RESULTS,
        "stopped_and_resumed",
        command=COMMAND,
        content={
            "until_stop_s": round(before_stop_s, 1),
            "stop_s": round(stop_s, 1),
            "nothing_left_after_s": round(gone_s, 1),
            "records_at_stop": status["records"],
            "resume_s": round(resume_s, 1),
            "records_by_role": roles,
            "files_kept_to_the_byte": len(kept),
        },
    )


def test_a_job_of_the_whole_demo_succeeds(cluster: Cluster, tmp_path: Path) -> None:
    job = DemoJob(cluster, tmp_path / "home")
    started_s = time.monotonic()
    job.submit("whole")
    seconds = time.monotonic() - started_s
    assert job_state(cluster, "whole") == "SUCCEEDED"
    wait_until(lambda: not job.alive, timeout_s=30)
    roles = check_totals(job)
    report = job.command("report", "demo")
    (best,) = [row for row in report["settings"] if row["id"] == report["choice"]]
    assert best["layout"] == "0,3,7"
    write_section(
        RESULTS,
        "whole",
        command=COMMAND,
        content={
            "seconds": round(seconds, 1),
            "records_by_role": roles,
            "best": {key: best[key] for key in ("layout", "num_steps", "eagle_topk", "num_draft_tokens", "tp_size")},
        },
    )
