"""The tokens at which SGLang ends an answer, read from the files of a target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from search_spaces.model_facts import TargetFacts

_ADDITIONAL_STOP_TEXTS = ("<|eom_id|>", "<|content_model_end_sampling|>", "<|ifm|im_end|>")
"""`_ADDITIONAL_STOP_TOKEN_TEXTS` of srt/utils/hf_transformers/common.py."""


def end_ids_of(target: TargetFacts) -> frozenset[int]:
    """Those of `config.json` and of `generation_config.json`, the tokenizer's own, and the texts that SGLang adds.

    As `_check_token_based_finish` (srt/managers/schedule_batch.py) asks for them, with `_get_hf_eos_token_id`
    (srt/configs/model_config.py). A tokenizer without `tokenizer.json` or a list of added tokens adds none here.
    """
    found: set[int] = set()
    for source in (target.config, target.text_config, _json_object(target.path / "generation_config.json")):
        ids = source.get("eos_token_id")
        found |= set(ids) if isinstance(ids, list) else {ids} if isinstance(ids, int) else set()
    return frozenset(found) | _tokenizer_ends(target.path)


def _tokenizer_ends(folder: Path) -> frozenset[int]:
    config = _json_object(folder / "tokenizer_config.json")
    tokenizer = _json_object(folder / "tokenizer.json")
    added = _added_tokens(folder, config, tokenizer)
    if "added_tokens_decoder" not in config:
        # an older layout, whose second file wins (`_from_pretrained` of transformers' tokenization_utils_base.py)
        config = {**config, **_json_object(folder / "special_tokens_map.json")}
    eos = config.get("eos_token")
    text = eos.get("content") if isinstance(eos, dict) else eos
    ids = {added.get(stop) for stop in _ADDITIONAL_STOP_TEXTS}
    if isinstance(text, str):
        ids.add(added[text] if text in added else _vocabulary_id(tokenizer, text))
    return frozenset(token for token in ids if token is not None)


def _added_tokens(folder: Path, config: Mapping[str, Any], tokenizer: Mapping[str, Any]) -> dict[str, int]:
    """Ids by text of what was added to the vocabulary."""
    listed = _json_object(folder / "added_tokens.json")
    found = {text: token for text, token in listed.items() if isinstance(token, int)}
    decoder = config.get("added_tokens_decoder")
    for token, entry in decoder.items() if isinstance(decoder, dict) else ():
        if token.isdecimal() and isinstance(entry, dict) and isinstance(entry.get("content"), str):
            found[entry["content"]] = int(token)
    entries = tokenizer.get("added_tokens")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("content"), str) and isinstance(entry.get("id"), int):
            found[entry["content"]] = entry["id"]
    return found


def _vocabulary_id(tokenizer: Mapping[str, Any], text: str) -> int | None:
    """Of a plain token: the vocabulary maps texts to ids, or is a list of (text, score) in the order of ids."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        token = vocabulary.get(text)
        return token if isinstance(token, int) else None
    entries = vocabulary if isinstance(vocabulary, list) else ()
    return next((at for at, entry in enumerate(entries) if isinstance(entry, list) and entry[:1] == [text]), None)


def _json_object(file: Path) -> dict[str, Any]:
    """What the file holds; empty without it, or when it holds something else."""
    try:
        content = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
