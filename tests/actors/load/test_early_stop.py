"""The rule is asked seldom, beside the load, and its own trouble is not hidden."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from load_builders import numbered_workload

from actors.load.arrivals import closed_loop
from actors.load.client import Sent
from actors.load.early_stop import EarlyStop
from actors.load.generate_stream import GenerateStream
from actors.load.request_rows import failed_row
from actors.load.workload import Prompt, Workload
from results.observations import RequestRow


async def send(prompt: Prompt) -> Sent:
    await asyncio.sleep(0.001)
    row = failed_row(
        prompt.prompt_id, GenerateStream(), sent_s=0.0, first_sent_s=0.0, now_s=1.0, attempts=1, error="none"
    )
    return Sent(row=row, attempt_failures=("refused",))


def run(workload: Workload, early: EarlyStop, concurrency: int) -> list[Sent]:
    async def load() -> list[Sent]:
        sent = await closed_loop(workload.prompts, concurrency, early.watched(send), enough=early.enough)
        await early.close()
        return sent

    return asyncio.run(load())


def test_it_is_asked_ever_more_seldom_and_of_all_rows() -> None:
    asked: list[int] = []

    def never(rows: Sequence[RequestRow]) -> str | None:
        asked.append(len(rows))
        return None

    workload = numbered_workload(300)
    assert len(run(workload, EarlyStop(never, 4), 4)) == 300
    assert asked == sorted(asked)
    assert asked[0] >= 4
    assert all(after - before >= max(4, before // 10) for before, after in itertools.pairwise(asked))
    assert len(asked) <= 35


def test_it_stops_soon_after_the_rule_says_so() -> None:
    early = EarlyStop(lambda rows: f"{len(rows)} are plenty" if len(rows) >= 20 else None, 2)
    sent = run(numbered_workload(200), early, 2)
    assert 20 <= len(sent) < 60
    assert early.reason is not None
    assert early.reason.endswith("are plenty")


def test_a_rule_that_breaks_is_not_silent() -> None:
    def broken(rows: Sequence[RequestRow]) -> str | None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(numbered_workload(20), EarlyStop(broken, 2), 2)
