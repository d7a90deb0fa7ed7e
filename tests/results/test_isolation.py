"""Verdicts of isolations with planted causes, alone and together; what is missing or illegal is said, not guessed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted_corners import OTHER, PROMPTS, TRAINED, case, probed, rows_of, server, trial

from results.cell_acceptance import acceptance_pairs
from results.corners import MeasuredCorner, corner_configs, differing_groups, measured_corner, repeat_noise
from results.isolation import conclude
from results.isolation_report import isolation_json, sentences
from results.isolation_rows import offline_row
from results.probed_feed import TrainedOn
from search_spaces.config import EngineConfig

SHORT = (1, 1, 2)


def measured(*prompts: int | None) -> MeasuredCorner:
    """One server measured once for each number: on its first prompts only, or on all (None)."""
    made, tables = [], {}
    for number, first in enumerate(prompts):
        record, rows = trial(server(), f"t{number}-a1")
        stopped = None if first is None else f"dominated after {first} prompts"
        made.append(replace(record, cells=(replace(record.cells[0], stopped=stopped),)))
        tables[record.trial_id] = {(1, None): rows[:first]}
    return measured_corner(server(), made, tables.__getitem__, workload_id="w" * 16, concurrency=1)


def verdicts(suspect: EngineConfig, reference: EngineConfig, **options: object) -> dict[str, str]:
    explanation = conclude(case(suspect, reference, **options)).explanation  # type: ignore[arg-type]
    return {verdict.cause: verdict.verdict for verdict in explanation.verdicts}


@pytest.mark.parametrize(
    ("suspect", "fault", "causes"),
    [
        (server(TRAINED, SHORT, tp=2), 1.0, {"config"}),
        (server(OTHER, tp=2), 1.0, {"layout"}),
        (server(TRAINED, tp=2), 0.4, {"parallelism"}),
        (server(OTHER, SHORT, tp=2), 1.0, {"config", "layout"}),
        (server(OTHER, tp=2), 0.4, {"layout", "parallelism"}),
        (server(TRAINED, tp=2), 1.0, set()),
    ],
)
def test_planted_causes_are_named_and_nothing_else(suspect: EngineConfig, fault: float, causes: set[str]) -> None:
    found = conclude(case(suspect, server(), fault=fault))
    explanation, attribution = found.explanation, found.attribution
    assert attribution is not None
    for verdict in explanation.verdicts:
        assert verdict.verdict == ("yes" if verdict.cause in causes else "no"), verdict
        assert (verdict.next != "") == (verdict.cause in causes)
    shares = [verdict.share or 0.0 for verdict in explanation.verdicts]
    assert sum(shares) == pytest.approx(attribution.gap.value, abs=1e-5)
    assert explanation.gap is not None
    # the same prompts at tp 1 and 2: equivalence is shown by pairs, and only a fault breaks it
    assert {pair["changes"] for pair in explanation.gap["parallelism"]} == ({"no"} if fault == 1.0 else {"yes"})
    told = " ".join(sentences(found))
    assert ("Cause:" in told) == bool(causes)
    assert ("equivalent within 2%" in told) == (fault == 1.0)


def test_a_flag_that_one_corner_has_is_known_not_to_be_set_in_the_others() -> None:
    """Whoever made the corners knows it; of rows from elsewhere that leave a flag out nobody does."""
    fp8 = replace(server(OTHER), flags=(("kv_cache_dtype", "fp8_e5m2"),))
    explanation = conclude(case(fp8, server())).explanation
    assert explanation.gap is not None
    assert (explanation.gap["differing"], explanation.gap["unsure"]) == (["config", "layout"], [])
    assert explanation.cause("layout").verdict == "yes"


def test_simulated_acceptance_is_no_evidence_for_any_cause() -> None:
    planted = case(server(OTHER, tp=2), server(TRAINED))
    told = "SGLANG_SIMULATE_ACC_LEN=2.4"
    corners = {
        corner: replace(
            measured,
            records=tuple(
                replace(record, launch=None if record.launch is None else replace(record.launch, simulated=told))
                for record in measured.records
            ),
        )
        for corner, measured in planted.corners.items()
    }
    explanation = conclude(replace(planted, corners=corners)).explanation
    kind = explanation.kind("simulated")
    assert kind is not None
    assert kind.verdict == "yes"
    assert conclude(planted).explanation.kind("simulated") is None


def test_only_groups_that_differ_make_corners() -> None:
    suspect, reference = server(OTHER, SHORT), server()
    assert differing_groups(suspect, reference) == ("config", "layout")
    configs = corner_configs(suspect, reference)
    assert len(configs) == 4
    assert configs[frozenset({"layout"})] == server(TRAINED, SHORT)
    assert configs[frozenset({"config"})] == server(OTHER)


@given(st.lists(st.one_of(st.none(), st.integers(5, PROMPTS - 1)), min_size=1, max_size=3))
@settings(max_examples=12, deadline=None)
def test_however_often_and_however_far_equal_servers_are_measured_they_are_equal(prompts: list[int | None]) -> None:
    """A prompt weighs the same whether one trial measured it or three, and repeats differ over shared prompts alone."""
    corner = measured(*prompts)
    most = max(PROMPTS if first is None else first for first in prompts)
    once = acceptance_pairs(rows_of(server())[:most], server().triple)
    assert corner.pairs == {prompt: pytest.approx(pair) for prompt, pair in once.items()}
    assert repeat_noise([corner]) == 0.0
    assert corner.stopped == ("" if None in prompts else f"dominated after {prompts[0]} prompts")


def test_repeats_that_differ_are_noise() -> None:
    corner = measured(None, None)
    first = corner.repeats[0]
    other = {prompt: (tokens * 1.1, steps) for prompt, (tokens, steps) in first.items() if prompt != "p0"}
    assert repeat_noise([replace(corner, repeats=(first, other))]) == pytest.approx(0.1 / 1.05)
    assert repeat_noise([replace(corner, repeats=(first, {"another": (1.0, 1.0)}))]) == 0.0


def test_what_ended_early_is_to_be_measured_in_full_before_more_prompts_are_asked_for() -> None:
    suspect = server(OTHER)
    made = case(suspect, server(tp=2), fault=0.98)
    corners = {
        corner: replace(it, pairs=dict(list(it.pairs.items())[:6]), stopped="dominated after 6 prompts")
        for corner, it in made.corners.items()
    }
    open_ones = [v for v in conclude(replace(made, corners=corners)).explanation.verdicts if v.verdict == "undecided"]
    assert open_ones
    assert "layout 2,4,5 at (5,1,6), tp 1 on every prompt (dominated after 6 prompts)" in open_ones[0].next


def test_flags_of_parallelism_are_parallelism_and_other_flags_config() -> None:
    suspect = EngineConfig(
        layout=OTHER,
        triple=server().triple,
        tp_size=8,
        flags=(("attention_backend", "fa3"), ("dp_size", 4), ("enable_dp_attention", True)),
    )
    configs = corner_configs(suspect, server())
    assert len(configs) == 8
    assert configs[frozenset({"parallelism"})].flags == (("attention_backend", "fa3"),)
    assert configs[frozenset({"config"})].flags == (("dp_size", 4), ("enable_dp_attention", True))


def test_a_corner_that_cannot_run_leaves_only_verdicts_that_hold_whatever_it_would_give() -> None:
    suspect = server(OTHER, SHORT)
    # with config from the reference unmeasured, its accept length may be anything between 1 and 6
    found = conclude(case(suspect, server(), without=[frozenset({"config"})]))
    assert found.attribution is not None
    layout, config = found.attribution.shares["layout"], found.attribution.shares["config"]
    assert layout.high - layout.low > 2
    assert layout.value + config.value == pytest.approx(found.attribution.gap.value)
    by_cause = {verdict.cause: verdict for verdict in found.explanation.verdicts}
    # the ceiling costs about 2.3 beside the right layout: too much for any value of that corner to make up for
    assert by_cause["config"].verdict == "yes"
    assert by_cause["layout"].verdict == "undecided"
    assert "illegal: a rule says so" in by_cause["layout"].next
    true = conclude(case(suspect, server()))
    assert true.attribution is not None
    for group in ("config", "layout"):
        share = found.attribution.shares[group]  # type: ignore[index]
        assert share.low <= true.attribution.shares[group].value <= share.high  # type: ignore[index]


def test_where_tp_1_cannot_be_had_the_rest_is_still_split() -> None:
    suspect, chosen = server(OTHER, SHORT, tp=2), server(tp=2)
    alone = [c for c in corner_configs(suspect, server()) if "parallelism" in c]
    found = conclude(case(suspect, server(), chosen=chosen, without=alone))
    by_cause = {verdict.cause: verdict.verdict for verdict in found.explanation.verdicts}
    assert by_cause == {"config": "yes", "layout": "yes", "parallelism": "undecided"}
    assert found.explanation.gap is not None
    assert found.explanation.gap["reference"]["label"] == "layout 0,3,7 at (5,1,6), tp 2"


def test_without_an_end_nothing_is_claimed() -> None:
    found = conclude(case(server(OTHER), server(), without=[frozenset({"layout"})]))
    assert found.attribution is None
    layout = found.explanation.cause("layout")
    assert (layout.verdict, layout.share) == ("undecided", None)
    assert "not measured: layout 0,3,7 at (5,1,6), tp 1" in layout.evidence
    assert "could not be split" in sentences(found)[0]


def test_a_better_suspect_is_not_accused() -> None:
    assert verdicts(server(), server(OTHER)) == {"config": "no", "layout": "no", "parallelism": "no"}
    found = conclude(case(server(), server(OTHER)))
    assert "the suspect's is the better one" in found.explanation.cause("layout").evidence


def test_a_fault_that_the_probe_saw_is_a_cause_whatever_the_shares_say() -> None:
    suspect = server(TRAINED, tp=2)
    feeds = (probed(server()), probed(suspect, "partial", equal=False))
    found = conclude(case(suspect, server(), feeds=feeds))
    verdict = found.explanation.cause("parallelism")
    assert verdict.verdict == "yes"
    assert "captured before the all-reduce" in verdict.evidence
    assert verdict.next.startswith("serve at tp 1")


@pytest.mark.parametrize(("source", "word"), [("given", "the draft was trained"), ("inferred", "presumably trained")])
def test_the_probe_names_the_wrong_slot_and_says_how_the_training_is_known(source: str, word: str) -> None:
    made = case(server(OTHER), server(), feeds=(probed(server(OTHER)),))
    found = conclude(replace(made, trained=TrainedOn(taps=TRAINED, source=source)))  # type: ignore[arg-type]
    evidence = found.explanation.cause("layout").evidence
    assert "slot 1 holds tap 2" in evidence
    assert word in evidence
    told = " ".join(sentences(found))
    assert "the draft is fed taps [2, 4, 5] (probed)" in told
    assert ("presumably trained on [0, 3, 7]" in told) == (source == "inferred")


def test_json_is_the_documented_object() -> None:
    found = conclude(case(server(OTHER, tp=2), server(), feeds=(probed(server(OTHER, tp=2)),)))
    content = json.loads(json.dumps(isolation_json(found), allow_nan=False))
    assert content["schema"] == 1
    assert [row["cause"] for row in content["verdicts"]] == ["config", "layout", "parallelism"]
    assert set(content["verdicts"][0]) == {"cause", "verdict", "share", "interval", "evidence", "next"}
    assert [len(row["from_reference"]) for row in content["corners"]] == [0, 1, 1, 2]
    assert content["gap"]["missing_corners"] == []
    assert {"value", "interval", "margin", "interactions", "parallelism"} <= set(content["gap"])
    assert len(content["probes"][0]["slots"]) == 6


def test_a_ceiling_that_both_ends_share_is_said_but_is_no_cause_of_their_gap() -> None:
    found = conclude(case(server(TRAINED, SHORT, tp=2), server(TRAINED, SHORT), fault=0.4))
    config = found.explanation.cause("config")
    assert (config.verdict, config.share) == ("no", 0.0)
    assert "config-limited: ceiling 2" in config.evidence
    assert found.explanation.cause("parallelism").verdict == "yes"


def test_offline_numbers_put_the_loss_on_its_rung() -> None:
    rows = (offline_row([0.85**step for step in range(1, 6)]),)
    made = replace(case(server(TRAINED, tp=2), server(TRAINED), fault=0.4), more_rows=rows)
    gap = conclude(made).explanation.gap
    assert gap is not None
    assert [rung["rung"] for rung in gap["ladder"]] == ["offline", "tp 1", "tp 2"]
    lost = [rung["lost"] for rung in gap["ladder"]]
    assert lost[0] == 0.0
    assert abs(lost[1]) < 0.2
    assert lost[2] > 1.5
