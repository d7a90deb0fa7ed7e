"""What a row asks for that SGLang cannot run: numbers that its rules refuse, ids that a class cannot capture."""

from __future__ import annotations

from results.explain.target_classes import dialect_for, find_architecture, known_version
from results.external_row import ExternalRow
from search_spaces.engine_args import EngineArgs
from search_spaces.triple_rules import TripleCase, judge_triple


def triple_refusal(row: ExternalRow) -> str | None:
    """Why SGLang cannot run the three numbers as asked, judged only when all three are named."""
    numbers = (row.num_steps, row.eagle_topk, row.num_draft_tokens)
    if None in numbers or row.role == "baseline":
        return None
    version = known_version(row.sglang_version)
    architecture = (find_architecture(row.target_class, version) if row.target_class else None) or ""
    flags = {name: value for name, value in row.flags.items() if isinstance(value, bool | int | float | str)}
    ruling = judge_triple(TripleCase(numbers=numbers, args=EngineArgs(flags), architecture=architecture), version)
    return None if ruling.refusal is None else f"{ruling.refusal[1]} (SGLang {version})"


def layout_problem(row: ExternalRow) -> str | None:
    """Why a class cannot capture as many states as the ids name; None when it can, or when taps are stated."""
    dialect = dialect_for(row.target_class, row.sglang_version)
    if row.layout_taps is not None or dialect is None or row.num_layers is None or row.role == "baseline":
        return None
    capture = dialect.capture(row.layout_ids, row.num_layers)
    if not capture.problems or (len(capture.taps) == capture.expected and capture.taps):
        return None
    written = "SGLang's default" if row.layout_ids is None else f"the ids {list(row.layout_ids)}"
    return f"{written} cannot be captured on {row.target_class} with {row.num_layers} layers: " + "; ".join(
        capture.problems
    )
