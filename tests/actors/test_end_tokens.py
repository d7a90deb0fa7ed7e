"""The tokens that end an answer, from every file that may name them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_models import TinyPair

from actors.end_tokens import end_ids_of
from search_spaces.model_facts import TargetFacts


def facts(folder: Path, **config: object) -> TargetFacts:
    return TargetFacts(
        path=folder,
        architecture="LlamaForCausalLM",
        model_type="llama",
        num_layers=8,
        hidden_size=64,
        vocab_size=40,
        config=config,
    )


def write(folder: Path, **files: object) -> None:
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def test_those_of_the_model(tmp_path: Path) -> None:
    write(tmp_path, generation_config={"eos_token_id": [7, 9]})
    assert end_ids_of(facts(tmp_path, eos_token_id=1)) == {1, 7, 9}


ADDED = [{"id": 21, "content": "<|im_end|>"}, {"id": 22, "content": "<|eom_id|>"}]


@pytest.mark.parametrize("eos", ["<|im_end|>", {"__type": "AddedToken", "content": "<|im_end|>"}])
def test_a_tokenizer_that_ends_elsewhere_than_the_model_says(tmp_path: Path, eos: object) -> None:
    """As a fine-tune that kept the base's configuration has it; SGLang ends there and at its additional texts."""
    tokenizer = {"added_tokens": ADDED, "model": {"vocab": {"<s>": 0}}}
    write(tmp_path, tokenizer_config={"eos_token": eos}, tokenizer=tokenizer)
    assert end_ids_of(facts(tmp_path, eos_token_id=1)) == {1, 21, 22}


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer": {"model": {"vocab": {"a": 0, "</s>": 2}}}},
        {"tokenizer": {"model": {"vocab": [["a", 0.0], ["b", -1.5], ["</s>", 0.0]]}}},
        {"added_tokens": {"</s>": 2}},
        {"tokenizer_config": {"eos_token": "</s>", "added_tokens_decoder": {"2": {"content": "</s>"}}}},
        {"tokenizer_config": {"eos_token": "<old>"}, "added_tokens": {"</s>": 2, "<old>": 3}},
    ],
)
def test_wherever_the_tokenizer_keeps_its_ids(tmp_path: Path, files: dict[str, Any]) -> None:
    write(tmp_path, **{"special_tokens_map": {"eos_token": "</s>"}} | files)
    assert end_ids_of(facts(tmp_path)) == {2}


def test_a_newer_layout_does_not_read_the_second_file(tmp_path: Path) -> None:
    added = {"4": {"content": "<new>"}, "5": {"content": "<old>"}}
    write(tmp_path, special_tokens_map={"eos_token": "<old>"})
    write(tmp_path, tokenizer_config={"eos_token": "<new>", "added_tokens_decoder": added})
    assert end_ids_of(facts(tmp_path)) == {4}


@pytest.mark.parametrize("content", ["", "[]", "{", '{"eos_token": 3, "added_tokens_decoder": 4}'])
def test_files_that_say_nothing(tmp_path: Path, content: str) -> None:
    for name in ("tokenizer_config", "tokenizer", "special_tokens_map", "added_tokens", "generation_config"):
        (tmp_path / f"{name}.json").write_text(content)
    assert end_ids_of(facts(tmp_path)) == frozenset()


def test_as_transformers_reads_them(tiny_pair: TinyPair) -> None:
    from transformers import AutoTokenizer

    loaded = AutoTokenizer.from_pretrained(tiny_pair.target, local_files_only=True)
    assert end_ids_of(facts(tiny_pair.target)) == {loaded.eos_token_id}
