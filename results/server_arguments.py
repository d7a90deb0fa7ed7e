"""Resolved server arguments, from a log or from `/server_info`, as what they say of a row."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from results.external_row import ExternalRow
from results.external_row_file import MOST_STEPS
from results.server_limits import graphs_disabled

_ALIASES = {
    "tensor_parallel_size": "tp_size",
    "tp": "tp_size",
    "data_parallel_size": "dp_size",
    "dp": "dp_size",
    "model": "model_path",
}
"""Other spellings of an argument: those of the command line."""

_ARG_FIELDS = {
    "speculative_num_steps": "num_steps",
    "speculative_eagle_topk": "eagle_topk",
    "speculative_num_draft_tokens": "num_draft_tokens",
    "tp_size": "tp_size",
    "dp_size": "dp_size",
    "max_running_requests": "max_running_requests",
    "chunked_prefill_size": "chunked_prefill_size",
}


def _override_ids(text: object) -> tuple[int, ...] | None:
    """The ids of `--json-model-override-args`, None when it names none."""
    try:
        ids = json.loads(text)["eagle_config"]["eagle_aux_hidden_state_layer_ids"] if isinstance(text, str) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return tuple(ids) if isinstance(ids, list) and all(type(i) is int for i in ids) else None


def plain_args(args: Mapping[str, object]) -> dict[str, object]:
    """Arguments under SGLang's own names (`--tp`, `tp-size` and `tensor_parallel_size` are `tp_size`), numbers as such.

    SGLang's own spelling wins over another one of the same argument.
    """
    plain: dict[str, object] = {}
    for name, value in args.items():
        own = name.lstrip("-").replace("-", "_")
        key = _ALIASES.get(own, own)
        if key == name or key not in plain:
            plain[key] = _plain_value(value)
    return plain


def _plain_value(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = value.strip()
    if re.fullmatch(r"-?\d{1,15}", text):
        return int(text)
    return {"true": True, "false": False}.get(text.lower(), value)


def args_row(args: Mapping[str, object], source: str) -> ExternalRow:
    """What resolved server arguments say of a row. Values of an unexpected type are left out, not guessed."""
    args = plain_args(args)
    values: dict[str, object] = {
        field: value
        for name, field in _ARG_FIELDS.items()
        if isinstance(value := args.get(name), int) and not isinstance(value, bool) and 1 <= value <= MOST_STEPS * 1000
    }
    if isinstance(args.get("enable_dp_attention"), bool):
        values["dp_attention"] = args["enable_dp_attention"]
    if isinstance(args.get("disable_radix_cache"), bool):
        values["radix_cache"] = not args["disable_radix_cache"]
    if args.get("device") != "cpu" and graphs_disabled(args):
        values["cuda_graph"] = False
    keep = (
        "speculative_algorithm",
        "attention_backend",
        "page_size",
        "model_path",
        "speculative_draft_model_path",
        "decrypted_draft_config_file",
    )
    if (ids := _override_ids(args.get("json_model_override_args"))) is not None:
        values["layout_ids"] = ids
    forced = [name for name in args if "SIMULATE_ACC_LEN" in name.upper()]
    flags = {name: args[name] for name in keep if name in args}  # None says that it is not set
    flags |= {name: args[name] for name in forced if args[name] is not None}
    return ExternalRow(**values, flags=flags, source=source)  # type: ignore[arg-type]
