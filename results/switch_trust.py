"""What comparing switched servers with fresh ones says: whether switching is trusted, and the sentences of a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from results.measured_settings import MeasuredSetting
from results.request_table import CellKey
from search_spaces.config import layout_label

SLOW_SETTINGS = 2
"""How many settings must differ in throughput beyond an assumed noise, the same way: without a measured one a single
difference may be bad luck."""


@dataclass(frozen=True, kw_only=True)
class BothWays:
    """One setting at one load, measured by a switch and on a fresh launch. Differences are fresh / switched - 1.

    `equal_prompts` of `prompts` shared ones took the same tokens and verify steps both ways. `length_problem` and
    `speed_problem` are sentences, None when the two agree; `noise_measured` says what the second one rests on.
    """

    setting: MeasuredSetting
    load: CellKey
    switched_trial: str
    fresh_trial: str
    prompts: int
    equal_prompts: int
    length_difference: float | None
    throughput_difference: float | None
    length_problem: str | None
    speed_problem: str | None
    noise_measured: bool

    @property
    def words(self) -> str:
        config = self.setting.effective
        layout = "" if config.layout is None else layout_label(config.layout)
        return f"layout {layout} {config.triple} tp {config.tp_size}"

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.setting.effective.identity,
            "concurrency": self.load[0],
            "request_rate": self.load[1],
            "switched_trial": self.switched_trial,
            "fresh_trial": self.fresh_trial,
            "prompts": self.prompts,
            "equal_prompts": self.equal_prompts,
            "length_difference": self.length_difference,
            "throughput_difference": self.throughput_difference,
            "problems": [text for text in (self.length_problem, self.speed_problem) if text is not None],
        }


@dataclass(frozen=True, kw_only=True)
class SwitchTrust:
    """All comparisons of a study."""

    checks: tuple[BothWays, ...]

    @property
    def trusted(self) -> bool:
        return not self.problems

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each difference beyond noise. Empty while only few settings differ in throughput, beyond a noise
        that nobody has measured."""
        lengths = [f"{check.words}: {check.length_problem}" for check in self.checks if check.length_problem]
        slow = [check for check in self.checks if check.speed_problem]
        measured = [check for check in slow if check.noise_measured]
        for faster in (True, False):
            alike = [check for check in slow if ((check.throughput_difference or 0.0) > 0) is faster]
            if len({check.setting.effective for check in alike}) >= SLOW_SETTINGS:
                measured += [check for check in alike if not check.noise_measured]
        return (*lengths, *(f"{check.words}: {check.speed_problem}" for check in measured))

    @property
    def doubts(self) -> tuple[str, ...]:
        """Differences in throughput that may be noise."""
        settled = self.problems
        lines = [f"{check.words}: {check.speed_problem}" for check in self.checks if check.speed_problem]
        return tuple(line for line in lines if line not in settled)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What a report says; nothing when no setting was measured both ways."""
        if not self.checks:
            return ()
        if not self.trusted:
            return (
                "switching is not trusted: a switched server measured something else than a fresh launch, beyond "
                "noise; later trials were launched, and numbers of switched trials before that are in doubt",
                *self.problems,
            )
        settings = len({check.setting.effective.identity for check in self.checks})
        prompts = sum(check.prompts for check in self.checks)
        equal = sum(check.equal_prompts for check in self.checks)
        speeds = [abs(c.throughput_difference) for c in self.checks if c.throughput_difference is not None]
        speed = f", throughput differed by at most {max(speeds):.1%}" if speeds else ""
        return (
            *self.doubts,
            f"switching was checked: {settings} setting{'' if settings == 1 else 's'} measured on a switched and on a "
            f"fresh server took the same verify steps on {equal} of {prompts} requests{speed}",
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "trusted": self.trusted,
            "problems": list(self.problems),
            "doubts": list(self.doubts),
            "checks": [check.to_json() for check in self.checks],
        }
