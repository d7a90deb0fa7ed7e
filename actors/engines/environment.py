"""The server's environment: an allow-list, because workers inherit whatever the machine's Ray was started with."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from actors.engines.cpu_kernels import stand_in_paths
from actors.engines.server_spec import ServerSpec
from results.failures import Failure

PASSED_ON = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TZ|TERM"
    r"|LD_LIBRARY_PATH|LIBRARY_PATH|CPATH|VIRTUAL_ENV|CONDA_PREFIX"
    r"|CUDA_HOME|CUDA_PATH|CUDA_DEVICE_ORDER|CUDA_MODULE_LOADING|CUDA_CACHE_PATH|NVIDIA_[A-Z_]+"
    r"|NCCL_\w+|GLOO_\w+|TORCH_\w+|TORCHINDUCTOR_\w+|PYTORCH_\w+|TRITON_\w+|FLASHINFER_\w+|MC_\w+|UCX_\w+"
    r"|HF_\w+|HUGGINGFACE_HUB_CACHE|TRANSFORMERS_CACHE|TRANSFORMERS_OFFLINE|MODELSCOPE_CACHE|XDG_[A-Z_]+"
    r"|OMP_NUM_THREADS|MKL_NUM_THREADS"
    r"|[a-z]+_proxy|[A-Z]+_PROXY|SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE"
)
"""Names that reach the server from its parent. PYTHON*, RAY_* and SGLANG_* do not: `engine.env` alone sets those."""

SIMULATION = re.compile(r"SGLANG_(DSPARK_)?SIMULATE_\w+")
"""Switches that replace real acceptance, or real routing, by a chosen one (srt/environ.py)."""

POISON: Mapping[str, str] = {
    "SGLANG_IS_IN_CI": "it changes what SGLang's tools do without saying so",
    "SGLANG_IS_IN_CI_AMD": "it changes what SGLang's tools do without saying so",
    "MLFLOW_RUN_ID": "it would redirect every logged run into that one",
}
"""Further variables that must not be set where actors run."""


NO_PROXY = ("NO_PROXY", "no_proxy")
"""SGLang sends requests to itself on the loopback address, which no proxy can reach."""

_INHERITED = "is set where servers would start (a Ray worker has its node's environment); unset it there"


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The server's whole environment, and the names of SGLang's variables that were not passed on.

    `needed` are those of ours without which the command would not serve on this device when typed by hand.
    """

    variables: Mapping[str, str]
    withheld: tuple[str, ...]
    needed: tuple[tuple[str, str], ...] = ()


def is_simulating(environment: Mapping[str, str]) -> str | None:
    """`NAME=value` of the first variable that makes acceptance or routing simulated, None when there is none.

    SGLANG_SIMULATE_ACC_LEN is on above 0 (speculative/spec_utils.py), other switches when true; the method and token
    mode of a simulation do nothing by themselves.
    """
    for name in sorted(environment):
        value = environment[name].strip()
        if not SIMULATION.fullmatch(name) or name.endswith(("_METHOD", "_TOKEN_MODE")):
            continue
        if value.lower() not in ("", "0", "false", "no", "off") and not _is_at_most_zero(value):
            return f"{name}={value}"
    return None


def _is_at_most_zero(value: str) -> bool:
    try:
        return float(value) <= 0
    except ValueError:
        return False


def find_poison(inherited: Mapping[str, str]) -> str | None:
    """One line on the first inherited variable under which nothing measured can be trusted; None when all is well."""
    simulating = is_simulating(inherited)
    if simulating:
        return f"simulated acceptance is on: {simulating} {_INHERITED}"
    for name, why in POISON.items():
        if inherited.get(name, "").lower() not in ("", "0", "false"):
            return f"{name} {_INHERITED}: {why}"
    return None


def build_environment(
    spec: ServerSpec, inherited: Mapping[str, str], world_size: int, scratch: Path
) -> Environment | Failure:
    """The environment of a server of `world_size` workers (tp x pp), or why none may be started.

    `scratch` becomes its TMPDIR: SGLang leaves sockets and lock files there. CUDA_VISIBLE_DEVICES always comes from
    the ids the group holds and never from the parent, which has it unset, empty or unnarrowed depending on Ray's
    settings (RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES, actors without GPUs).
    """
    problem = find_poison(inherited)
    if problem:
        return Failure(phase="launch", kind="simulated" if is_simulating(inherited) else "environment", message=problem)
    simulating = is_simulating(spec.environment)
    if simulating and not spec.allow_simulated:
        message = f"simulated acceptance is on: engine.env sets {simulating}, so nothing measured would be true"
        return Failure(phase="launch", kind="simulated", message=message)
    problem = device_problem(spec, world_size)
    if problem:
        return Failure(phase="placement", kind="bad_config", message=problem)
    variables = {name: value for name, value in inherited.items() if PASSED_ON.fullmatch(name)}
    variables |= {
        "TMPDIR": str(scratch),
        "PYTHONUNBUFFERED": "1",
        "SPT_NOENV": "1",  # setproctitle must not overwrite the environment, by which leftovers are found
        "TOKENIZERS_PARALLELISM": "false",
    }
    variables |= {name: ",".join([*_values(inherited, name), "127.0.0.1", "localhost"]) for name in NO_PROXY}
    path = [str(folder) for folder in stand_in_paths(spec.stand_ins)]
    needed = _device_variables(spec, world_size)
    variables |= needed
    variables |= spec.environment
    if path:
        needed["PYTHONPATH"] = ":".join(path)
        variables["PYTHONPATH"] = ":".join([*path, *filter(None, [spec.environment.get("PYTHONPATH")])])
    needed.pop("CUDA_VISIBLE_DEVICES", None)  # which GPUs is the user's choice
    withheld = sorted(name for name in inherited if name.startswith("SGLANG_") and name not in spec.environment)
    return Environment(variables=variables, withheld=tuple(withheld), needed=tuple(sorted(needed.items())))


def _values(inherited: Mapping[str, str], name: str) -> list[str]:
    return [inherited[name]] if inherited.get(name) else []


def device_problem(spec: ServerSpec, world_size: int) -> str | None:
    """Why a server of this size must not start on the devices that the group holds; None when it may."""
    held = spec.device_ids
    if len(set(held)) != len(held):
        return f"the group holds a GPU twice: {', '.join(held)}"
    if len(held) == world_size or (spec.device == "cpu" and not held):
        return None
    noun = "GPUs" if spec.device == "cuda" else "CPU slots"
    return f"the group holds {len(held)} {noun} ({', '.join(held) or 'none'}), but tp x pp needs exactly {world_size}"


def _device_variables(spec: ServerSpec, world_size: int) -> dict[str, str]:
    if spec.device == "cuda":
        return {"CUDA_VISIBLE_DEVICES": ",".join(spec.device_ids)}
    variables = {"SGLANG_USE_CPU_ENGINE": "1", "CUDA_VISIBLE_DEVICES": ""}  # the first: utils/common.py, is_cpu
    if world_size > 1:  # with fewer NUMA nodes than workers, utils/numa_utils.py asserts unless told who runs where
        variables["SGLANG_CPU_OMP_THREADS_BIND"] = bind_cores(sorted(os.sched_getaffinity(0)), world_size)
    if spec.stand_ins:
        variables["OMP_NUM_THREADS"] = "1"
        variables["TORCHDYNAMO_DISABLE"] = "1"  # or the first request compiles for 18 s (speculative/spec_utils.py)
    return variables


def bind_cores(cores: list[int], workers: int) -> str:
    """SGLANG_CPU_OMP_THREADS_BIND: each worker's cores, by commas, workers by bars; shared when there are too few."""
    share = max(1, len(cores) // workers)
    groups = [[cores[(rank * share + i) % len(cores)] for i in range(share)] for rank in range(workers)]
    return "|".join(",".join(map(str, group)) for group in groups)
