"""Why a cell's number is missing: every value of a summary that is None has a sentence here, under its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from results.degenerate import MIN_TOKENS, TextStatistics
from results.observations import CellObservation, RequestRow
from results.trust import cached_share
from search_spaces.config import Triple

_NO_SUCCESS = "no request succeeded"


def cross_check_reasons(observation: CellObservation, triple: Triple | None) -> Mapping[str, str]:
    """For the two accept lengths that the server gives by itself, where they are missing."""
    found = {}
    if observation.server_accept_length is None:
        found["server_accept_length"] = observation.server_accept_length_reason or "the server reports none"
    if triple is None:
        found["counted_accept_length"] = "no speculation"
    elif observation.counted_tokens is None:
        found["counted_accept_length"] = observation.counted_reason or "the server's counters were not read"
    elif not observation.counted_verify_steps:
        found["counted_accept_length"] = "the server's counters saw no verify step"
    return found


def latency_reasons(rows: Sequence[RequestRow], values: Mapping[str, Sequence[float]]) -> Mapping[str, str]:
    """For the latencies without values, by their prefix (`ttft_ms`): `rows` are the requests that succeeded."""
    found: dict[str, str] = {}
    for name, of in values.items():
        if of:
            continue
        if not rows:
            reason = _NO_SUCCESS
        elif name == "e2e_ms":
            reason = "when the requests that were sent again were first sent was not kept"
        elif not any(row.chunk_times_s for row in rows):
            reason = "no request streamed a first token"
        else:
            reason = "no streamed request has two tokens" if name == "tpot_ms" else "no request streamed a second chunk"
        found |= {f"{name}_p50": reason, f"{name}_p99": reason}
        if name == "itl_ms":
            found |= {"tokens_per_chunk": reason, "itl_is_per_chunk": reason}
    return found


def text_reasons(rows: Sequence[RequestRow], text: TextStatistics) -> Mapping[str, str]:
    """For what is said of the prompts and the outputs."""
    found = {}
    if cached_share(rows) is None:
        found["cached_token_share"] = "the server counts no cached tokens" if rows else _NO_SUCCESS
    if text.bigram_share is None:
        found["distinct_bigram_share"] = "no output has two tokens"
    if not text.judged:
        found["degenerate_share"] = f"no output has the {MIN_TOKENS} tokens that it takes to judge one"
    return found
