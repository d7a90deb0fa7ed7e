"""Placement is a pure function from a demand and nodes to a bundle, or to what is missing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.placement import (
    Bundle,
    Held,
    Infeasible,
    Node,
    Occupied,
    Placed,
    bundle_of,
    device_problem,
    place,
)

EIGHT = Node(node_id="a", cpus=32, gpus=8)


def test_a_group_is_one_bundle_of_all_its_gpus() -> None:
    assert bundle_of(4, "cuda").resources == {"GPU": 4.0, "CPU": 1.0}
    assert bundle_of(2, "cpu").resources == {"CPU": 2.0}


def test_more_gpus_than_the_largest_node_are_refused_with_the_numbers() -> None:
    found = place(4, "cuda", [Node(node_id="a", cpus=8, gpus=2), Node(node_id="b", cpus=8, gpus=2)])
    assert isinstance(found, Infeasible)
    assert found.reason == (
        "tp_size 4 needs 4 GPUs and 1 CPUs on one node; the largest of 2 nodes has 2 GPUs and 8 CPUs; "
        "one server over several nodes is not supported"
    )


def test_a_cluster_without_gpus_is_refused_not_waited_for() -> None:
    found = place(1, "cuda", [Node(node_id="a", cpus=64, gpus=0)])
    assert isinstance(found, Infeasible)
    assert (
        found.reason == "tp_size 1 needs 1 GPUs and 1 CPUs on one node; the largest of 1 nodes has 0 GPUs and 64 CPUs"
    )
    assert place(1, "cpu", []) == Infeasible(reason="tp_size 1 needs 1 CPUs on one node; the cluster has no live node")


def test_gpus_spread_over_nodes_do_not_make_room_for_a_group() -> None:
    nodes = [Node(node_id="a", cpus=8, gpus=4), Node(node_id="b", cpus=8, gpus=4)]
    held = [Held(node_id=node, bundle=Bundle(cpus=1, gpus=2)) for node in "ab"]
    assert place(4, "cuda", nodes, held) == Occupied(bundle=Bundle(cpus=1, gpus=4))
    assert isinstance(place(2, "cuda", nodes, held), Placed)


def test_the_fullest_node_that_fits_is_taken() -> None:
    nodes = [EIGHT, Node(node_id="b", cpus=32, gpus=8)]
    held = [Held(node_id="b", bundle=Bundle(cpus=1, gpus=6))]
    assert place(2, "cuda", nodes, held) == Placed(node_id="b", bundle=Bundle(cpus=1, gpus=2))
    assert place(4, "cuda", nodes, held) == Placed(node_id="a", bundle=Bundle(cpus=1, gpus=4))


@given(
    sizes=st.lists(st.integers(1, 8), max_size=12),
    gpus=st.lists(st.integers(0, 8), min_size=1, max_size=4),
)
def test_placing_one_after_the_other_never_overfills_a_node(sizes: list[int], gpus: list[int]) -> None:
    nodes = [Node(node_id=str(i), cpus=100, gpus=count) for i, count in enumerate(gpus)]
    held: list[Held] = []
    for size in sizes:
        found = place(size, "cuda", nodes, held)
        if isinstance(found, Placed):
            held.append(Held(node_id=found.node_id, bundle=found.bundle))
        else:
            # refused for ever exactly when no node is large enough
            assert isinstance(found, Infeasible) == (size > max(gpus))
    for node in nodes:
        assert sum(item.bundle.gpus for item in held if item.node_id == node.node_id) <= node.gpus


def test_an_actor_must_hold_exactly_its_devices() -> None:
    assert device_problem(2, "cuda", ("6", "7"), {"GPU": 2.0, "CPU": 1.0}) is None
    for ids in ((), ("0",), ("0", "1", "2"), ("3", "3")):
        problem = device_problem(2, "cuda", ids, {})
        assert problem == f"the group's actor holds GPUs {list(ids)}, tp_size 2 needs exactly 2"
    assert device_problem(2, "cpu", (), {"CPU": 2.0}) is None
    assert device_problem(2, "cpu", (), {"CPU": 1.0}) == "the group's actor holds 1 CPU slots, tp_size 2 needs 2"
