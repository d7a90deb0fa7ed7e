"""The load at which a spec's objective is read: a concurrency or a request rate, one that is measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from spec_files import write_spec
from trial_builders import cell, config

from results.cells import summarise_cell
from results.objective import Objective
from results.records import RECORD_SCHEMA, TrialRecord
from search_spaces.errors import InputError
from sweeps.claiming import claim_study, save_spec
from sweeps.continuation import check_continues
from sweeps.objectives import objective_of
from sweeps.rivals import best_so_far
from sweeps.spec import dump_snapshot, load_spec
from sweeps.switching import follows_surface

RATES = "workload={request_rate: [2, 4.5], concurrency: [8, 1]}"
AT = "objective.request_rate=4.5"


def test_a_rate_or_a_concurrency(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    at_rate = load_spec(path, [RATES, AT, "objective.metric=tpot_ms_p99"])
    assert objective_of(at_rate) == Objective(metric="tpot_ms_p99", request_rate=4.5, goal="minimize")
    # where a closed loop is needed, it is the workload's first
    assert at_rate.objective_concurrency == 8
    assert objective_of(load_spec(path, [RATES])) == Objective(concurrency=8, goal="maximize")
    assert objective_of(load_spec(path, [RATES, "objective.concurrency=1"])) == Objective(
        concurrency=1, goal="maximize"
    )
    assert load_spec(path, [RATES, "objective.request_rate=2"]).objective.request_rate == 2.0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([RATES, "objective.request_rate=3"], r"objective\.request_rate: 3 is not measured .*request_rate: 2, 4\.5"),
        ([AT], r"objective\.request_rate: 4\.5 is not measured \(workload\.request_rate: none\)"),
        ([RATES, "objective.request_rate=0"], r"0 is not a number of requests per second above 0"),
        ([RATES, "objective.request_rate=x"], r"'x' is not a number of requests per second above 0"),
        ([RATES, AT, "objective.concurrency=8"], r"read at one load; keep this or objective\.concurrency"),
        ([RATES, AT, "objective.metric=steady_throughput"], r"steady_throughput is of a closed loop"),
        ([RATES, AT, "search.sampler=surface"], r"'surface' predicts closed loops"),
    ],
)
def test_a_load_that_cannot_be_is_refused(tmp_path: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load_spec(write_spec(tmp_path), overrides)
    assert "\n" not in str(caught.value)


def test_auto_follows_no_surface_at_a_rate(tmp_path: Path) -> None:
    path = write_spec(tmp_path)
    auto = [RATES, "search.sampler=auto"]
    assert follows_surface(load_spec(path, auto), switching=True)
    assert not follows_surface(load_spec(path, [*auto, AT]), switching=True)


def test_a_study_from_before_goes_on_and_another_rate_is_another_study(tmp_path: Path) -> None:
    path, home = write_spec(tmp_path), tmp_path / "home"
    spec = load_spec(path, [RATES])
    place = claim_study(spec, home)
    save_spec(place, spec)
    old = (
        dump_snapshot(spec)
        .replace(b'    "request_rate": null\n', b"")
        .replace(b'"output_throughput",', b'"output_throughput"')
    )
    assert old != dump_snapshot(spec)
    place.spec_file.write_bytes(old)
    check_continues(place, spec)
    with pytest.raises(InputError, match=r"another objective\.request_rate: null there, 4\.5 here"):
        check_continues(place, load_spec(path, [RATES, AT]))


def test_nobody_is_to_be_beaten_in_a_closed_loop_when_an_open_one_ranks() -> None:
    measured = summarise_cell(cell(seconds=2.0, triple=config(2).triple), config(2).triple)
    found = TrialRecord(
        schema=RECORD_SCHEMA, study="s", trial_id="a", number=None, attempt=1, retry_of=None, role="search",
        setting=None, effective=config(2), started_at_unix_s=1.0, finished_at_unix_s=2.0, launch=None,
        cells=(measured,), failure=None,
    )  # fmt: skip
    assert best_so_far([found], Objective()) is not None
    assert best_so_far([found], Objective(request_rate=4.5)) is None
