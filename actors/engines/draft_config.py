"""The draft's config for a layout, without touching the draft's files: SGLang takes another config.json by a flag.

`--decrypted-draft-config-file` names a full config of the draft alone (srt/configs/model_config.py). The capture ids
are read from `eagle_config.eagle_aux_hidden_state_layer_ids` in it and from nowhere else
(srt/model_executor/model_runner_components/spec_aux_hidden_state.py).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from actors.engines.server_spec import ServerSpec
from search_spaces.config import Taps, layout_label
from search_spaces.dialects import Inexpressible, dialect_of
from search_spaces.model_facts import DraftFacts

IDS_KEY = "eagle_aux_hidden_state_layer_ids"


def override_ids(spec: ServerSpec, layout: Taps) -> tuple[int, ...] | Inexpressible | None:
    """The ids that make this target class capture `layout`; None when the draft as shipped already says so."""
    dialect = dialect_of(spec.target.architecture, spec.sglang_version)
    num_layers = spec.target.num_layers
    shipped = dialect.capture(spec.draft.aux_ids, num_layers)
    if not shipped.problems and sorted(shipped.taps) == sorted(layout):
        return None
    return dialect.ids_for(layout, num_layers)


def config_with_ids(draft: DraftFacts, ids: tuple[int, ...]) -> dict[str, Any]:
    """The draft's whole config with these ids in the one place where they count, nothing else changed."""
    eagle = draft.config.get("eagle_config")
    base = dict(eagle) if isinstance(eagle, dict) else {}
    return {**draft.config, "eagle_config": {**base, IDS_KEY: list(ids), "use_aux_hidden_state": True}}


def write_draft_config(spec: ServerSpec, layout: Taps, ids: tuple[int, ...]) -> Path:
    """Write the config for `layout` into the work folder; the same layout always gives the same file."""
    path = spec.work_dir / f"draft-config-{layout_label(layout).replace(',', '-')}.json"
    path.write_text(json.dumps(config_with_ids(spec.draft, ids), indent=1), encoding="utf-8")
    return path
