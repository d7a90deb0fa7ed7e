"""Where a demo's time went: the engine's part of a trial, gaps on one group, and what lies between two groups."""

from __future__ import annotations

import pytest
from result_builders import config, launch, record, summary

from benchmarks.orchestration import Traced, account


def test_time_is_the_engines_where_it_launches_switches_warms_up_and_measures() -> None:
    cells = (summary(duration_s=30.0), summary(duration_s=9.0, concurrency=4))
    records = (
        # 60 s, of which 12.5 launching, 0.5 switching, 2 warming up, 39 measuring
        record("t0", config(tp=1), cells=cells, launch=launch(switch_s=0.5), warm_up_s=2.0, at_s=1000.0),
        # 1 s later on the same group, switched: 0.5 + 2 + 39 of 60 s
        record(
            "t1",
            config(tp=1),
            cells=cells,
            launch=launch(switch_s=0.5, weights_loaded=False),
            warm_up_s=2.0,
            at_s=1061.0,
        ),
        # 5 s later on another group; nothing was launched
        record("t2", config(tp=2), launch=None, at_s=1126.0),
    )
    found = account(list(reversed(records)))
    first, second, third = found["trials"]
    assert (first["engine_s"], first["gap_s"], first["ours_s"]) == (54.0, 0.0, 6.0)
    assert (second["engine_s"], second["gap_s"], second["ours_s"]) == (41.5, 1.0, 19.5)
    assert second["share"] == pytest.approx(19.5 / 61, abs=1e-4)
    assert (third["engine_s"], third["gap_s"], third["share"]) == (0.0, 0.0, 1.0)
    assert found["between_groups_s"] == [5.0]
    assert found["share"] == pytest.approx((6 + 19.5 + 60) / (60 + 61 + 60), abs=1e-4)
    assert found["share_median"] == second["share"]
    traced = account(records, Traced(seconds=0.75, ended_at_unix_s=1060.9))
    assert [trial["gap_s"] for trial in traced["trials"]] == [0.0, 0.25, 0.0]
    assert traced["traces_s"] == 0.75
