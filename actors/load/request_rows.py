"""Rows out of answers: what one request's observation keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.load.generate_stream import GenerateStream
from results.observations import RequestRow


def answered_row(
    prompt_id: str,
    stream: GenerateStream,
    answer: Mapping[str, Any],
    *,
    sent_s: float,
    first_sent_s: float,
    now_s: float,
    attempts: int,
) -> RequestRow:
    """The row of an answered request. `now_s` is when a whole (not streamed) answer had arrived.

    A streamed answer is finished with its last event that is not `[DONE]`. Counters that the server did not give are
    None: without speculation it gives none.
    """
    meta = answer["meta_info"]
    finish = meta.get("finish_reason")
    histogram = meta.get("spec_correct_drafts_histogram")
    return RequestRow(
        prompt_id=prompt_id,
        sent_s=sent_s,
        first_token_s=stream.chunk_times_s[0] if stream.chunk_times_s else None,
        finished_s=now_s if stream.finished_s is None else stream.finished_s,
        chunk_times_s=tuple(stream.chunk_times_s),
        chunk_tokens=tuple(stream.chunk_tokens),
        prompt_tokens=meta["prompt_tokens"],
        cached_tokens=meta.get("cached_tokens"),
        completion_tokens=meta["completion_tokens"],
        verify_steps=meta.get("spec_verify_ct"),
        proposed_drafts=meta.get("spec_num_proposed_drafts"),
        correct_drafts=meta.get("spec_num_correct_drafts"),
        histogram=None if histogram is None else tuple(histogram),
        output_ids=tuple(answer.get("output_ids") or ()),
        finish_reason=finish.get("type") if isinstance(finish, dict) else finish,
        attempts=attempts,
        error=None,
        first_sent_s=first_sent_s,
    )


def failed_row(
    prompt_id: str,
    stream: GenerateStream,
    *,
    sent_s: float,
    first_sent_s: float,
    now_s: float,
    attempts: int,
    error: str,
) -> RequestRow:
    """The row of a request that failed for good: what its last attempt had delivered until then, and no counters."""
    return RequestRow(
        prompt_id=prompt_id,
        sent_s=sent_s,
        first_token_s=stream.chunk_times_s[0] if stream.chunk_times_s else None,
        finished_s=now_s,
        chunk_times_s=tuple(stream.chunk_times_s),
        chunk_tokens=tuple(stream.chunk_tokens),
        prompt_tokens=0,
        cached_tokens=None,
        completion_tokens=sum(stream.chunk_tokens),
        verify_steps=None,
        proposed_drafts=None,
        correct_drafts=None,
        histogram=None,
        output_ids=(),
        finish_reason=None,
        attempts=attempts,
        error=error,
        first_sent_s=first_sent_s,
    )
