"""A sweep as a Ray job, on a real cluster of one node: submitted, followed, stopped, and resumed here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from doubles.fake_interpreter import make_fake_python
from job_cluster import LIMIT_S, Cluster, head_node, processes_with, ray_job, specsweep, wait_until
from spec_files import write_spec

pytestmark = pytest.mark.timeout(LIMIT_S + 60)

SPEC = """\
study: job
target: models/target
draft: models/draft
engine: {python: PYTHON, device: cpu, switching: off, sglang_version: 0.5.23, ready_timeout_s: 120}
cluster: {gpus: 2, max_parallel: 1}
space: {num_steps: [1], eagle_topk: [1], num_draft_tokens: [2]}
workload: {prompts: 4, concurrency: [2], max_new_tokens: 8, warmup_prompts: 1}
budget: {confirmations: 0}
tracking: {enabled: false}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with head_node(tmp_path_factory.mktemp("bin")) as running:
        yield running


def test_a_job_runs_the_sweep_and_leaves_its_study_in_the_home(cluster: Cluster, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, SPEC.replace("PYTHON", str(make_fake_python(tmp_path))), name="job.yaml")
    home = tmp_path / "home"
    done = specsweep(cluster, "submit", str(spec), "--address", cluster.url, "--set", "study=two words", home=home)
    assert done.returncode == 2, done.stdout
    done = specsweep(
        cluster, "submit", str(spec), "--address", cluster.url, "--set", "space.num_steps=[1, 3]", home=home
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"study job begins in {home}/job" in done.stdout
    assert "(run this)" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""
    status = json.loads(specsweep(cluster, "status", "job", "--json", home=home).stdout)
    assert (status["records"], status["left"], status["running"]) == (3, 0, False)


def test_the_exit_code_is_the_drivers(cluster: Cluster, tmp_path: Path) -> None:
    spec = write_spec(tmp_path, SPEC.replace("PYTHON", "/nowhere/python"), name="job.yaml")
    done = specsweep(cluster, "submit", str(spec), "--address", cluster.url, "--json", home=tmp_path / "home")
    assert done.returncode == 3, done.stderr
    result = json.loads(done.stdout)
    assert (result["state"], result["exit_code"]) == ("failed", 3)
    assert "engine.python: /nowhere/python cannot be run" in done.stderr


def test_a_stopped_job_is_resumed_here(cluster: Cluster, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    fake = json.dumps({"step_ms": 300, "count_file": str(starts)})
    text = SPEC.replace("PYTHON", str(make_fake_python(tmp_path)))
    spec = write_spec(
        tmp_path, text.replace("device: cpu", f"device: cpu, env: {{FAKE_SGLANG: '{fake}'}}"), name="job.yaml"
    )
    home = tmp_path / "home"
    argv = ["submit", str(spec), "--address", cluster.url, "--no-wait", "--submission-id", "slow"]
    submitted = specsweep(cluster, *argv, home=home)
    assert submitted.returncode == 0, submitted.stderr
    wait_until(starts.exists)
    ray_job(cluster, "stop", "slow")
    wait_until(lambda: not processes_with(str(starts)))
    status = json.loads(specsweep(cluster, "status", "job", "--json", home=home).stdout)
    assert (status["running"], status["records"], status["left"]) == (False, 0, 2)
    # the job's own copy of the models goes with Ray's session
    models = [f"--set=target={tmp_path}/models/target", f"--set=draft={tmp_path}/models/draft"]
    resumed = specsweep(cluster, "resume", "job", "--json", *models, home=home)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["reason"] == "exhausted"
    assert len(starts.read_text().splitlines()) == 3
