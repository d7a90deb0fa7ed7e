"""SGLang's own argument resolution against our rules, before any launch. Where they differ, the engine wins."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from actors.engines.command import server_args
from actors.engines.preflight import FoundEngine, Resolution, ask_engine
from actors.engines.server_spec import ServerSpec
from search_spaces.config import EngineConfig
from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)

MOST_ASKED = 2000
"""Configurations asked about at one start: some 0.03 s each. Later ones show what they are when they are launched."""


def refusals(engine: FoundEngine, server: ServerSpec, configs: Sequence[EngineConfig]) -> Mapping[EngineConfig, str]:
    """Why the engine would not run some of these as our rules expect it to, one line each.

    Takes seconds: SGLang is imported once, in a process of its own. Nothing is refused when the engine cannot be asked
    (a release without this interface): every launch is verified anyway.
    """
    asked = configs[:MOST_ASKED]
    questions = [server_args(server, config, port=30000, rendezvous_port=30100, draft_config=None) for config in asked]
    try:
        answers = ask_engine(engine, server.device, questions)
    except EnvironmentProblem as problem:
        logger.warning("SGLang was not asked about its arguments: %s", problem)
        return {}
    found = {config: why for config, answer in zip(asked, answers, strict=True) if (why := objection(config, answer))}
    for config, why in found.items():
        logger.warning("%s at tp %d will not be launched: %s", config.triple, config.tp_size, why)
    return found


def objection(config: EngineConfig, answer: Resolution) -> str | None:
    """Why one resolution is not the configuration we expect; None when it is. Pure."""
    if answer.error is not None:
        return f"SGLang refuses its arguments: {' '.join(answer.error.split())}"
    if answer.triple != config.triple:
        return f"SGLang makes {answer.triple or 'no speculation'} of {config.triple or 'no speculation'}"
    return None
