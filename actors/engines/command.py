"""From a configuration to SGLang's command line. Pure; the same path for CPU and CUDA, which differ by flags only."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from actors.engines.server_spec import ServerSpec
from search_spaces.config import EngineConfig, FlagValue

ENTRY = ("-m", "sglang.launch_server")

SECRET = re.compile(r"(api_key|token|password|secret)$")
REDACTED = "<redacted>"

CPU_ARGS: Mapping[str, FlagValue] = {
    "dtype": "float32",
    # Not attention_backend: that is turned into torch_native without AMX, which cannot speculate
    # (srt/arg_groups/overrides.py); these two are left alone.
    "prefill_attention_backend": "intel_amx",
    "decode_attention_backend": "intel_amx",
    "cuda_graph_backend_decode": "disabled",
    "cuda_graph_backend_prefill": "disabled",
    "grammar_backend": "none",
    "max_total_tokens": 16384,  # else the pool is sized from all of the machine's memory
    "sleep_on_idle": True,  # else an idle scheduler takes a whole core from whatever is measured beside it
}


def server_args(
    spec: ServerSpec, config: EngineConfig, *, port: int, rendezvous_port: int, draft_config: Path | None
) -> dict[str, FlagValue]:
    """SGLang's arguments in snake_case, in the order in which they are given.

    A baseline gets no speculative argument at all, and the same limits as every other server. Everything that a
    comparison depends on is given explicitly, since speculation changes defaults (max_running_requests becomes 48).
    A trial's flags win over `spec.args`, these over defaults; what identifies the trial cannot be overridden.
    """
    chosen: dict[str, FlagValue] = {
        "host": spec.host,
        "log_level": "info",
        "random_seed": spec.random_seed,
        "max_running_requests": spec.max_running_requests,
        "skip_server_warmup": True,  # the warm-up is ours, on prompts outside the measured set
    }
    if spec.device == "cpu":
        chosen |= CPU_ARGS
    for source in (spec.args, dict(config.flags)):
        chosen |= {name: value for name, value in source.items() if not (config.is_baseline and _speculates(name))}
    chosen.pop("port", None)
    fixed: dict[str, FlagValue] = {
        "model_path": str(spec.target.path),
        "device": spec.device,
        "tp_size": config.tp_size,
        "port": port,
        "nccl_port": rendezvous_port,
        "enable_metrics": True,
    }
    if spec.device == "cuda":
        fixed["base_gpu_id"] = 0  # local to CUDA_VISIBLE_DEVICES, which holds exactly this group's GPUs
    if config.triple is not None:
        fixed |= {
            "speculative_algorithm": "EAGLE3",
            "speculative_draft_model_path": str(spec.draft.path),
            "speculative_num_steps": config.triple.num_steps,
            "speculative_eagle_topk": config.triple.eagle_topk,
            "speculative_num_draft_tokens": config.triple.num_draft_tokens,
        }
    if draft_config is not None:
        fixed["decrypted_draft_config_file"] = str(draft_config)
    return fixed | chosen | fixed


def server_command(spec: ServerSpec, args: Mapping[str, FlagValue]) -> tuple[str, ...]:
    """The words to execute; a forked server runs the same module with the same arguments."""
    return (spec.python, *ENTRY, *words(args))


def words(args: Mapping[str, FlagValue]) -> list[str]:
    """Arguments as SGLang's parser wants them: True is a bare switch, False is left out."""
    result: list[str] = []
    for name, value in args.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            result.append(flag)
        elif value is not False:
            result += [flag, str(value)]
    return result


def redact(command: Sequence[str]) -> tuple[str, ...]:
    """The command with the values of secret flags removed, for records and logs."""
    result: list[str] = []
    hide = False
    for word in command:
        result.append(REDACTED if hide else word)
        hide = word.startswith("--") and "=" not in word and bool(SECRET.search(word.replace("-", "_")))
    return tuple(result)


def world_size(spec: ServerSpec, config: EngineConfig) -> int:
    """How many workers, hence devices, a server of this configuration takes: tp x pp."""
    pp_size = dict(config.flags).get("pp_size", spec.args.get("pp_size", 1))
    return config.tp_size * int(pp_size)


def _speculates(name: str) -> bool:
    return name.startswith("speculative_")
