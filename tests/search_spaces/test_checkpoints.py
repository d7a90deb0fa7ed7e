from __future__ import annotations

import json
import resource
import struct
import time
from pathlib import Path

import pytest
from small_checkpoints import DRAFT, LLAMA, draft_tensors, header_bytes, write_checkpoint

from search_spaces.checkpoints import read_draft, read_target
from search_spaces.errors import InputError


def refuse(place: Path | str, *words: str) -> None:
    for read in (read_target, read_draft):
        with pytest.raises(InputError) as caught:
            read(place)
        message = str(caught.value)
        assert "\n" not in message
        assert all(word in message for word in words), message


def test_target_values_are_those_of_the_text_model(tmp_path: Path) -> None:
    text = {"model_type": "kimi_k2", "num_hidden_layers": 61, "hidden_size": 7168, "vocab_size": 163840}
    config = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "text_config": text}
    facts = read_target(write_checkpoint(tmp_path / "kimi", {**config, "hidden_size": 1}))
    assert (facts.architecture, facts.num_layers, facts.hidden_size) == ("KimiK25ForConditionalGeneration", 61, 7168)
    assert (facts.vocab_size, facts.model_type) == (163840, "kimi_k2")
    assert facts.weights_unread == "no *.safetensors file in the folder"


def test_omni_models_nest_the_text_model_twice(tmp_path: Path) -> None:
    inner = {"num_hidden_layers": 28, "hidden_size": 3584, "vocab_size": 152064}
    config = {"architectures": ["Qwen2_5OmniModel"], "thinker_config": {"text_config": inner}}
    assert read_target(write_checkpoint(tmp_path / "omni", config)).num_layers == 28


def test_draft_ids_come_from_eagle_config_only(tmp_path: Path) -> None:
    inside = {**DRAFT, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 15, 28]}}
    assert read_draft(write_checkpoint(tmp_path / "inside", inside)).aux_ids == (1, 15, 28)
    top = {**DRAFT, "eagle_aux_hidden_state_layer_ids": [1, 15, 28]}
    assert read_draft(write_checkpoint(tmp_path / "top", top)).aux_ids is None
    assert read_draft(write_checkpoint(tmp_path / "null", {**DRAFT, "eagle_config": None})).aux_ids is None


def test_draft_tensors_and_map_values(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft", DRAFT, draft_tensors(vocab=4), d2t=[0, 10, 10, 100])
    facts = read_draft(folder)
    assert facts.fc_in_features == 12288
    assert facts.tensors["lm_head.weight"].shape == (4, 4096)
    assert facts.vocab_map is not None
    assert (facts.vocab_map.entries, facts.vocab_map.all_zero) == (4, False)
    assert (facts.vocab_map.lowest_target_id, facts.vocab_map.highest_target_id) == (0, 103)
    assert facts.vocab_map.distinct_target_ids == 4
    assert facts.weights_problems == ()


def test_prefixed_fc_is_found(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft", DRAFT, {"model.fc.weight": ("BF16", [8, 24])})
    assert read_draft(folder).fc_in_features == 24


def test_pickled_weights_are_not_opened(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "draft", DRAFT)
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle")
    facts = read_draft(folder)
    assert facts.fc_in_features is None
    assert facts.weights_unread is not None
    assert "pytorch_model.bin" in facts.weights_unread


def test_missing_folder_and_missing_config(tmp_path: Path) -> None:
    refuse(tmp_path / "nowhere", "nowhere")
    (tmp_path / "empty").mkdir()
    refuse(tmp_path / "empty", "config.json", "no such file")
    (tmp_path / "file.bin").write_bytes(b"x")
    refuse(tmp_path / "file.bin", "not a checkpoint folder")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass")])
def test_config_that_is_no_object(tmp_path: Path, text: str | bytes) -> None:
    (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    refuse(tmp_path, str(tmp_path / "config.json"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("architectures", "Llama"),
        ("architectures", []),
        ("hidden_size", "4096"),
        ("hidden_size", True),
        ("hidden_size", 0),
    ],
)
def test_wrong_types_name_key_and_value(tmp_path: Path, key: str, value: object) -> None:
    refuse(write_checkpoint(tmp_path / "bad", {**LLAMA, key: value}), key, repr(value))


@pytest.mark.parametrize("ids", ["2,30,58", [1, "2"], [True, 2], [1.5], {"a": 1}])
def test_ids_of_a_wrong_type(tmp_path: Path, ids: object) -> None:
    config = {**DRAFT, "eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}
    with pytest.raises(InputError, match="eagle_aux_hidden_state_layer_ids must be a list of whole numbers"):
        read_draft(write_checkpoint(tmp_path / "bad", config))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x10\x00\x00",
        struct.pack("<Q", 5_000_000_000) + b"{}",
        struct.pack("<Q", 2**63) + b"{}" * 40,
        struct.pack("<Q", 20) + b"\x00" * 20,
        struct.pack("<Q", 12) + b'{"a": [1, 2]',
        struct.pack("<Q", 20) + b'{"a": {"dtype": "F3"',
        struct.pack("<Q", 10) + b'{"a": 1}  ',
        struct.pack("<Q", 61) + b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}' + b"\x00" * 4,
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    ],
)
def test_corrupt_header_names_the_file(tmp_path: Path, content: bytes) -> None:
    folder = write_checkpoint(tmp_path / "bad", LLAMA)
    (folder / "model.safetensors").write_bytes(content)
    refuse(folder, "model.safetensors")


def test_index_decides_which_files_count(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "sharded", DRAFT)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"fc.weight": "a.safetensors", "norm.weight": "b.safetensors"}}))
    (folder / "a.safetensors").write_bytes(header_bytes({"fc.weight": ("F32", [1, 3])}) + b"\x00" * 12)
    (folder / "stray.safetensors").write_bytes(b"rubbish")
    facts = read_draft(folder)
    assert facts.fc_in_features == 3
    assert facts.weights_problems == ("b.safetensors is named by the index but is not there",)
    index.write_text(json.dumps({"weight_map": {"fc.weight": "../a.safetensors"}}))
    refuse(folder, "model.safetensors.index.json", "../a.safetensors")


def test_short_file_is_a_problem_not_a_refusal(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "short", DRAFT)
    (folder / "model.safetensors").write_bytes(header_bytes({"fc.weight": ("F32", [10, 30])}))
    (problem,) = read_draft(folder).weights_problems
    assert "model.safetensors" in problem


def test_repo_id_resolves_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    repo = tmp_path / "hf" / "hub" / "models--org--name"
    for commit, layers in (("abc123", 10), ("def456", 20)):
        (repo / "snapshots" / commit).mkdir(parents=True)
        config = {**LLAMA, "num_hidden_layers": layers}
        (repo / "snapshots" / commit / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"revision main has no snapshot.*abc123, def456"):
        read_target("org/name")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("def456\n")
    assert read_target("org/name").num_layers == 20
    assert read_target(repo).num_layers == 20
    assert read_target("org/name@abc").num_layers == 10
    refuse("org/other", "org/other", "cache")


def test_a_terabyte_costs_its_headers_only(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "huge", LLAMA)
    weight_map = {}
    for shard in range(200):
        names = [f"model.layers.{shard}.experts.{i}.weight" for i in range(100)]
        head = header_bytes({name: ("BF16", [25_000, 1_000]) for name in names})
        (folder / f"model-{shard:05}.safetensors").write_bytes(head)
        weight_map |= dict.fromkeys(names, f"model-{shard:05}.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    facts = read_target(folder)
    draft = read_draft(folder)
    assert time.perf_counter() - start < 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    assert len(facts.weights_problems) == 200
    assert len(draft.tensors) == 20_000


@pytest.mark.parametrize("shape", ["[-1]", "[1.5]", '"4"', "null", "[[4]]", "[true]"])
def test_shapes_that_are_none(tmp_path: Path, shape: str) -> None:
    folder = write_checkpoint(tmp_path / "bad", DRAFT)
    header = f'{{"fc.weight": {{"dtype": "F32", "shape": {shape}, "data_offsets": [0, 4]}}}}'.encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\x00" * 4)
    with pytest.raises(InputError, match=r"model\.safetensors: header entry 'fc\.weight' is no tensor"):
        read_draft(folder)
