"""Real servers in tests and benchmarks: specs of the demo pair, workloads, and asking a server prompt by prompt."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server_specs import real_spec, speculative
from tiny_models import TinyPair

from actors.engines.server_spec import ServerSpec
from actors.engines.sglang_server import SglangServer
from actors.load.workload import Workload, prompt_of
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig

SPECS = Path(__file__).parents[1] / "sweeps" / "specs"
TRAINED, DEFAULT = (0, 3, 7), (2, 4, 5)


@dataclass(frozen=True, kw_only=True)
class Took:
    """One prompt's answer and what it took."""

    verify_steps: int
    histogram: tuple[int, ...]
    output_ids: tuple[int, ...]


def demo_spec(work_dir: Path, pair: Path = SPECS / "demo_pair", **changes: Any) -> ServerSpec:
    """Servers of a pair with the demo's sizes; `pair` holds `target` and `draft`."""
    args = {"context_length": 512, "max_total_tokens": 8192} | changes.pop("args", {})
    return real_spec(TinyPair(target=pair / "target", draft=pair / "draft"), work_dir, args=args, **changes)


def demo_texts(count: int, file: Path = SPECS / "demo_prompts.jsonl") -> list[str]:
    """The first different prompts of a file, by default the demo's."""
    return list(dict.fromkeys(json.loads(line)["text"] for line in file.read_text().splitlines()))[:count]


def demo_workload(prompts: int, tokens: int) -> Workload:
    return greedy_workload(demo_texts(prompts), tokens)


def greedy_workload(texts: Sequence[str], tokens: int, **changes: Any) -> Workload:
    """Every text once, at temperature 0, always `tokens` long, one at a time, without a warm-up."""
    values: dict[str, Any] = {
        "prompts": tuple(prompt_of(text) for text in texts),
        "warmup": (),
        "concurrency": (1,),
        "max_new_tokens": tokens,
        "temperature": 0.0,
        "ignore_eos": True,
        "stream": False,
        "request_timeout_s": 240.0,
        "max_attempts": 1,
    }
    return Workload(**values | changes)


def config(layout: tuple[int, ...], triple: tuple[int, int, int], tp_size: int = 1) -> EngineConfig:
    return speculative(*triple, layout=layout, tp_size=tp_size)


@contextmanager
def running(spec: ServerSpec, config: EngineConfig) -> Iterator[SglangServer]:
    """A real server in this configuration; it ends with the block."""
    engine = SglangServer(spec)
    try:
        launched(engine.apply(config))
        yield engine
    finally:
        engine.close()


def launched(outcome: LaunchObservation | Failure) -> LaunchObservation:
    assert isinstance(outcome, LaunchObservation), outcome
    return outcome


def ask_all(base_url: str, load: Workload, at_once: int = 1) -> dict[str, Took]:
    """Every prompt's answer by its id, `at_once` of them at a time."""

    def ask(text: str) -> Took:
        sampling = {"temperature": 0, "max_new_tokens": load.max_new_tokens, "ignore_eos": True}
        body = json.dumps({"text": text, "sampling_params": sampling}).encode()
        request = urllib.request.Request(base_url + "/generate", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=load.request_timeout_s) as answer:
            content = json.load(answer)
        meta = content["meta_info"]
        return Took(
            verify_steps=meta["spec_verify_ct"],
            histogram=tuple(meta["spec_correct_drafts_histogram"]),
            output_ids=tuple(content["output_ids"]),
        )

    with ThreadPoolExecutor(at_once) as pool:
        answers = pool.map(ask, [prompt.text for prompt in load.prompts])
        return {prompt.prompt_id: answer for prompt, answer in zip(load.prompts, answers, strict=True)}
