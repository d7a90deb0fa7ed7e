"""Switched against fresh: what agrees, what differs beyond noise, and what an assumed noise floor may not condemn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from trial_builders import cell, config, launch, row

from results.cells import summarise_cell
from results.objective import Objective
from results.observations import CellObservation, RequestRow
from results.ranking import rank
from results.records import Role, TrialRecord
from results.request_table import CellKey
from results.summary import scaled
from results.switch_comparison import judge_switching
from results.switch_trust import SwitchTrust
from search_spaces.config import EngineConfig, Setting

CONFIG = config(3, 1)
PROMPTS = [f"p{i}" for i in range(8)]


class Rows:
    """Records with their rows, as a study's folder has them."""

    def __init__(self) -> None:
        self.records: list[TrialRecord] = []
        self._rows: dict[str, Mapping[CellKey, Sequence[RequestRow]]] = {}

    def add(
        self,
        *,
        steps: Sequence[int] = (30,) * 8,
        seconds: float = 8.0,
        fresh: bool = False,
        role: Role = "search",
        effective: EngineConfig = CONFIG,
        prompts: int = 8,
        warm: bool = False,
        pid: int = 1,
        workload_id: str = "",
        shares: Sequence[float] = (1.0,) * 8,
    ) -> Rows:
        """One trial: `prompts` of its workload's 8 were sent, `warm` with all of them in the prefix cache. Each takes
        its share of the `seconds` of all."""
        trial = f"t{len(self.records)}"
        ends = [seconds * end / sum(shares) for end in accumulate(shares, initial=0.0)]
        rows = tuple(
            replace(
                row(name, tokens=41, finished_s=ends[i + 1], steps=count, triple=CONFIG.triple),
                sent_s=ends[i],
                cached_tokens=4 if warm else 0,
            )
            for i, (name, count) in enumerate(zip(PROMPTS, steps, strict=True))
        )[:prompts]
        observed: CellObservation = replace(cell(seconds=seconds, triple=CONFIG.triple), rows=rows)
        observed = replace(observed, workload_id=workload_id or observed.workload_id)
        self._rows[trial] = {(1, None): rows}
        started = replace(launch(), pid=pid)
        if not fresh:
            started = replace(started, switch_s=0.4, weights_loaded=False)
        self.records.append(
            TrialRecord(
                schema=1, study="s", trial_id=trial, number=None, attempt=1, retry_of=None, role=role,
                setting=Setting(layout="0,3,7", num_steps=3, eagle_topk=1, num_draft_tokens=4, tp_size=1),
                effective=effective, started_at_unix_s=0.0, finished_at_unix_s=1.0, launch=started,
                cells=(summarise_cell(observed, CONFIG.triple, server_args={}),), failure=None,
            )
        )  # fmt: skip
        return self

    def rows_of(self, trial: str) -> Mapping[CellKey, Sequence[RequestRow]]:
        return self._rows[trial]

    def judge(self) -> SwitchTrust:
        return judge_switching(self.records, self.rows_of)


def test_equal_to_the_unit() -> None:
    trust = Rows().add().add(fresh=True, role="check", seconds=8.4).judge()
    assert trust.trusted
    (check,) = trust.checks
    assert (check.prompts, check.equal_prompts, check.length_difference) == (8, 8, 0.0)
    assert (check.switched_trial, check.fresh_trial) == ("t0", "t1")
    assert check.throughput_difference == pytest.approx(8 / 8.4 - 1)
    (sentence,) = trust.sentences
    assert sentence == (
        "switching was checked: 1 setting measured on a switched and on a fresh server took the same verify steps on 8 "
        "of 8 requests, throughput differed by at most 4.8%"
    )


def test_a_stale_layout_is_found_out() -> None:
    """A switch that left the old layout in place: every prompt takes more steps than on a fresh launch."""
    trust = Rows().add(steps=[38, 37, 39, 38, 36, 38, 39, 37]).add(fresh=True, role="check").judge()
    assert not trust.trusted
    (problem,) = trust.problems
    assert "layout 0,3,7 (3,1,4) tp 1: accept length differs by +25" in problem
    assert "8 of 8 prompts took other verify steps" in problem
    assert trust.sentences[0].startswith("switching is not trusted")
    assert trust.to_json()["checks"][0]["equal_prompts"] == 0


def test_one_prompt_that_differs_is_numerics() -> None:
    trust = Rows().add(steps=[33, *[30] * 7]).add(fresh=True, role="confirm").judge()
    assert trust.trusted
    assert trust.checks[0].equal_prompts == 7
    assert trust.checks[0].length_difference == pytest.approx(243 / 240 - 1)


def test_an_assumed_noise_floor_condemns_only_two_settings_that_differ_the_same_way() -> None:
    assert Rows().add().add(fresh=True, role="check", seconds=9.5).judge().doubts == ()
    rows = Rows().add(seconds=12.0).add(fresh=True, role="check")
    slow = rows.judge()
    assert slow.trusted
    assert "throughput differs by +50" in slow.doubts[0]
    assert "of assumed noise" in slow.sentences[0]
    slower = Rows().add().add(fresh=True, role="check", seconds=10.0).judge().doubts[0]
    assert "differs by -20.0% on a fresh launch, beyond the -18.1% of assumed noise" in slower
    other, third = config(5, 1), config(1, 1)
    rows.add(effective=other, seconds=4.0).add(effective=other, fresh=True, role="confirm")
    assert rows.judge().trusted
    rows.add(effective=third, seconds=12.0).add(effective=third, fresh=True, role="confirm")
    assert not rows.judge().trusted
    assert len(rows.judge().problems) == 2


OTHER = config(5, 1)


def test_a_measured_noise_floor_is_used() -> None:
    rows = Rows()
    for pid, seconds in enumerate((8.0, 8.01, 7.99)):
        rows.add(effective=OTHER, seconds=seconds, fresh=True, pid=pid)
    rows.add(seconds=9.5).add(fresh=True, role="check")
    trust = rows.judge()
    assert not trust.trusted
    assert "of measured noise" in trust.problems[0]


VARIED = (1.0, 9.0, 2.0, 8.0, 3.0, 7.0, 4.0, 6.0)
"""Prompts that take very different times: the interval of a throughput over prompts is wide."""


def launched_three_times() -> Rows:
    """Launches of one setting that differ so that the floor is about 11 %."""
    rows = Rows()
    for pid, seconds in enumerate((8.0, 8.5, 7.8)):
        rows.add(effective=OTHER, seconds=seconds, fresh=True, pid=pid, shares=VARIED)
    return rows


@pytest.mark.parametrize(("slower", "trusted"), [(1.05, True), (1 / 0.85, False)])
def test_which_prompts_were_sent_is_no_reason_to_differ(slower: float, trusted: bool) -> None:
    """15 % slower on every prompt alike, with a floor of 11 %: however unlike the prompts are, that is no noise."""
    trust = launched_three_times().add(seconds=8 * slower, shares=VARIED).add(fresh=True, shares=VARIED).judge()
    assert trust.trusted is trusted
    assert trust.checks[0].throughput_difference == pytest.approx(slower - 1)
    if not trusted:
        assert "differs by +17.6% on a fresh launch, beyond the +11" in trust.problems[0]


def test_prompts_that_scatter_between_the_two_are_a_reason() -> None:
    """Some prompts are twice as fast on the fresh server, others slower: it depends on which were sent."""
    scattered = [share * factor for share, factor in zip(VARIED, (2.0, 0.7, 1.8, 0.8, 2.2, 0.9, 1.5, 1.1), strict=True)]
    rows = launched_three_times().add(seconds=8 / 0.85, shares=scattered).add(fresh=True, shares=VARIED)
    assert rows.judge().trusted


def test_a_cell_that_stopped_early_is_compared_over_shared_prompts() -> None:
    """The fresh one was sent only the first six prompts, the faster ones; on these the two are equally fast."""
    shares = sorted(VARIED)
    rows = launched_three_times().add(shares=shares).add(fresh=True, shares=shares, prompts=6)
    early = rows.records[-1].cells[0]
    assert early.output_throughput is not None
    faster = replace(early, output_throughput=scaled(early.output_throughput, 1.7), stopped="narrow", prompts=8)
    rows.records[-1] = replace(rows.records[-1], cells=(faster,))
    (check,) = rows.judge().checks
    assert check.throughput_difference == pytest.approx(0.0)
    assert check.speed_problem is None


def test_one_process_is_no_repeat_of_itself() -> None:
    """A server that was switched back says nothing about how servers differ."""
    rows = Rows().add(effective=OTHER, seconds=8.0).add(effective=OTHER, seconds=8.01).add(effective=OTHER, seconds=7.9)
    trust = rows.add(seconds=9.5).add(fresh=True, role="check").judge()
    assert not trust.checks[0].noise_measured
    assert trust.trusted
    switched = Rows().add(effective=OTHER, pid=1).add(effective=OTHER, pid=2).add(effective=OTHER, fresh=True, pid=3)
    assert switched.add().add(fresh=True).judge().checks[0].noise_measured


def test_repeats_are_compared_over_shared_prompts() -> None:
    """A repeat that stopped early saw other prompts, here faster ones: that is no noise between launches."""
    rows = Rows().add(effective=OTHER, fresh=True, pid=1).add(effective=OTHER, fresh=True, pid=2, prompts=5)
    early = rows.records[1].cells[0]
    assert early.output_throughput is not None
    faster = replace(early, output_throughput=scaled(early.output_throughput, 4.0), stopped="narrow", prompts=8)
    rows.records[1] = replace(rows.records[1], cells=(faster,))
    problem = rows.add(seconds=12.0).add(fresh=True, role="check").judge().checks[0].speed_problem
    assert problem is not None
    assert "of measured noise" in problem


@pytest.mark.parametrize("fresh", [True, False])
def test_cells_that_are_not_ranked_are_not_judged_by(fresh: bool) -> None:
    """A server whose cache was warm is fast however it was started; the next one of its kind is compared instead."""
    rows = Rows().add().add(fresh=True, role="check")
    assert rows.add(seconds=3.0, warm=True, fresh=fresh).judge().trusted
    kinds = [fresh, fresh, not fresh]
    rows = Rows()
    for number, kind in enumerate(kinds):
        rows.add(seconds=3.0 if number == 0 else 8.0, warm=number == 0, fresh=kind, pid=number)
    (check,) = rows.judge().checks
    assert {check.switched_trial, check.fresh_trial} == {"t1", "t2"}
    assert check.throughput_difference == pytest.approx(0.0)
    only_warm = Rows().add(warm=True).add(fresh=True)
    assert only_warm.judge().checks == ()


GREEDY = "g" * 16


@pytest.mark.parametrize("fresh", [True, False])
def test_launches_on_two_workloads_measure_no_noise(fresh: bool) -> None:
    """A confirmation and a corner of one setting were sent other requests: they differ, and not because of noise."""
    rows = Rows().add(effective=OTHER, role="confirm", fresh=fresh, pid=1)
    rows.add(effective=OTHER, role="corner", fresh=fresh, pid=2, seconds=8.01, workload_id=GREEDY)
    (check,) = rows.add(seconds=9.5).add(fresh=True, role="check").judge().checks
    assert not check.noise_measured
    assert check.speed_problem is None


@pytest.mark.parametrize("corner_is_fresh", [True, False])
def test_a_corner_that_comes_first_does_not_take_the_check_away(corner_is_fresh: bool) -> None:
    rows = Rows().add(role="corner", fresh=corner_is_fresh, seconds=3.0, workload_id=GREEDY)
    (check,) = rows.add().add(fresh=True, role="check").judge().checks
    assert (check.switched_trial, check.fresh_trial) == ("t1", "t2")
    assert check.throughput_difference == pytest.approx(0.0)


def test_corners_are_compared_among_themselves_and_the_report_says_so() -> None:
    stale = [38, 37, 39, 38, 36, 38, 39, 37]
    rows = Rows().add().add(fresh=True, role="check")
    rows.add(role="corner", workload_id=GREEDY, steps=stale).add(role="corner", workload_id=GREEDY, fresh=True)
    trust = rows.judge()
    assert [(check.switched_trial, check.fresh_trial) for check in trust.checks] == [("t0", "t1"), ("t2", "t3")]
    assert not trust.trusted
    assert set(trust.sentences) <= set(rank(rows.records, Objective(), rows_of=rows.rows_of).findings)


def test_what_is_not_compared() -> None:
    assert Rows().add().add().judge().checks == ()
    assert Rows().add(fresh=True).add(fresh=True, role="confirm").judge().checks == ()
    assert Rows().add().add(fresh=True, role="check", effective=config(5, 1)).judge().sentences == ()
