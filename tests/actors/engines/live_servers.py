"""Asking real servers of the demo pair: what each prompt took, and traces of it."""

from __future__ import annotations

import json
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from server_specs import real_spec
from tiny_models import TinyPair

from actors.engines.server_spec import ServerSpec
from actors.load.workload import Workload, prompt_of
from results.failures import Failure
from results.observations import LaunchObservation
from search_spaces.config import EngineConfig, Triple

SPECS = Path(__file__).parents[3] / "sweeps" / "specs"
TRAINED, DEFAULT = (0, 3, 7), (2, 4, 5)


@dataclass(frozen=True, kw_only=True)
class Took:
    """One prompt's answer and what it took."""

    verify_steps: int
    histogram: tuple[int, ...]
    output_ids: tuple[int, ...]


def demo_spec(work_dir: Path) -> ServerSpec:
    pair = TinyPair(target=SPECS / "demo_pair" / "target", draft=SPECS / "demo_pair" / "draft")
    return real_spec(pair, work_dir, args={"context_length": 512, "max_total_tokens": 8192})


def demo_workload(prompts: int, tokens: int) -> Workload:
    lines = (SPECS / "demo_prompts.jsonl").read_text().splitlines()
    texts = list(dict.fromkeys(json.loads(line)["text"] for line in lines))[:prompts]
    return Workload(
        prompts=tuple(prompt_of(text) for text in texts),
        warmup=(),
        concurrency=(1,),
        max_new_tokens=tokens,
        temperature=0,
        ignore_eos=True,
        stream=False,
        request_timeout_s=240,
        max_attempts=1,
    )


def config(layout: tuple[int, ...], triple: tuple[int, int, int], tp_size: int = 1) -> EngineConfig:
    steps, topk, tokens = triple
    return EngineConfig(
        layout=layout, triple=Triple(num_steps=steps, eagle_topk=topk, num_draft_tokens=tokens), tp_size=tp_size
    )


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
