"""Placement: from a demand and a cluster's resources to one bundle on one node, or to what the cluster lacks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Device = Literal["cpu", "cuda"]

GROUP_CPUS = 1
"""CPUs that Ray reserves for a GPU group: the actor only watches a subprocess."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One live node of the cluster with its total logical resources, used or not."""

    node_id: str
    cpus: float
    gpus: float


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What one GPU group reserves, always on a single node.

    Ray 2.60 refuses an actor of four GPUs inside four bundles of one GPU each, and gives an actor without GPUs no
    device ids at all; so a group is one bundle of tp GPUs and its actor asks for exactly that.
    """

    cpus: int
    gpus: int

    @property
    def resources(self) -> dict[str, float]:
        """The bundle in Ray's words."""
        return {"CPU": float(self.cpus)} | ({"GPU": float(self.gpus)} if self.gpus else {})

    def fits(self, node: Node) -> bool:
        return self.cpus <= node.cpus and self.gpus <= node.gpus

    def __str__(self) -> str:
        return f"{self.gpus} GPUs and {self.cpus} CPUs" if self.gpus else f"{self.cpus} CPUs"


@dataclass(frozen=True, kw_only=True)
class Held:
    """A bundle that one of our groups holds, and where."""

    node_id: str
    bundle: Bundle


@dataclass(frozen=True, kw_only=True)
class Placed:
    """There is room now on this node."""

    node_id: str
    bundle: Bundle


@dataclass(frozen=True, kw_only=True)
class Occupied:
    """There will be room once our own groups have finished."""

    bundle: Bundle


@dataclass(frozen=True, kw_only=True)
class Infeasible:
    """No node of the cluster could ever hold it. `reason` is one line that says what is missing."""

    reason: str


def bundle_of(tp_size: int, device: Device) -> Bundle:
    """The bundle of a server with `tp_size` ranks: GPUs with CUDA, as many CPU slots on a machine without."""
    return Bundle(cpus=GROUP_CPUS, gpus=tp_size) if device == "cuda" else Bundle(cpus=tp_size, gpus=0)


def place(
    tp_size: int, device: Device, nodes: Iterable[Node], held: Iterable[Held] = ()
) -> Placed | Occupied | Infeasible:
    """Where a group of this size goes: the node with the least room that holds it, so that big groups keep theirs."""
    nodes = tuple(nodes)
    bundle = bundle_of(tp_size, device)
    if not any(bundle.fits(node) for node in nodes):
        return Infeasible(reason=_lack(tp_size, bundle, nodes))
    free = _free(nodes, held)
    roomy = sorted((node for node in free if bundle.fits(node)), key=lambda node: (node.gpus, node.cpus, node.node_id))
    return Placed(node_id=roomy[0].node_id, bundle=bundle) if roomy else Occupied(bundle=bundle)


def _free(nodes: tuple[Node, ...], held: Iterable[Held]) -> list[Node]:
    used: dict[str, tuple[int, int]] = {}
    for item in held:
        cpus, gpus = used.get(item.node_id, (0, 0))
        used[item.node_id] = (cpus + item.bundle.cpus, gpus + item.bundle.gpus)
    return [
        Node(node_id=node.node_id, cpus=node.cpus - cpus, gpus=node.gpus - gpus)
        for node in nodes
        for cpus, gpus in [used.get(node.node_id, (0, 0))]
    ]


def _lack(tp_size: int, bundle: Bundle, nodes: tuple[Node, ...]) -> str:
    need = f"tp_size {tp_size} needs {bundle} on one node"
    if not nodes:
        return f"{need}; the cluster has no live node"
    largest = max(nodes, key=lambda node: (node.gpus, node.cpus) if bundle.gpus else (node.cpus, node.gpus))
    have = f"the largest of {len(nodes)} nodes has {largest.gpus:g} GPUs and {largest.cpus:g} CPUs"
    together = Node(node_id="all", cpus=sum(node.cpus for node in nodes), gpus=sum(node.gpus for node in nodes))
    over = "; one server over several nodes is not supported" if len(nodes) > 1 and bundle.fits(together) else ""
    return f"{need}; {have}{over}"


def device_problem(
    tp_size: int, device: Device, accelerator_ids: tuple[str, ...], resources: Mapping[str, float]
) -> str | None:
    """Why an actor must not launch: it holds other than exactly `tp_size` devices. None when it may.

    An actor without GPUs of its own sees every GPU of the node (Ray 2.60 leaves CUDA_VISIBLE_DEVICES unset), so two
    servers would share the first ones without a word.
    """
    if device == "cuda":
        if len(accelerator_ids) == tp_size and len(set(accelerator_ids)) == tp_size:
            return None
        return f"the group's actor holds GPUs {list(accelerator_ids)}, tp_size {tp_size} needs exactly {tp_size}"
    cpus = resources.get("CPU", 0.0)
    return None if cpus == tp_size else f"the group's actor holds {cpus:g} CPU slots, tp_size {tp_size} needs {tp_size}"
