"""Verify steps beside those of a trace: which requests took others, and whether their text is another one."""

from __future__ import annotations

from dataclasses import replace

from result_builders import config, record, row

from results.predicted_rounds import RoundsCheck, check_rounds, rounds_sentences
from results.round_disagreements import MAX_LISTED, Disagreement
from results.summary import Estimate
from results.surface import SurfacePoint
from search_spaces.config import Triple

TRIPLE = Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6)
TEXT = tuple(range(100, 120))
PROMPTS = tuple(f"p{i:02}" for i in range(14))
POINT = SurfacePoint(
    layout=(0, 3, 7),
    tp_size=1,
    triple=TRIPLE,
    accept_length=Estimate(value=4.0, low=3.0, high=5.0, count=14),
    acceptance_by_position=(),
    histogram=(),
    rounds=70,
    method="replay",
    prompt_ids=PROMPTS,
    rounds_by_prompt=(5,) * 14,
    tokens_by_prompt=(20,) * 14,
    texts=(TEXT,) * 14,
)


def check(steps: dict[str, int], texts: dict[str, tuple[int, ...]]) -> RoundsCheck:
    """One cell in which prompts took 5 verify steps and gave the traced text, but for those named."""
    rows = [
        row(prompt_id=name, completion_tokens=20, verify_steps=steps.get(name, 5), output_ids=texts.get(name, TEXT))
        for name in PROMPTS
    ]
    assert config().triple == TRIPLE
    (found,) = check_rounds(record("t0001-a1"), {(8, None): rows}, {((0, 3, 7), TRIPLE): POINT})
    return found


def test_requests_that_disagree_are_listed_with_the_position_at_which_their_text_parts() -> None:
    parted = (*TEXT[:12], 7, *TEXT[13:])
    found = check({"p03": 6, "p05": 8, "p09": 4}, {"p05": parted, "p09": (), "p01": parted})
    assert (found.prompts, found.equal_prompts, found.predicted, found.measured) == (14, 11, 70, 73)
    assert found.disagreements == (
        Disagreement(prompt_id="p05", predicted=5, measured=8, text="other", first_difference=12),
        Disagreement(prompt_id="p03", predicted=5, measured=6, text="same", first_difference=None),
        Disagreement(prompt_id="p09", predicted=5, measured=4, text="unknown", first_difference=None),
    )
    assert found.to_json()["disagreements"][0] == {
        "prompt_id": "p05",
        "predicted": 5,
        "measured": 8,
        "text": "other",
        "first_difference": 12,
    }
    assert rounds_sentences([found.to_json()])[1] == (
        "search by surface: 3 requests took other verify steps than the traces say; of them 1 gave the traced text and "
        "1 another one; the furthest off is prompt p05 in trial t0001-a1 at concurrency 8 (5 predicted, 8 measured, "
        "another text from position 12 on)"
    )


def test_the_list_is_bounded_and_says_so() -> None:
    found = check({name: 6 + (name == "p13") for name in PROMPTS}, {})
    assert len(found.disagreements) == MAX_LISTED
    assert found.disagreements[0].prompt_id == "p13"
    _, sentence = rounds_sentences([found.to_json()])
    assert "14 requests took other verify steps than the traces say; of the 10 in search.json 10 gave" in sentence
    assert "(5 predicted, 7 measured, the same text)" in sentence


def test_a_trial_with_other_flags_than_the_trace_is_not_held_against_it() -> None:
    """Those of parallelism do not count: what they change is to be found out."""
    rows = {(8, None): [row(prompt_id="p00", completion_tokens=20, verify_steps=5, output_ids=TEXT)]}
    points = {((0, 3, 7), TRIPLE): POINT}
    fp8, ep = (("kv_cache_dtype", "fp8_e5m2"),), (("ep_size", 8),)
    trial = record("t0001-a1")
    assert check_rounds(replace(trial, effective=replace(trial.effective, flags=fp8)), rows, points) == ()
    assert len(check_rounds(replace(trial, effective=replace(trial.effective, flags=ep)), rows, points)) == 1


def test_nothing_more_is_said_where_all_agree_and_of_notes_without_a_list() -> None:
    found = check({}, {"p01": (1, 2)})
    assert found.disagreements == ()
    assert len(rounds_sentences([found.to_json()])) == 1
    before = {key: value for key, value in check({"p03": 6}, {}).to_json().items() if key != "disagreements"}
    assert len(rounds_sentences([before])) == 1
