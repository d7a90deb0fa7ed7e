from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.engines.flushing import FlushRefusal, judge_flush


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, "", "the server refused to flush (HTTP 400): requests are running"),
        (400, "Flush cache failed.\n", "the server refused to flush (HTTP 400): Flush cache failed."),
        (404, '{"detail":"Not Found"}', 'the server refused to flush (HTTP 404): {"detail":"Not Found"}'),
        (503, "", "the server refused to flush (HTTP 503): Service Unavailable"),
        (599, " ", "the server refused to flush (HTTP 599): no reason given"),
    ],
)
def test_the_reason_holds_code_and_words(status: int, body: str, reason: str) -> None:
    assert judge_flush(status, body) == FlushRefusal(reason=reason, busy=status == 400)


@given(st.integers(100, 599), st.text())
def test_only_200_has_flushed_and_only_400_is_busy(status: int, body: str) -> None:
    refused = judge_flush(status, body)
    assert (refused is None) == (status == 200)
    if refused is not None:
        assert refused.busy == (status == 400)
        assert len(refused.reason.splitlines()) == 1
