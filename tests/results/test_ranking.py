"""Ranking: order, ties towards the cheaper, speedups over the right baseline, and honest refusals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from result_builders import closed_loop, config, launch, record, summary

from results.failures import Failure
from results.objective import Objective
from results.ranking import rank
from results.report_sentences import caveats
from search_spaces.config import EngineConfig

HOUR = 3600.0
START = 1_800_000_000.0
RIGHT, WRONG = (0, 3, 7), (2, 4, 5)


def trial(trial_id: str, effective: EngineConfig, throughput: float, length: float | None = 2.5, **changes):
    return record(trial_id, effective, cells=[summary(throughput=throughput, accept_length=length)], **changes)


def baseline(trial_id: str, throughput: float, tp: int = 1, **changes):
    return trial(trial_id, config(None, None, tp), throughput, None, role="baseline", **changes)


def study():
    return [
        baseline("b1", 100.0),
        baseline("b2", 60.0, tp=2),
        trial("t1", config(RIGHT, (5, 1, 6)), 180.0, 3.4),
        trial("t2", config(WRONG, (5, 1, 6)), 90.0, 1.6, layout="shipped", role="suspect"),
        trial("t3", config(RIGHT, (5, 1, 6), 2), 90.0, 3.4),
        record("t4", config(RIGHT, (5, 8, 64)), failure=Failure(phase="launch", kind="oom", message="out of memory")),
    ]


def test_settings_come_in_order_with_speedups_over_their_own_tp() -> None:
    ranking = rank(study(), Objective())
    assert [one.setting.trial_ids[0] for one in ranking.settings] == ["t1", "t2", "t3", "t4"]
    best = ranking.best
    assert best is not None
    assert best.setting.trial_ids == ("t1",)
    speedups = {one.setting.trial_ids[0]: one.loads[0].speedup for one in ranking.settings}
    assert speedups["t1"].value == pytest.approx(1.8)
    assert speedups["t3"].value == pytest.approx(1.5)
    assert speedups["t4"] is None
    assert ranking.settings[2].loads[0].over_best_baseline == pytest.approx(0.9)
    assert speedups["t1"].low < 1.8 < speedups["t1"].high
    assert [one.setting.trial_ids[0] for one in ranking.baselines] == ["b1", "b2"]


def test_standing_against_the_best() -> None:
    ranking = rank(study(), Objective())
    standings = [one.against_best.standing if one.against_best else None for one in ranking.settings]
    assert standings == ["best", "worse", "worse", None]
    assert ranking.settings[1].against_best.behind == pytest.approx(0.5)
    assert ranking.settings[3].status == "failed"
    assert ranking.settings[3].reasons == ("out of memory",)


def test_a_failed_trial_is_not_a_zero_and_does_not_become_the_best() -> None:
    failed = record("t1", failure=Failure(phase="launch", kind="oom", message="out of memory"))
    ranking = rank([failed], Objective())
    assert ranking.best is None
    assert ranking.choice is None
    assert ranking.settings[0].value is None


def test_ties_are_broken_towards_the_cheaper_setting() -> None:
    wide = trial("t1", config(RIGHT, (5, 4, 16)), 181.0)
    narrow = trial("t2", config(RIGHT, (5, 1, 6)), 180.0)
    dear = trial("t3", config(RIGHT, (5, 1, 6), 2), 180.5)
    slow = trial("t4", config(RIGHT, (1, 1, 2)), 90.0)
    ranking = rank([wide, narrow, dear, slow], Objective())
    assert ranking.best.setting.trial_ids == ("t1",)
    assert {one.setting.trial_ids[0] for one in ranking.ties} == {"t2", "t3"}
    assert ranking.choice.setting.trial_ids == ("t2",)


def test_wide_intervals_cannot_be_told_apart_and_do_not_move_the_choice() -> None:
    def vague(trial_id: str, triple: tuple[int, int, int], throughput: float):
        made = trial(trial_id, config(RIGHT, triple), throughput)
        estimate = made.cells[0].output_throughput
        wide = replace(estimate, low=throughput * 0.8, high=throughput * 1.2)
        return replace(made, cells=(replace(made.cells[0], output_throughput=wide),))

    ranking = rank([vague("t1", (5, 4, 16), 110.0), vague("t2", (3, 1, 4), 100.0)], Objective())
    assert [one.setting.trial_ids[0] for one in ranking.untold] == ["t2"]
    assert ranking.choice.setting.trial_ids == ("t1",)


def test_repeats_of_one_configuration_are_one_row_and_give_the_noise_floor() -> None:
    twice = [trial("t1", config(RIGHT), 100.0), trial("t2", config(RIGHT), 104.0, layout="default")]
    ranking = rank(twice, Objective())
    assert len(ranking.settings) == 1
    row_ = ranking.settings[0]
    assert row_.launches == 2
    assert row_.value.value == pytest.approx(102.0)
    assert row_.setting.labels == ("0,3,7", "default")
    assert ranking.noise.repeats == 1
    assert ranking.row_of("t2") is row_


def test_an_announced_winner_is_its_confirmation_not_its_lucky_first_value() -> None:
    lucky = [
        trial("t1", config(RIGHT), 150.0),
        trial("c1", config(RIGHT), 120.0, role="confirm"),
        trial("c2", config(RIGHT), 122.0, role="confirm"),
    ]
    best = rank(lucky, Objective()).best
    assert best.confirmed
    assert best.value.value == pytest.approx(121.0)
    assert best.loads[0].throughput.value == pytest.approx(121.0)
    assert best.launches == 3


def test_cells_that_may_not_be_ranked_say_why_and_stay_in_the_table() -> None:
    warm = record(
        "t1", config(RIGHT), cells=[summary(throughput=1860.0, not_ranked=("warm cache: 90% of the prompt tokens",))]
    )
    cold = trial("t2", config(WRONG), 1000.0)
    ranking = rank([warm, cold], Objective())
    assert ranking.best.setting.trial_ids == ("t2",)
    assert ranking.settings[1].status == "not ranked"
    assert ranking.settings[1].reasons == ("warm cache: 90% of the prompt tokens",)
    assert ranking.settings[1].loads[0].throughput is None


def test_another_request_limit_than_the_baselines_is_unfair() -> None:
    capped = replace(
        record("t1", config(RIGHT), cells=[summary(throughput=200.0, concurrency=64)]),
        launch=launch(effective_args={"max_running_requests": 48}),
    )
    free = replace(
        record(
            "b1",
            config(None, None),
            cells=[summary(throughput=150.0, accept_length=None, concurrency=64)],
            role="baseline",
        ),
        launch=launch(effective_args={"max_running_requests": 4096}),
    )
    numbers = rank([capped, free], Objective()).settings[0].loads[0]
    assert numbers.speedup.value == pytest.approx(4 / 3)
    assert "at most 48 requests at once with speculation, 4096 without it" in numbers.unfair[0]
    same = replace(free, launch=launch(effective_args={"max_running_requests": 48}))
    assert rank([capped, same], Objective()).settings[0].loads[0].unfair == ()


def test_the_baseline_with_the_same_flags_is_the_one_compared_with() -> None:
    flags = (("page_size", 64),)
    plain, flagged = config(None, None), EngineConfig(layout=None, triple=None, tp_size=1, flags=flags)
    speculative = replace(config(RIGHT), flags=flags)
    records = [
        trial("b1", plain, 100.0, None, role="baseline"),
        trial("b2", flagged, 80.0, None, role="baseline"),
        trial("t1", speculative, 160.0),
    ]
    assert rank(records, Objective()).settings[0].loads[0].speedup.value == pytest.approx(2.0)


def test_a_significant_drift_corrects_values_and_says_so() -> None:
    records = [
        baseline("b1", 100.0, at_s=START),
        baseline("b2", 90.0, at_s=START + HOUR),
        baseline("b3", 81.0, at_s=START + 2 * HOUR),
        trial("t1", config(RIGHT, (5, 1, 6)), 200.0, at_s=START),
        trial("t2", config(RIGHT, (3, 1, 4)), 175.0, at_s=START + 2 * HOUR),
    ]
    ranking = rank(records, Objective())
    assert ranking.drift is not None
    assert ranking.drift.significant
    assert ranking.drift.change.value == pytest.approx(-0.19, abs=0.01)
    # 175 at the slow end of the study is worth more than 200 at its fast beginning.
    assert ranking.best.setting.trial_ids == ("t2",)
    late, early = ranking.settings
    for row_ in (late, early):
        assert row_.loads[0].throughput == row_.value
    # each stands against the baseline of its own time, not against the mean of fast and slow hours
    assert early.loads[0].speedup.value == pytest.approx(200 / 100, rel=0.01)
    assert late.loads[0].speedup.value == pytest.approx(175 / 81, rel=0.01)
    assert late.loads[0].over_best_baseline == pytest.approx(late.loads[0].speedup.value)


def test_a_trial_of_another_day_is_corrected_as_at_the_last_baseline_and_told() -> None:
    records = [
        baseline("b1", 100.0, at_s=START),
        baseline("b2", 90.0, at_s=START + HOUR),
        baseline("b3", 81.0, at_s=START + 2 * HOUR),
        trial("t1", config(RIGHT, (5, 1, 6)), 180.0, at_s=START + HOUR),
        trial("t2", config(RIGHT, (3, 1, 4)), 81.0, at_s=START + 24 * HOUR),
    ]
    ranking = rank(records, Objective())
    assert ranking.best.setting.trial_ids == ("t1",)
    resumed = ranking.row_of("t2")
    assert resumed.value.value == pytest.approx(90.0, rel=0.01)
    assert resumed.loads[0].speedup.value == pytest.approx(1.0, rel=0.01)
    told = "1 of 5 launches lies before or after these and may have drifted further."
    assert sum(words.endswith(told) for words in caveats(ranking)) == 1
    within = rank(records[:4], Objective())
    assert not any("before or after" in words for words in caveats(within))
    latency = rank(records, Objective(metric="accept_length"))
    assert sum(words.endswith(told) for words in caveats(latency)) == 1


def test_throughput_is_corrected_for_its_own_drift_whatever_the_objective_is() -> None:
    records = [
        baseline("b1", 100.0, at_s=START),
        baseline("b2", 90.0, at_s=START + HOUR),
        baseline("b3", 81.0, at_s=START + 2 * HOUR),
        trial("t1", config(RIGHT), 162.0, at_s=START + 2 * HOUR),
    ]
    ranking = rank(records, Objective(metric="accept_length"))
    assert ranking.drift is None
    assert ranking.best.value.value == 2.5
    numbers = ranking.best.loads[0]
    assert numbers.throughput.value == pytest.approx(180.0, rel=0.01)
    assert numbers.speedup.value == pytest.approx(2.0, rel=0.01)
    assert any("output throughput at concurrency 1: baselines changed by -19" in words for words in caveats(ranking))
    assert not any("not tested" in words for words in caveats(ranking))
    assert rank(records, Objective()).other_drifts == ()


@pytest.mark.parametrize("metric", ["accept_length", "ttft_ms_p99"])
def test_the_interval_of_a_speedup_is_the_same_whatever_the_objective_is(metric: str) -> None:
    """A draft accepts the same in every launch; its speed, and the time to a first token, vary."""
    records = [baseline("b1", 100.0)]
    for trial_id, throughput, ttft_ms in (("t1", 105.0, 10.0), ("t2", 120.0, 40.0)):
        made = trial(trial_id, config(RIGHT), throughput)
        records.append(replace(made, cells=(replace(made.cells[0], ttft_ms_p99=ttft_ms),)))
    right = rank(records, Objective()).best.loads[0].speedup
    other = rank(records, Objective(metric=metric)).best.loads[0].speedup
    assert (other.low, other.high) == pytest.approx((right.low, right.high))
    assert right.low < 1 < right.high


def test_a_latency_objective_ranks_upwards() -> None:
    cells = [replace(summary(), tpot_ms_p50=value) for value in (9.0, 7.0)]
    records = [record("t1", config(RIGHT), cells=cells[:1]), record("t2", config(WRONG), cells=cells[1:])]
    ranking = rank(records, Objective(metric="tpot_ms_p50"))
    assert ranking.best.setting.trial_ids == ("t2",)
    assert ranking.settings[1].against_best.behind == pytest.approx(1 - 7 / 9)
    assert ranking.best.warnings == ("median time per output token (ms) of 1 requests has no interval",)


def test_one_accept_length_for_every_layout_is_simulated() -> None:
    layouts = [(0, 3, 7), (2, 4, 5), (1, 2, 3)]
    same = [trial(f"t{i}", config(layout), 100.0, 3.24) for i, layout in enumerate(layouts)]
    real = [trial(f"t{i}", config(layout), 100.0, 3.24 - i * 0.5) for i, layout in enumerate(layouts)]
    assert "simulated acceptance is probably on" in rank(same, Objective()).findings[0]
    assert rank(real, Objective()).findings == ()


def test_rows_pair_the_intervals_and_show_differing_outputs() -> None:
    def rows(factor: float, ids: tuple[int, ...] = (1, 2, 3)):
        base = closed_loop([0.5 + 0.05 * (i % 7) for i in range(30)], 1)
        return [
            replace(one, finished_s=one.sent_s + (one.finished_s - one.sent_s) * factor, output_ids=ids) for one in base
        ]

    tables = {
        "b1": {(1, None): rows(1.0)},
        "t1": {(1, None): rows(0.5)},
        "t2": {(1, None): rows(0.55, (1, 9, 3))},
    }
    vague = {"low": 100.0, "high": 300.0}
    records = []
    for trial_id, throughput, effective in (("t1", 200.0, config(RIGHT)), ("t2", 181.8, config(WRONG))):
        made = trial(trial_id, effective, throughput)
        estimate = replace(made.cells[0].output_throughput, **vague)
        records.append(replace(made, cells=(replace(made.cells[0], output_throughput=estimate),)))
    records.append(baseline("b1", 100.0))
    alone = rank(records, Objective())
    paired = rank(records, Objective(), rows_of=tables.__getitem__)
    assert alone.settings[1].against_best.standing == "cannot tell"
    assert paired.settings[1].against_best.standing == "worse"
    assert paired.findings == (
        "trial t2: 30 of 30 outputs differ, from token 1 on at the earliest (median 1) from the baseline's",
        "the outputs of the other setting that could be compared are the baseline's",
    )
    identities = {row.setting.trial_ids[0]: row.loads[0].outputs for row in paired.settings}
    assert (identities["t1"].identical_share, identities["t1"].first_divergence) == (1.0, None)
    assert (identities["t2"].identical_share, identities["t2"].first_divergence) == (0.0, 1)
    assert paired.baselines[0].loads[0].outputs is None
    equal = rank([one for one in records if one.trial_id != "t2"], Objective(), rows_of=tables.__getitem__)
    assert equal.findings == (
        "the outputs of the one setting that could be compared are the baseline's, token by token",
    )
    assert rank(records, Objective(), rows_of=tables.__getitem__, greedy=False).findings == ()


def prompts_half_width(launches: int, interaction: float) -> float:
    """Half-width over prompts between two settings of 40 prompts: each request's time varies by 10 % by chance, and
    one setting suits each prompt better or worse by `interaction`."""
    suits = np.random.default_rng(999).normal(1, interaction, 40)

    def rows(factor: np.ndarray, seed: int):
        chance = np.random.default_rng(seed).normal(1, 0.1, 40)
        return {(1, None): closed_loop(((1 + 0.1 * (np.arange(40) % 5)) * factor * chance).tolist(), 1)}

    names = [(f"t{i}", RIGHT, np.ones(40), i) for i in range(launches)]
    names += [(f"u{i}", WRONG, 1.2 * suits, 100 + i) for i in range(launches)]
    tables = {name: rows(factor, seed) for name, _, factor, seed in names}
    records = [trial(name, config(layout), 100 / factor.mean()) for name, layout, factor, _ in names]
    ranking = rank(records, Objective(), rows_of=tables.__getitem__)
    between = ranking.noise.half_width(launches, launches)
    return math.sqrt(max(0.0, ranking.settings[1].against_best.half_width ** 2 - between**2))


def test_what_chance_adds_to_single_requests_is_not_counted_twice() -> None:
    # it is in the difference between launches; with one launch of each nobody knows how much it is
    assert prompts_half_width(1, 0.0) == pytest.approx(1.96 * 0.1 * math.sqrt(2 / 40), rel=0.35)
    assert prompts_half_width(4, 0.0) < 0.012


def test_what_other_prompts_would_change_stays_however_many_launches() -> None:
    for launches in (3, 8):
        assert prompts_half_width(launches, 0.15) == pytest.approx(1.96 * 0.15 / math.sqrt(40), rel=0.4)


def test_cells_of_another_workload_are_not_compared() -> None:
    other = record("t3", config(WRONG), cells=[summary(throughput=900.0, workload_id="x" * 16)])
    ranking = rank([trial("t1", config(RIGHT), 100.0), trial("t2", config(RIGHT, (3, 1, 4)), 90.0), other], Objective())
    assert ranking.best.setting.trial_ids == ("t1",)
    assert "another workload" in ranking.row_of("t3").reasons[0]


def test_corners_of_an_isolation_do_not_decide_the_workload_however_many_they_are() -> None:
    def corner(trial_id: str, throughput: float):
        cells = [summary(throughput=throughput, workload_id="x" * 16)]
        return record(trial_id, config(WRONG), cells=cells, role="corner")

    corners = [corner(f"c{number}", 900.0) for number in range(5)]
    ranking = rank([baseline("b1", 50.0), trial("t1", config(RIGHT), 100.0), *corners], Objective())
    assert ranking.best.setting.trial_ids == ("t1",)
    assert ranking.best.loads[0].speedup.value == pytest.approx(2.0)
    assert "another workload" in ranking.row_of("c0").reasons[0]
    assert rank(corners, Objective()).best.setting.trial_ids[0] == "c0"


def test_nothing_measured_is_an_empty_ranking() -> None:
    ranking = rank([], Objective())
    assert (ranking.settings, ranking.baselines, ranking.best, ranking.drift) == ((), (), None, None)
