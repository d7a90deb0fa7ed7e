"""What a group must know to run SGLang servers: everything that does not change from trial to trial."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from search_spaces.config import FlagValue
from search_spaces.errors import InputError
from search_spaces.model_facts import DraftFacts, TargetFacts

Device = Literal["cuda", "cpu"]
StartMethod = Literal["spawn", "fork"]

DEFAULT_MAX_RUNNING_REQUESTS = 48
"""What SGLang sets by itself as soon as it speculates (arg_groups/speculative_hook.py); given explicitly to every
server, so that baseline and speculation serve under the same limit."""

_NO_KEYS = "servers listen on the loopback address only, and every user can read a key in a command line"

OWNED_ARGS: Mapping[str, str] = {
    "model_path": "say `target`",
    "model": "say `target`",
    "speculative_algorithm": "EAGLE3 is what is swept",
    "speculative_draft_model_path": "say `draft`",
    "speculative_draft_model": "say `draft`",
    "speculative_num_steps": "say `space.num_steps`",
    "speculative_eagle_topk": "say `space.eagle_topk`",
    "speculative_num_draft_tokens": "say `space.num_draft_tokens`",
    "decrypted_draft_config_file": "say `space.layout`",
    "tp_size": "say `space.tp_size`",
    "tp": "say `space.tp_size`",
    "tensor_parallel_size": "say `space.tp_size`",
    "device": "say `engine.device`",
    "base_gpu_id": "every server sees exactly its own GPUs, numbered from 0",
    "gpu_id_step": "every server sees exactly its own GPUs, numbered from 0",
    "nccl_port": "it is chosen to be free",
    "nnodes": "a server runs on one node",
    "node_rank": "a server runs on one node",
    "dist_init_addr": "a server runs on one node",
    "enable_metrics": "it is always on",
    "api_key": _NO_KEYS,
    "admin_api_key": _NO_KEYS,
    "speculative_adaptive": "a triple that changes by itself cannot be measured",
    "config": "its contents would not be seen here; write the arguments into `engine.args`",
}
"""SGLang arguments that are set here and nowhere else, and what to do instead."""


OWNED_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "it comes from the GPUs that the group holds",
    "SPECSWEEP_ID": "by it a server's processes are found again",
    "SPT_NOENV": "without it a server's processes are not found again",
    "TMPDIR": "set it where the actors run",
}


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """One group's servers. Picklable, so that it can travel to an actor; checks itself with InputError.

    `python` is the interpreter that has SGLang (`sglang_version`). `args` are further SGLang arguments in snake_case,
    `environment` variables for the server alone; both win over defaults, and a trial's flags win over `args`.
    `device_ids` are the accelerators this group holds, as Ray names them; on a CPU they may be empty. `slot` tells
    the groups of one sweep on one node apart: two live engines must never share (`sweep_id`, `slot`). `work_dir` is
    for this engine alone. `stand_ins` names packages to be replaced by the CPU stand-ins (`preflight.find_engine`
    says which). With `allow_simulated`, acceptance may be simulated on purpose; every observation then says so.
    """

    target: TargetFacts
    draft: DraftFacts
    sglang_version: str
    device: Device
    work_dir: Path
    sweep_id: str
    slot: str
    device_ids: tuple[str, ...] = ()
    python: str = sys.executable
    args: Mapping[str, FlagValue] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    stand_ins: frozenset[str] = frozenset()
    host: str = "127.0.0.1"
    port: int | None = None
    start_method: StartMethod = "spawn"
    ready_timeout_s: float = 900.0
    stop_grace_s: float = 1.0
    random_seed: int = 0
    max_running_requests: int = DEFAULT_MAX_RUNNING_REQUESTS
    port_attempts: int = 3
    allow_simulated: bool = False

    def __post_init__(self) -> None:
        for name in sorted(set(self.args) & set(OWNED_ARGS)):
            raise InputError(f"engine.args.{name}: not allowed here; {OWNED_ARGS[name]}")
        for name in self.args:
            if not name.isidentifier() or name != name.lower():
                raise InputError(f"engine.args.{name}: write SGLang's arguments in snake_case without dashes")
        for name in sorted(set(self.environment) & set(OWNED_VARIABLES)):
            raise InputError(f"engine.env.{name}: not allowed here; {OWNED_VARIABLES[name]}")
        if self.start_method == "fork" and self.device != "cpu":
            raise InputError("engine.start_method: fork works on device cpu only; legal for cuda: spawn")
        if "/" in self.sweep_id or "/" in self.slot:
            raise ValueError(f"sweep_id and slot must not hold a slash: {self.sweep_id!r}, {self.slot!r}")

    @property
    def owner(self) -> str:
        """The mark that every process of this engine carries."""
        return f"{self.sweep_id}/{self.slot}"
