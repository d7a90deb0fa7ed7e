"""A section of the spec: how every mapping in it is checked, and the plain limits that sections share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0)]
Text = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A mapping of the spec: unknown keys refused, no conversions, no NaN, frozen."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )
