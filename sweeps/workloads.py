"""From a spec to what is sent: the prompts are chosen and go through the target's chat template."""

from __future__ import annotations

from pathlib import Path

from actors.load.prompts import LengthLimits, choose_prompts
from actors.load.workload import Workload
from sweeps.spec_schema import SweepSpec


def make_workload(spec: SweepSpec) -> Workload:
    """Reads the prompts of a spec from `load_spec`. InputError when they are unreadable or too few."""
    asked = spec.workload
    chosen = choose_prompts(
        asked.prompts if isinstance(asked.prompts, int) or not asked.prompts.startswith("/") else Path(asked.prompts),
        seed=asked.seed,
        count=asked.count,
        warmup_count=asked.warmup_prompts,
        text_field=asked.text_field,
        target_path=Path(spec.target),
        limits=LengthLimits(min_tokens=asked.min_prompt_tokens, max_tokens=asked.max_prompt_tokens),
    )
    return Workload(
        prompts=chosen.prompts,
        warmup=chosen.warmup,
        concurrency=asked.concurrency,
        max_new_tokens=asked.max_new_tokens,
        temperature=asked.temperature,
        ignore_eos=asked.ignore_eos,
        stream=asked.stream,
        request_timeout_s=spec.engine.request_timeout_s,
        max_attempts=asked.max_attempts,
        request_rate=asked.request_rate,
        arrival_seed=asked.seed,
        template_hash=chosen.template_hash,
        api_key_env=spec.engine.api_key_env,
        half_width=asked.half_width,
        min_prompts=asked.min_prompts,
    )
