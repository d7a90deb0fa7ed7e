from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.dialects import (
    DIALECTS,
    TABLE,
    Dialect,
    Inexpressible,
    dialect_of,
    find_dialect,
    supported_architectures,
)
from search_spaces.errors import InputError
from search_spaces.versions import version_key

NOW = "0.5.23"
BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


def taps(architecture: str, ids: tuple[int, ...] | None, num_layers: int, version: str = NOW) -> tuple[int, ...]:
    return dialect_of(architecture, version).capture(ids, num_layers).taps


def test_explicit_default_ids_are_not_the_default() -> None:
    assert taps("Qwen3ForCausalLM", None, 36) == (2, 18, 33)
    assert taps("Qwen3ForCausalLM", (2, 18, 33), 36) == (3, 19, 34)
    assert taps("Qwen3ForCausalLM", (1, 17, 32), 36) == (2, 18, 33)


@pytest.mark.parametrize("architecture", ["DeepseekV3ForCausalLM", "KimiK25ForConditionalGeneration"])
def test_two_conventions_on_deepseek(architecture: str) -> None:
    assert taps(architecture, (1, 29, 57), 61) == (2, 30, 58)
    assert taps(architecture, (2, 30, 58), 61) == (2, 30, 58) == taps(architecture, None, 61)
    for old in ("0.5.9", "0.5.12", "0.5.12.post1"):
        assert taps(architecture, (2, 30, 58), 61, old) == (3, 31, 59)
        assert taps(architecture, (1, 29, 57), 61, old) == (2, 30, 58)


def test_same_ids_are_other_layers_on_another_class() -> None:
    assert taps("LlamaForCausalLM", (2, 30, 58), 61) == (3, 31, 59)
    assert taps("LlamaForCausalLM", None, 61) == (2, 30, 58)


def test_minus_one_is_the_embedding_on_some_classes_only() -> None:
    llama = dialect_of("LlamaForCausalLM", NOW).capture((-1, 2, 30), 61)
    assert (llama.taps, llama.expected, llama.problems) == ((0, 3, 31), 3, ())
    deepseek = dialect_of("DeepseekV3ForCausalLM", NOW).capture((-1, 2, 30), 61)
    assert (deepseek.taps, deepseek.expected) == ((2, 30), 3)
    assert deepseek.problems == ("-1 never matches on this class", "2 of 3 states would be captured")


def test_a_flag_on_a_layer_counts_from_the_end() -> None:
    moe = dialect_of("Qwen3MoeForCausalLM", NOW)
    assert moe.capture((-1, 2, 5), 8).problems == ()
    wrapped = moe.capture((-2, 2, 5), 8)
    assert wrapped.taps == (3, 6, 7)
    assert wrapped.problems == ("-2 counts from the end on this class and captures tap 7",)
    beyond = moe.capture((1, 4, 7), 8)
    assert beyond.problems[0] == "7 is beyond the layers of this class (IndexError)"
    unused = dialect_of("Qwen3VLMoeForConditionalGeneration", NOW)
    assert unused.capture((-2, 2, 5), 8).problems[0] == "-2 never matches on this class"
    assert "IndexError" in unused.capture((1, 4, 7), 8).problems[0]


def test_the_last_tap_is_out_of_the_loop_on_most_classes() -> None:
    short = dialect_of("LlamaForCausalLM", NOW).capture((1, 4, 7), 8)
    assert (short.taps, short.expected) == ((2, 5), 3)
    assert short.problems == ("7 never matches on this class", "2 of 3 states would be captured")
    assert taps("Gemma3ForCausalLM", (1, 4, 7), 8) == (2, 5, 8)


def test_gpt_oss_keeps_ids_that_name_the_last_boundary() -> None:
    assert taps("GptOssForCausalLM", (2, 18, 36), 36) == (2, 18, 36)
    assert taps("GptOssForCausalLM", (1, 17, 35), 36) == (2, 18, 36)
    assert taps("GptOssForCausalLM", (1, 17, 32), 36) == (2, 18, 33)
    before = dialect_of("GptOssForCausalLM", "0.5.16")
    assert before.capture((2, 18, 36), 36).taps == (3, 19)


def test_one_class_shifts_the_default_too() -> None:
    assert taps("MiniMaxM3SparseForConditionalGeneration", None, 60) == (3, 31, 58)
    assert taps("MiniMaxM3SparseForCausalLM", None, 60) == (2, 30, 57)


@pytest.mark.parametrize(
    ("num_layers", "words"),
    [
        (2, ["[2, 1, -1]", "2 never matches", "-1 never matches", "1 of 3 states"]),
        (4, ["[2, 2, 1]", "tap 2 is listed twice", "2 of 3 states"]),
        (5, ["[2, 2, 2]", "1 of 3 states"]),
        (6, ["[2, 3, 3]", "tap 3 is listed twice", "2 of 3 states"]),
    ],
)
def test_the_default_collides_on_tiny_models(num_layers: int, words: list[str]) -> None:
    capture = dialect_of("LlamaForCausalLM", NOW).capture(None, num_layers)
    text = ", ".join(capture.problems)
    assert all(word in text for word in words), text
    assert "give taps explicitly" in text


def test_the_default_fits_from_seven_layers_on() -> None:
    for num_layers in range(7, 200):
        assert dialect_of("LlamaForCausalLM", NOW).capture(None, num_layers).problems == ()


def test_ids_of_layouts() -> None:
    llama, deepseek = dialect_of("LlamaForCausalLM", NOW), dialect_of("DeepseekV3ForCausalLM", NOW)
    assert llama.ids_for((0, 3, 31), 61) == (-1, 2, 30)
    assert deepseek.ids_for((0, 3, 31), 61) == (0, 3, 31)
    assert deepseek.ids_for((1, 4, 6), 61) == (4, 1, 6)
    assert dialect_of("GptOssForCausalLM", NOW).ids_for((2, 18, 36), 36) == (1, 17, 35)


@pytest.mark.parametrize(
    ("architecture", "layout", "reason"),
    [
        ("LlamaForCausalLM", (31, 3, 0), "order is lost: 31,3,0 would be fed as 0,3,31"),
        ("LlamaForCausalLM", (3, 3, 31), "tap 3 is listed twice; a tap is captured once"),
        ("LlamaForCausalLM", (0, 3, 61), "tap 61 is never captured on this class (taps 0 to 60 are)"),
        ("Gemma3ForCausalLM", (0, 3, 62), "tap 62 is never captured on this class (taps 0 to 61 are)"),
        ("LlamaForCausalLM", (), "a layout needs at least one tap"),
        (
            "DeepseekV3ForCausalLM",
            (1,),
            "tap 1 alone cannot be written on this class: the list [1] is shifted to tap 2",
        ),
    ],
)
def test_layouts_that_cannot_be_written(architecture: str, layout: tuple[int, ...], reason: str) -> None:
    assert dialect_of(architecture, NOW).ids_for(layout, 61) == Inexpressible(reason=reason)


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_every_small_layout_is_written_or_refused(dialect: Dialect) -> None:
    """All subsets of the taps of up to eight blocks: ids that capture exactly them, or no ids at all can."""
    for num_layers in range(1, 9):
        subsets = itertools.chain.from_iterable(
            itertools.combinations(range(num_layers + 1), size) for size in range(1, num_layers + 2)
        )
        for layout in subsets:
            ids = dialect.ids_for(layout, num_layers)
            if not isinstance(ids, Inexpressible):
                capture = dialect.capture(ids, num_layers)
                assert (capture.taps, capture.problems, capture.expected) == (layout, (), len(layout)), ids
            elif layout != (1,):
                assert layout[-1] == num_layers
                assert not dialect.last_tap


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_nothing_refused_has_ids_after_all(dialect: Dialect) -> None:
    for num_layers in (2, 3, 4):
        values = range(-2, num_layers + 2)
        reachable = {
            dialect.capture(ids, num_layers).taps
            for length in (1, 2, 3)
            for ids in itertools.product(values, repeat=length)
            if not dialect.capture(ids, num_layers).problems
        }
        for length in (1, 2, 3):
            for layout in itertools.product(range(num_layers + 1), repeat=length):
                expressible = not isinstance(dialect.ids_for(layout, num_layers), Inexpressible)
                assert expressible == (layout in reachable), (layout, num_layers)


@given(
    st.sampled_from(DIALECTS),
    st.integers(1, 120),
    st.lists(st.integers(-3, 125), max_size=6).map(tuple),
)
def test_captures_are_ascending_reachable_and_explained(
    dialect: Dialect, num_layers: int, ids: tuple[int, ...]
) -> None:
    capture = dialect.capture(ids, num_layers)
    assert list(capture.taps) == sorted(set(capture.taps))
    assert all(0 <= tap <= num_layers for tap in capture.taps)
    assert len(capture.taps) <= capture.expected == len(ids)
    assert capture.problems or len(capture.taps) == len(ids) > 0
    assert dialect.capture(tuple(reversed(ids)), num_layers).expected == capture.expected
    if not capture.problems:
        written = dialect.ids_for(capture.taps, num_layers)
        assert not isinstance(written, Inexpressible)
        assert dialect.capture(written, num_layers).taps == capture.taps


def test_unknown_classes_and_versions() -> None:
    assert find_dialect("BertModel", NOW) is None
    assert find_dialect("Gemma3ForCausalLM", "0.5.11") is None
    assert find_dialect("Qwen3_5ForCausalLM", "0.5.20") is None
    with pytest.raises(InputError, match=r"target class BertModel has no EAGLE-3 capture in SGLang 0\.5\.23"):
        dialect_of("BertModel", NOW)
    with pytest.raises(InputError, match="not a version"):
        dialect_of("LlamaForCausalLM", "newest")


def test_no_class_speaks_two_dialects_at_once() -> None:
    versions = {bound for row in TABLE for bound in (row.since, row.until) if bound} | {"0.5.9", NOW}
    for version in sorted(versions, key=version_key):
        names = [
            name
            for row in TABLE
            for name in row.architectures
            if (row.since is None or version_key(row.since) <= version_key(version))
            and (row.until is None or version_key(version) < version_key(row.until))
        ]
        assert len(names) == len(set(names)), version
        assert tuple(sorted(names)) == supported_architectures(version)


def test_dialects_have_distinct_names() -> None:
    assert len(BY_NAME) == len(DIALECTS)
    assert {row.dialect.name for row in TABLE} == set(BY_NAME)
