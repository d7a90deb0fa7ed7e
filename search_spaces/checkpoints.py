"""What a target and a draft checkpoint declare: `config.json` and safetensors headers, never weights."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from search_spaces.checkpoint_folders import find_checkpoint
from search_spaces.errors import InputError
from search_spaces.model_facts import DraftFacts, TargetFacts, VocabMapFacts, text_config_of
from search_spaces.safetensors_headers import HeaderScan, TensorPlace, read_tensor_bytes, scan_headers

AUX_IDS_KEY = "eagle_aux_hidden_state_layer_ids"
MAX_CONFIG_BYTES = 20_000_000
MAX_MAP_BYTES = 16_000_000
"""Largest `d2t` or `t2d` whose values are read: two million 64-bit ids."""

_EMBEDDINGS = ("embed_tokens.weight", "word_embeddings.weight", "wte.weight")
_INT_CODES = {"I64": "q", "I32": "i", "I16": "h", "U8": "B", "I8": "b"}


def read_target(place: str | Path) -> TargetFacts:
    """Read a target checkpoint from a folder or from the local Hugging Face cache. Raises `InputError`."""
    folder = find_checkpoint(place)
    config, file = _read_config(folder)
    text = text_config_of(config)
    scan = scan_headers(folder, keep=lambda name: name.endswith(_EMBEDDINGS))
    embedding = next((place.facts.shape for place in scan.places.values()), None)
    return TargetFacts(
        path=folder,
        architecture=_architecture(config, file),
        model_type=str(text.get("model_type") or config.get("model_type") or ""),
        num_layers=_positive(text, "num_hidden_layers", file),
        hidden_size=_positive(text, "hidden_size", file),
        vocab_size=_positive(text if "vocab_size" in text else config, "vocab_size", file),
        config=config,
        embedding_shape=embedding,
        weights_unread=scan.unread,
        weights_problems=scan.problems,
    )


def read_draft(place: str | Path) -> DraftFacts:
    """Read a draft checkpoint from a folder or from the local Hugging Face cache. Raises `InputError`.

    A draft may lack `architectures` (its `architecture` is then empty): SGLang refuses it, which is a finding.
    """
    folder = find_checkpoint(place)
    config, file = _read_config(folder)
    scan = scan_headers(folder)
    vocab_map, map_unread = _read_vocab_map(scan)
    return DraftFacts(
        path=folder,
        architecture=_architecture(config, file) if config.get("architectures") is not None else "",
        hidden_size=_positive(text_config_of(config), "hidden_size", file),
        aux_ids=_aux_ids(config, file),
        tensors={name: place.facts for name, place in scan.places.items()},
        weights_unread=scan.unread,
        config=config,
        weights_problems=scan.problems,
        vocab_map=vocab_map,
        vocab_map_unread=map_unread,
    )


def override_draft(draft: DraftFacts, flags: Mapping[str, object]) -> DraftFacts:
    """The draft as SGLang reads it under the two flags that replace its config without touching its files.

    `decrypted_draft_config_file` names a whole config.json; `json_model_override_args` replaces top-level keys, in the
    draft as in the target (`srt/configs/model_config.py`, `ModelConfig.from_server_args`). Raises `InputError`.
    """
    config, source = dict(draft.config), draft.path / "config.json"
    if file := flags.get("decrypted_draft_config_file"):
        source = Path(str(file))
        config = _parse_config(source)
    if text := flags.get("json_model_override_args"):
        source = Path("json_model_override_args")
        try:
            config.update(json.loads(str(text)))
        except (ValueError, TypeError, RecursionError):
            raise InputError(f"json_model_override_args: must be a JSON object, not {text!r}") from None
    return replace(
        draft,
        config=config,
        architecture=_architecture(config, source) if config.get("architectures") is not None else "",
        hidden_size=_positive(text_config_of(config), "hidden_size", source),
        aux_ids=_aux_ids(config, source),
    )


def _read_config(folder: Path) -> tuple[dict[str, Any], Path]:
    file = folder / "config.json"
    return _parse_config(file), file


def _parse_config(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > MAX_CONFIG_BYTES:
            raise InputError(f"{file}: {file.stat().st_size} bytes are too many for a model's config.json")
        config = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise InputError(f"{file}: no such file (a checkpoint folder holds a config.json)") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror or error})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON ({error})") from None
    if not isinstance(config, dict):
        raise InputError(f"{file}: must hold a JSON object, not {type(config).__name__}")
    return config


def _architecture(config: Mapping[str, Any], file: Path) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InputError(f"{file}: architectures must be a list with the model's class name, not {names!r}")
    return str(names[0])


def _positive(config: Mapping[str, Any], key: str, file: Path) -> int:
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        shown = "missing" if key not in config else repr(value)
        raise InputError(f"{file}: {key} must be a whole number of at least 1, not {shown}")
    return value


def _aux_ids(config: Mapping[str, Any], file: Path) -> tuple[int, ...] | None:
    """The ids where SGLang looks for them; None where it would silently fall back to its default.

    Source: `srt/model_executor/model_runner_components/spec_aux_hidden_state.py`, `_resolve_eagle_aux_hidden_state`.
    """
    block = config.get("eagle_config")
    ids = block.get(AUX_IDS_KEY) if isinstance(block, dict) else None
    if ids is None:
        return None
    if not isinstance(ids, list) or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise InputError(f"{file}: eagle_config.{AUX_IDS_KEY} must be a list of whole numbers, not {ids!r}")
    return tuple(ids)


def _find(scan: HeaderScan, name: str) -> TensorPlace | None:
    return next((p for full, p in scan.places.items() if full == name or full.endswith(f".{name}")), None)


def _read_vocab_map(scan: HeaderScan) -> tuple[VocabMapFacts | None, str | None]:
    d2t, t2d = _find(scan, "d2t"), _find(scan, "t2d")
    if d2t is None:
        return None, None
    offsets, problem = _read_ints(d2t)
    if offsets is None:
        return None, f"d2t: {problem}"
    ids = [i + offset for i, offset in enumerate(offsets)]
    reached = set(ids)
    marks = _read_marks(t2d) if t2d is not None else None
    return (
        VocabMapFacts(
            entries=len(ids),
            all_zero=not any(offsets),
            lowest_target_id=min(ids, default=0),
            highest_target_id=max(ids, default=-1),
            distinct_target_ids=len(reached),
            t2d_entries=t2d.facts.shape[0] if t2d is not None and len(t2d.facts.shape) == 1 else None,
            t2d_agrees=None if marks is None else marks == reached,
            holds_target_ids=marks is not None and marks != reached and marks == set(offsets),
        ),
        None,
    )


def _read_ints(place: TensorPlace) -> tuple[array[int] | None, str]:
    code = _INT_CODES.get(place.facts.dtype)
    if code is None or len(place.facts.shape) != 1:
        return None, f"{place.facts.dtype} of shape {list(place.facts.shape)} is not a list of whole numbers"
    content = read_tensor_bytes(place, MAX_MAP_BYTES)
    if content is None or len(content) != place.facts.shape[0] * array(code).itemsize:
        return None, f"its bytes are not all there, or more than {MAX_MAP_BYTES}"
    values = array(code)
    values.frombytes(content)
    return values, ""


def _read_marks(place: TensorPlace) -> set[int] | None:
    """Target ids that `t2d` marks as known to the draft; None when it is not a readable table of booleans."""
    if place.facts.dtype != "BOOL" or len(place.facts.shape) != 1:
        return None
    content = read_tensor_bytes(place, MAX_MAP_BYTES)
    return None if content is None else {i for i, mark in enumerate(content) if mark}
