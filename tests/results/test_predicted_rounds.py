"""Verify steps beside those of a trace: which requests took others, and whether their text is another one."""

from __future__ import annotations

from dataclasses import replace

from result_builders import config, record, row

from results.predicted_rounds import RoundsCheck, check_rounds, rounds_sentences
from results.request_table import CellKey
from results.round_disagreements import MAX_LISTED, Disagreement, OtherLength
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


def check(
    steps: dict[str, int], texts: dict[str, tuple[int, ...]], load: CellKey = (8, None), point: SurfacePoint = POINT
) -> RoundsCheck:
    """One cell in which prompts took 5 verify steps and gave the traced text, but for those named."""
    answers = {name: texts.get(name, TEXT) for name in PROMPTS}
    rows = [
        row(prompt_id=name, completion_tokens=len(text) or 20, verify_steps=steps.get(name, 5), output_ids=text)
        for name, text in answers.items()
    ]
    assert config().triple == TRIPLE
    (found,) = check_rounds(record("t0001-a1"), {load: rows}, {((0, 3, 7), TRIPLE): point})
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
    found = check({}, {})
    assert found.disagreements == ()
    assert len(rounds_sentences([found.to_json()])) == 1
    later = ("disagreements", "other_length", "other_lengths")
    before = {key: value for key, value in check({"p03": 6}, {}).to_json().items() if key not in later}
    assert len(rounds_sentences([before])) == 1


def test_answers_of_another_length_are_counted_with_the_position_at_which_they_part() -> None:
    early, longer = (*TEXT[:8], 7, 8), (*TEXT, 7)
    found = check({"p03": 3, "p07": 6}, {"p03": early, "p05": TEXT[:15], "p09": longer})
    assert (found.prompts, found.equal_prompts, found.other_length) == (11, 10, 3)
    assert (found.predicted, found.measured) == (55, 56)
    assert found.other_lengths == (
        OtherLength(prompt_id="p03", traced=20, tokens=10, first_difference=8),
        OtherLength(prompt_id="p05", traced=20, tokens=15, first_difference=15),
        OtherLength(prompt_id="p09", traced=20, tokens=21, first_difference=20),
    )
    content = found.to_json()
    assert content["other_length"] == 3
    assert content["other_lengths"][0] == {"prompt_id": "p03", "traced": 20, "tokens": 10, "first_difference": 8}
    accuracy, _, lengths = rounds_sentences([content])
    assert accuracy.startswith("search by surface: 10 of 11 requests took exactly the verify steps that the traces say")
    assert lengths == (
        "search by surface: 3 answers had another length than the traced ones, so the traces do not say their verify "
        "steps; the first to part is prompt p03 in trial t0001-a1 at concurrency 8 (20 tokens traced, 10 measured, "
        "another text from position 8 on)"
    )


def test_a_load_whose_answers_all_have_another_length_is_told_and_not_called_off() -> None:
    found = check({}, dict.fromkeys(PROMPTS, TEXT[:-1]), point=replace(POINT, texts=()))
    assert (found.prompts, found.other_length, found.is_off) == (0, 14, False)
    assert len(found.other_lengths) == MAX_LISTED
    (sentence,) = rounds_sentences([found.to_json()])
    assert sentence == (
        "search by surface: 14 answers had another length than the traced ones, so the traces do not say their verify "
        "steps"
    )
    both = rounds_sentences([found.to_json(), check({}, {}).to_json()])
    assert both[0] == "search by surface: 14 of 14 requests took exactly the verify steps that the traces say"


def test_an_open_loop_is_named_by_its_rate() -> None:
    for sentence in rounds_sentences([check({"p03": 6}, {"p05": TEXT[:15]}, (0, 2.0)).to_json()]):
        assert "2 requests/s" in sentence
        assert "concurrency" not in sentence
