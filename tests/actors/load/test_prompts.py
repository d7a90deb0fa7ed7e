"""Choosing prompts: sources, sampling, held-out warm-up, lengths and bad input."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.load.chat_template import has_chat_template
from actors.load.prompts import LengthLimits, builtin_prompts, choose_prompts, load_prompts
from actors.load.workload import Workload, prompt_of
from search_spaces.errors import InputError


def write_jsonl(path: Path, rows: list[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def texts(path: Path, count: int, seed: int = 1, warmup_count: int = 2, **kwargs: object) -> list[str]:
    chosen = load_prompts(path, count=count, seed=seed, warmup_count=warmup_count, **kwargs)  # type: ignore[arg-type]
    return [prompt.text for prompt in chosen.prompts]


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    return write_jsonl(tmp_path / "prompts.jsonl", [{"text": f"prompt {number}"} for number in range(20)])


def test_built_in_sets_are_distinct_short_and_mixed() -> None:
    everything = builtin_prompts(None, 7)
    assert len(everything.prompts) + len(everything.warmup) == 96
    assert len({prompt.text for prompt in (*everything.prompts, *everything.warmup)}) == 96
    assert max(len(prompt.text) for prompt in everything.prompts) < 200
    by_set = {
        name: {p.text for p in builtin_prompts(None, 7, sets=(name,), warmup_count=0).prompts}
        for name in ("chat", "code", "mathematics")
    }
    chosen = builtin_prompts(9, 7, warmup_count=0)
    assert [sum(prompt.text in texts for prompt in chosen.prompts) for texts in by_set.values()] == [3, 3, 3]


def test_built_in_prompts_hardly_share_beginnings() -> None:
    """Otherwise the prefix cache would answer part of a cold cell."""
    texts = [prompt.text for prompt in builtin_prompts(None, 3, warmup_count=0).prompts]
    assert workload_of(*texts).shared_prefix_share < 0.02


def test_sampling_is_by_seed_and_a_smaller_count_is_the_beginning_of_a_larger(numbered: Path) -> None:
    assert texts(numbered, 10) == texts(numbered, 10)
    assert texts(numbered, 10) != texts(numbered, 10, seed=2)
    assert texts(numbered, 5) == texts(numbered, 10)[:5]


def test_order_of_lines_does_not_matter(numbered: Path, tmp_path: Path) -> None:
    lines = numbered.read_text(encoding="utf-8").splitlines()
    random.Random(5).shuffle(lines)
    shuffled = tmp_path / "shuffled.jsonl"
    shuffled.write_text("\n".join(lines), encoding="utf-8")
    assert texts(shuffled, 10) == texts(numbered, 10)


@given(
    contents=st.lists(st.integers(0, 12), min_size=1, max_size=40),
    warmup_count=st.integers(0, 4),
    count=st.integers(1, 12),
    seed=st.integers(0, 99),
)
def test_held_out_prompts_are_never_measured_and_nothing_repeats(
    tmp_path_factory: pytest.TempPathFactory, contents: list[int], warmup_count: int, count: int, seed: int
) -> None:
    path = write_jsonl(tmp_path_factory.mktemp("sets") / "p.jsonl", [{"text": f"text {number}"} for number in contents])
    if len(set(contents)) < warmup_count + count:
        with pytest.raises(InputError, match=r"usable prompts"):
            load_prompts(path, count=count, seed=seed, warmup_count=warmup_count)
        return
    chosen = load_prompts(path, count=count, seed=seed, warmup_count=warmup_count)
    everything = [*chosen.prompts, *chosen.warmup]
    assert (len(chosen.prompts), len(chosen.warmup)) == (count, warmup_count)
    assert len({prompt.prompt_id for prompt in everything}) == len(everything)


def test_lengths_filter_in_characters_and_count(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", [{"text": "x" * length} for length in range(1, 11)])
    limits = LengthLimits(min_chars=3, max_chars=6)
    chosen = load_prompts(path, seed=0, warmup_count=1, limits=limits)
    assert sorted(len(p.text) for p in (*chosen.prompts, *chosen.warmup)) == [3, 4, 5, 6]
    assert chosen.filtered == 6


def test_duplicates_are_counted(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "p.jsonl", [{"text": "one"}, {"text": "two"}, {"text": "one"}, {"text": "three"}])
    chosen = load_prompts(path, seed=0, warmup_count=1)
    assert (len(chosen.prompts), chosen.duplicates) == (2, 1)


def test_another_field_unicode_and_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(
        '\ufeff{"question": "wie heißt \U0001f999?\\u2028x"}\n\n  \n{"question": "два"}\n', encoding="utf-8"
    )
    assert sorted(texts(path, 2, warmup_count=0, text_field="question")) == ["wie heißt \U0001f999?\u2028x", "два"]


def test_sharegpt_takes_the_first_human_turn(tmp_path: Path) -> None:
    path = tmp_path / "sharegpt.json"
    rows = [
        {"id": "a", "conversations": [{"from": "system", "value": "be kind"}, {"from": "human", "value": "first?"}]},
        {"id": "b", "conversations": [{"from": "human", "value": "second?"}, {"from": "gpt", "value": "yes"}]},
        {"id": "c", "conversations": [{"from": "gpt", "value": "an answer without a question"}]},
        {"id": "d", "conversations": []},
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
    chosen = load_prompts(path, seed=0, warmup_count=0)
    assert sorted(prompt.text for prompt in chosen.prompts) == ["first?", "second?"]
    assert chosen.template_hash is None


def test_folder_of_texts(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(f"text of {name}", encoding="utf-8")
    (tmp_path / "notes.md").write_text("not a prompt", encoding="utf-8")
    assert sorted(texts(tmp_path, 2, warmup_count=0)) == ["text of a", "text of b"]


BAD_FILES = {
    "half.jsonl": ('{"text": "a"}\n{"text": \n', r"half\.jsonl:2: not JSON: .* at column 10"),
    "number.jsonl": ("7\n", r"number\.jsonl:1: an object was expected, not int"),
    "field.jsonl": ('{"prompt": "a", "id": 1}\n', r"field\.jsonl:1: no 'text', .* only 'prompt', 'id'"),
    "type.jsonl": ('{"text": ["a"]}\n', r"type\.jsonl:1: text: a text was expected, not list"),
    "empty.jsonl": ('{"text": "a"}\n\n{"text": "  "}\n', r"empty\.jsonl:3: text: the text is empty"),
    "surrogate.jsonl": ('{"text": "a\\ud83d"}\n', r"surrogate\.jsonl:1: text: half a surrogate pair at character 1"),
    "nothing.jsonl": ("", r"nothing\.jsonl has 0 usable prompts"),
    "object.json": ('{"text": "a"}', r"object\.json: a list of objects was expected, not dict"),
    "broken.json": ('[{"text": "a"},\n}', r"broken\.json: not JSON: .* at line 2, column 1"),
    "entry.json": ('[{"text": "a"}, null]', r"entry\.json: entry 2: an object was expected, not NoneType"),
    "roles.jsonl": (
        '{"messages": [{"role": "assistant", "content": "a"}]}',
        r"roles\.jsonl:1: messages: no turn has the role",
    ),
    "turn.jsonl": ('{"messages": ["a"]}', r"turn\.jsonl:1: messages: turn 1 is not an object"),
    "parts.jsonl": (
        '{"messages": [{"role": "user", "content": [{"type": "image"}]}]}',
        r"parts\.jsonl:1: messages: turn 1: part 1 is 'image'; legal are parts of the type 'text'",
    ),
    "empty_parts.jsonl": (
        '{"messages": [{"role": "user", "content": []}]}',
        r"empty_parts\.jsonl:1: messages: turn 1: the text is empty",
    ),
    "chat.jsonl": (
        '{"messages": [{"role": "user", "content": "a"}]}',
        r"chat\.jsonl:1: messages need the chat template",
    ),
    "deep.jsonl": ("[" * 100_000, r"deep\.jsonl:1: nested too deeply"),
    "wrong.csv": ("a,b\n", r"wrong\.csv has the ending '\.csv'; legal are"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_refused_in_one_line_with_their_place(tmp_path: Path, name: str) -> None:
    content, message = BAD_FILES[name]
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as refusal:
        load_prompts(tmp_path / name, seed=0, count=1, warmup_count=0)
    assert "\n" not in str(refusal.value)


def test_other_bad_sources(tmp_path: Path) -> None:
    (tmp_path / "latin.jsonl").write_bytes(b'{"text": "caf\xe9"}\n')
    with pytest.raises(InputError, match=r"latin\.jsonl: not UTF-8 at byte 13"):
        load_prompts(tmp_path / "latin.jsonl", seed=0)
    with pytest.raises(InputError, match=r"holds no \.txt file"):
        load_prompts(tmp_path, seed=0)
    with pytest.raises(InputError, match="does not exist"):
        load_prompts(tmp_path / "missing.jsonl", seed=0)
    with pytest.raises(InputError, match=r"no built-in set of prompts is named 'poetry'; there are chat, code"):
        builtin_prompts(1, 0, sets=("poetry",))
    with pytest.raises(InputError, match=r"has 96 usable prompts .* 4 are needed for the warm-up and 200 to measure"):
        choose_prompts(200, seed=0)


def test_choose_prompts_takes_a_count_a_name_or_a_path(numbered: Path) -> None:
    assert len(choose_prompts(8, seed=0).prompts) == 8
    assert choose_prompts("code", seed=0, count=5).prompts == builtin_prompts(5, 0, sets=("code",)).prompts
    assert len(choose_prompts(numbered, seed=0).prompts) == 16
    assert len(choose_prompts(str(numbered), seed=0, count=3).prompts) == 3


def workload_of(*prompt_texts: str, **kwargs: object) -> Workload:
    fields: dict[str, object] = {
        "prompts": tuple(prompt_of(text) for text in prompt_texts),
        "warmup": (),
        "concurrency": (1,),
        "max_new_tokens": 16,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": True,
        "request_timeout_s": 10.0,
        "max_attempts": 2,
    }
    return Workload(**{**fields, **kwargs})  # type: ignore[arg-type]


def test_a_workload_is_identified_by_prompts_template_sampling_and_endpoint() -> None:
    base = workload_of("a", "b")
    same = workload_of("a", "b", concurrency=(8, 16), request_rate=(2.0,), request_timeout_s=1.0, max_attempts=5)
    assert same.workload_id == base.workload_id
    others = [
        workload_of("b", "a"),
        workload_of("a"),
        workload_of("a", "b", template_hash="0" * 16),
        workload_of("a", "b", max_new_tokens=17),
        workload_of("a", "b", temperature=0.5),
        workload_of("a", "b", ignore_eos=False),
        workload_of("a", "b", stream=False),
        workload_of("a", "b", endpoint="/v1/completions"),
    ]
    assert len({base.workload_id, *(other.workload_id for other in others)}) == 9
    assert workload_of("a", "b", temperature=0).workload_id == base.workload_id


def test_shared_prefixes_are_measured() -> None:
    assert workload_of("abcdef", "abcxyz", "q").shared_prefix_share == pytest.approx(3 / 13)
    assert workload_of("abc").shared_prefix_share == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warmup": (prompt_of("a"),)}, "a warm-up prompt is among the measured"),
        ({"prompts": (prompt_of("a"), prompt_of("a"))}, "a prompt occurs twice"),
        ({"prompts": ()}, "at least one prompt"),
        ({"concurrency": (4, 0)}, "concurrency must be whole numbers"),
        ({"concurrency": (True,)}, "concurrency must be whole numbers"),
        ({"concurrency": ()}, "needs a concurrency or a request_rate"),
        ({"request_rate": (0.0,)}, "request_rate must be finite and above 0"),
        ({"request_rate": (float("inf"),)}, "request_rate must be finite and above 0"),
        ({"temperature": float("nan")}, "temperature must be 0 or more"),
        ({"concurrency": (4, 1, 4)}, "concurrency holds a value twice"),
        ({"request_rate": (2.0, 2.0)}, "request_rate holds a value twice"),
        ({"max_attempts": 0}, "max_attempts must be"),
        ({"request_timeout_s": -1.0}, "request_timeout_s must be"),
    ],
)
def test_workloads_check_themselves(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        workload_of("a", "b", **change)


def test_a_chat_template_is_seen_from_files_alone(tmp_path: Path) -> None:
    assert not has_chat_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"model_max_length": 5}', encoding="utf-8")
    assert not has_chat_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}', encoding="utf-8")
    assert has_chat_template(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("nonsense", encoding="utf-8")
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}", encoding="utf-8")
    assert has_chat_template(tmp_path)
