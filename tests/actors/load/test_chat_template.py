"""Messages through a real tokenizer's chat template, lengths in tokens, and datasets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tiny_models import TinyPair

from actors.load.chat_template import TargetTokenizer
from actors.load.prompts import LengthLimits, builtin_prompts, load_prompts
from search_spaces.errors import EnvironmentProblem, InputError


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "once upon a time"},
        {"role": "assistant", "content": "an answer that must not be sent"},
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text(json.dumps({"messages": messages}) + '\n{"text": "as it is"}\n', encoding="utf-8")
    return path


def test_messages_go_through_the_targets_template(tiny_pair: TinyPair, conversation: Path) -> None:
    chosen = load_prompts(conversation, seed=0, warmup_count=0, target_path=tiny_pair.target)
    assert sorted(prompt.text for prompt in chosen.prompts) == [
        "as it is",
        "system: be brief\nuser: once upon a time\nassistant:",
    ]
    assert chosen.template_hash == TargetTokenizer(tiny_pair.target).template_hash
    assert chosen.template_hash is not None
    assert len(chosen.template_hash) == 16


def test_text_parts_are_one_text(tiny_pair: TinyPair, tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "once upon"}, {"type": "text", "text": " a time"}]
    path = tmp_path / "parts.jsonl"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": parts}]}) + "\n", encoding="utf-8")
    (prompt,) = load_prompts(path, seed=0, warmup_count=0, target_path=tiny_pair.target).prompts
    assert prompt.text == "user: once upon a time\nassistant:"


def test_built_in_prompts_use_the_template_that_a_target_has(tiny_pair: TinyPair) -> None:
    chosen = builtin_prompts(3, 5, target_path=tiny_pair.target)
    plain = builtin_prompts(3, 5)
    assert [prompt.text for prompt in chosen.prompts] == [
        f"user: {prompt.text}\nassistant:" for prompt in plain.prompts
    ]
    assert (chosen.template_hash is None, plain.template_hash) == (False, None)


def test_lengths_in_tokens(tiny_pair: TinyPair, tmp_path: Path) -> None:
    tokenizer = TargetTokenizer(tiny_pair.target)
    texts = ["the lazy dog", "the lazy dog " * 5, "the lazy dog " * 20]
    counts = [tokenizer.count(text) for text in texts]
    assert counts == sorted(counts)
    path = tmp_path / "p.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    limits = LengthLimits(min_tokens=counts[1], max_tokens=counts[1])
    chosen = load_prompts(path, seed=0, warmup_count=0, limits=limits, target_path=tiny_pair.target)
    assert [prompt.text for prompt in chosen.prompts] == [texts[1]]
    assert chosen.filtered == 2
    with pytest.raises(InputError, match="a limit in tokens needs the tokenizer"):
        load_prompts(path, seed=0, warmup_count=0, limits=limits)


@pytest.mark.parametrize("adds_bos", [True, False])
def test_a_begin_marker_is_not_sent_twice(tiny_pair: TinyPair, tmp_path: Path, adds_bos: bool) -> None:
    """SGLang tokenizes a text with special tokens, so a tokenizer that adds BOS would put a second one before it."""
    folder = _with_template(tiny_pair, tmp_path / "bos", "{{ bos_token }}{{ messages[0]['content'] }}")
    marker = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))["bos_token"]
    if adds_bos:
        tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": marker, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {marker: {"id": marker, "ids": [0], "tokens": [marker]}},
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    rendered = TargetTokenizer(folder).render([{"role": "user", "content": "once"}], "here")
    assert rendered == ("once" if adds_bos else f"{marker}once")


def test_a_template_that_refuses_is_the_users_error(tiny_pair: TinyPair, tmp_path: Path, conversation: Path) -> None:
    folder = _with_template(tiny_pair, tmp_path / "strict", "{{ raise_exception('roles must\n alternate') }}")
    with pytest.raises(InputError, match=r"chat\.jsonl:1: the chat template refuses it: roles must alternate"):
        load_prompts(conversation, seed=0, warmup_count=0, target_path=folder)


def test_a_folder_without_a_tokenizer_is_the_users_error(tmp_path: Path, conversation: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="its tokenizer cannot be loaded") as refusal:
        load_prompts(conversation, seed=0, warmup_count=0, target_path=tmp_path / "empty")
    assert "\n" not in str(refusal.value)


def test_without_transformers_the_environment_is_to_blame(
    tiny_pair: TinyPair, conversation: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(EnvironmentProblem, match="need the package `transformers`"):
        load_prompts(conversation, seed=0, warmup_count=0, target_path=tiny_pair.target)


def _with_template(pair: TinyPair, folder: Path, template: str) -> Path:
    folder.mkdir()
    for file in pair.target.glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    return folder


class TestDatasets:
    def test_a_dataset_on_disk_is_read_like_a_file(self, tmp_path: Path) -> None:
        datasets = pytest.importorskip("datasets")
        rows = [{"question": f"question {number}", "answer": "x"} for number in range(6)]
        datasets.Dataset.from_list(rows).save_to_disk(tmp_path / "set")
        chosen = load_prompts(f"hf:{tmp_path / 'set'}", seed=0, count=4, warmup_count=2, text_field="question")
        texts = {prompt.text for prompt in (*chosen.prompts, *chosen.warmup)}
        assert texts == {row["question"] for row in rows}
        with pytest.raises(InputError, match=r"set: row 1: no 'text', .* only 'question', 'answer'"):
            load_prompts(f"hf:{tmp_path / 'set'}", seed=0)

    def test_a_missing_split_is_the_users_error(self, tmp_path: Path) -> None:
        datasets = pytest.importorskip("datasets")
        split = datasets.Dataset.from_list([{"text": "a"}])
        datasets.DatasetDict({"test": split}).save_to_disk(tmp_path / "set")
        assert load_prompts(f"hf:{tmp_path / 'set'}:test", seed=0, warmup_count=0).prompts[0].text == "a"
        with pytest.raises(InputError, match="cannot be loaded"):
            load_prompts(f"hf:{tmp_path / 'set'}", seed=0)

    @pytest.mark.parametrize(
        ("source", "loaded"),
        [
            ("hf:org/set", ("org/set", None, "train")),
            ("hf:org/set:test", ("org/set", None, "test")),
            ("hf:org/set:main:test", ("org/set", "main", "test")),
            ("hf:org/set:train[:100]", ("org/set", None, "train[:100]")),
            ("hf:org/set:main:train[5:100]", ("org/set", "main", "train[5:100]")),
        ],
    )
    def test_a_dataset_may_have_a_configuration_and_a_split(
        self, monkeypatch: pytest.MonkeyPatch, source: str, loaded: tuple[str, str | None, str]
    ) -> None:
        datasets = pytest.importorskip("datasets")
        asked = []

        def load(name: str, config: str | None, *, split: str) -> list[dict[str, object]]:
            asked.append((name, config, split))
            return [{"conversations": [{"from": "human", "value": "a question"}]}]

        monkeypatch.setattr(datasets, "load_dataset", load)
        (prompt,) = load_prompts(source, seed=0, warmup_count=0).prompts
        assert prompt.text == "a question"
        assert asked == [loaded]

    @pytest.mark.parametrize("source", ["hf:", "hf::test"])
    def test_no_dataset_at_all_is_the_users_error(self, source: str) -> None:
        with pytest.raises(InputError, match=f"{source} names no dataset; write hf:NAME"):
            load_prompts(source, seed=0)

    def test_without_the_package_the_environment_is_to_blame(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(EnvironmentProblem, match=r"pip install datasets"):
            load_prompts("hf:some/set", seed=0)
