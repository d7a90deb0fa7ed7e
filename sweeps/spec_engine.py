"""The spec's engine: what serves, either a server of our own or one that somebody else runs.

Both kinds have the same names, so that a reader need not ask for the kind first: what only a server of our own has, a
running one has as a constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from search_spaces.config import FlagValue
from sweeps.spec_fields import EnvName, EnvValue, FlagName, Swept, Url, Version
from sweeps.spec_section import Seconds, Section, Text

Port = Annotated[int, Field(ge=1, le=65535)]


class SglangSpec(Section):
    """How a server is started: an SGLang server that specsweep starts and stops."""

    kind: Literal["sglang"] = Field("sglang", description="What serves; `endpoint` has keys of its own, see below.")
    device: Literal["auto", "cuda", "cpu"] = Field(
        "auto", description="`auto` takes CUDA where the cluster has GPUs, else the CPU."
    )
    python: Text | None = Field(
        None, description="The interpreter in which SGLang is installed; by default the one that runs specsweep."
    )
    sglang_version: Version | None = Field(
        None, description="The version whose rules apply in `plan`; by default the installed one."
    )
    args: dict[FlagName, Swept] = Field(
        {}, description="Further SGLang flags in snake_case, the same for every launch."
    )
    env: dict[EnvName, EnvValue] = Field(
        {}, description="Environment variables of the server. Nothing else is inherited but a short allow-list."
    )
    start_method: Literal["spawn", "fork"] = Field(
        "spawn", description="`fork` starts servers faster on the CPU (`device: cpu`); never with CUDA."
    )
    host: Text = Field("127.0.0.1", description="The address on which a server listens.")
    port: Port | None = Field(
        None, description="A fixed port for the server, one at a time; by default free ones are chosen."
    )
    ready_timeout_s: Seconds = Field(1800.0, description="How long a server may take to answer its first request.")
    request_timeout_s: Seconds = Field(600.0, description="How long one request may take.")
    stop_grace_s: Seconds = Field(5.0, description="How long a server may take to end before it is killed.")
    switching: Literal["auto", "on", "off"] = Field(
        "auto",
        description="Whether a running server changes its layout and triple without a launch. `auto`: where it was seen"
        " to give the same results, on CPU servers; the winner is measured on a fresh launch in any case.",
    )
    api_key_env: ClassVar[None] = None
    allow_simulated: bool = Field(
        False,
        description="Let `engine.env` set SGLANG_SIMULATE_ACC_LEN, which replaces real acceptance; every result then "
        "says so. Set in the shell or on a Ray node it is refused in any case.",
    )


class EndpointSpec(Section):
    """A server that is already running. It is measured, never started, stopped or changed.

    Its triple and TP size are read from it; a space that names others is refused. There is no baseline to compare with.
    """

    kind: Literal["endpoint"] = Field(description="What serves: somebody else's server.")
    url: Url = Field(description="The server's root, such as http://127.0.0.1:30000.")
    api_key_env: EnvName | None = Field(
        None, description="The environment variable, where the measuring runs, that holds the server's API key."
    )
    sglang_version: Version | None = Field(
        None, description="The version whose rules apply; by default the one that the server tells."
    )
    request_timeout_s: Seconds = Field(600.0, description="How long one request may take.")

    # What only a server of our own has, for readers of either kind.
    device: ClassVar[Literal["cpu"]] = "cpu"
    python: ClassVar[None] = None
    args: ClassVar[Mapping[str, FlagValue]] = MappingProxyType({})
    env: ClassVar[Mapping[str, str]] = MappingProxyType({})
    start_method: ClassVar[Literal["spawn"]] = "spawn"
    host: ClassVar[str] = "127.0.0.1"
    port: ClassVar[None] = None
    ready_timeout_s: ClassVar[float] = 0.0
    stop_grace_s: ClassVar[float] = 0.0
    switching: ClassVar[Literal["off"]] = "off"
    allow_simulated: ClassVar[bool] = False


ENGINES: Mapping[str, type[Section]] = MappingProxyType({"sglang": SglangSpec, "endpoint": EndpointSpec})


def _engine_kind(value: Any) -> object:
    return value.get("kind", "sglang") if isinstance(value, dict) else getattr(value, "kind", "sglang")


EngineSpec = Annotated[
    Annotated[SglangSpec, Tag("sglang")] | Annotated[EndpointSpec, Tag("endpoint")], Discriminator(_engine_kind)
]
