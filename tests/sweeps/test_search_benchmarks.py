"""Accounts of the search benchmarks: what is confirmed, what SGLang's script runs, what the published tables hold."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.grid_bill import fewest, runnable, script_order
from benchmarks.published_grids import DATA, METHODS, measurements, read_tables
from search_spaces.config import Triple

TRIPLES = [Triple(num_steps=s, eagle_topk=1, num_draft_tokens=s + 1) for s in range(1, 6)]


@given(st.lists(st.sets(st.sampled_from(TRIPLES), min_size=1), min_size=1, max_size=4))
def test_as_few_launches_as_possible_confirm_every_concurrency(found: list[set[Triple]]) -> None:
    chosen = fewest(dict(enumerate(found)))
    assert all(set(chosen) & triples for triples in found)
    assert len(chosen) <= len(found)
    assert (len(chosen) == 1) == bool(set.intersection(*found))


def test_the_script_makes_48_launches_of_which_28_are_distinct_and_run() -> None:
    order = list(script_order())
    assert len(order) == 48
    assert order.count(None) == 1
    runs = [runnable(asked) for asked in order if asked is not None]
    assert len({triple for triple in runs if triple is not None}) == 28


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_a_published_table_names_its_source_and_can_be_searched(path) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["source"]["url"].startswith("https://")
    assert {"title", "where"} <= content["source"].keys()
    tables = read_tables(path)
    assert len(tables) == len(content["loads"])
    for table in tables:
        assert len(table.throughputs) == len(content["settings"])
        for length in table.lengths.values.values():
            assert length >= 1
    assert 1 <= measurements(tables[0], METHODS["random"](tables[0], 0), 0) <= len(tables[0].throughputs)
