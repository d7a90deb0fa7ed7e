"""A sweep on a server that runs already: its space is what the server runs, and nothing is started or stopped."""

from __future__ import annotations

from actors.engine_factories import EndpointFactory
from actors.engines.endpoint import Endpoint, runs
from search_spaces.config import Triple
from search_spaces.errors import InputError
from sweeps.spec_engine import EndpointSpec
from sweeps.spec_schema import SweepSpec
from sweeps.spec_space import SpaceSpec

NUMBERS = ("num_steps", "eagle_topk", "num_draft_tokens")


def adopted(spec: SweepSpec) -> SweepSpec:
    """The spec with what its endpoint runs filled in, as its study keeps it; any other spec as it is.

    InputError when the space asks for something that the server does not run; EnvironmentProblem when it does not
    answer.
    """
    if not isinstance(spec.engine, EndpointSpec):
        return spec
    endpoint = endpoint_of(spec.engine)
    info = endpoint.server_info()
    triple, tp_size = runs(info)
    if triple is None:
        raise InputError(
            f"engine.url: the server at {endpoint.base_url} does not speculate, so there is no setting to study; "
            "`specsweep measure` measures it"
        )
    _require_same(spec.space, triple, tp_size)
    space = {name: (getattr(triple, name),) for name in NUMBERS} | {"tp_size": (tp_size,)}
    version = info.get("version")
    return spec.model_copy(
        update={
            "space": spec.space.model_copy(update=space),
            "engine": spec.engine.model_copy(
                update={"sglang_version": spec.engine.sglang_version or (version if isinstance(version, str) else None)}
            ),
            # nothing is held on the server's behalf, yet a group has as many slots as its server has ranks
            "cluster": spec.cluster.model_copy(update={"gpus": tp_size}),
            "budget": spec.budget.model_copy(update={"confirmations": 0}),
        }
    )


def endpoint_of(engine: EndpointSpec) -> Endpoint:
    """The server that a spec names."""
    return Endpoint(url=engine.url, api_key_env=engine.api_key_env)


def endpoint_factory(spec: SweepSpec) -> EndpointFactory | None:
    """What makes engines over the spec's endpoint; None when the spec starts its servers itself."""
    if not isinstance(spec.engine, EndpointSpec):
        return None
    return EndpointFactory(endpoint=endpoint_of(spec.engine), model_path=spec.target)


def _require_same(space: SpaceSpec, triple: Triple, tp_size: int) -> None:
    for name in NUMBERS:
        asked = getattr(space, name)[0]
        if asked is not None and asked != getattr(triple, name):
            raise InputError(_refusal(name, asked, getattr(triple, name)))
    if "tp_size" in space.model_fields_set and space.tp_size[0] != tp_size:
        raise InputError(_refusal("tp_size", space.tp_size[0], tp_size))


def _refusal(name: str, asked: int, is_run: int) -> str:
    return f"space.{name}: {asked}, but the running server has {is_run} and engine.kind: endpoint changes nothing"
