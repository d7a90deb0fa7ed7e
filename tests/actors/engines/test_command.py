from __future__ import annotations

from pathlib import Path

import pytest
from server_specs import baseline, fake_spec, real_spec, speculative
from tiny_models import TinyPair, make_tiny_pair

from actors.engines.command import redact, server_args, server_command, words, world_size
from actors.engines.draft_config import config_with_ids, override_ids, write_draft_config
from actors.engines.server_spec import ServerSpec
from search_spaces.config import EngineConfig, FlagValue, Triple
from search_spaces.dialects import Inexpressible
from search_spaces.errors import InputError


@pytest.fixture
def spec(tiny_pair: TinyPair, tmp_path: Path) -> ServerSpec:
    return real_spec(tiny_pair, tmp_path)


def args_of(spec: ServerSpec, config: EngineConfig, draft_config: Path | None = None) -> dict[str, FlagValue]:
    return server_args(spec, config, port=20100, rendezvous_port=20161, draft_config=draft_config)


def test_a_speculative_server(spec: ServerSpec) -> None:
    args = args_of(spec, speculative(3, 4, 8), Path("draft.json"))
    wanted = {
        "model_path": str(spec.target.path),
        "speculative_algorithm": "EAGLE3",
        "speculative_draft_model_path": str(spec.draft.path),
        "speculative_num_steps": 3,
        "speculative_eagle_topk": 4,
        "speculative_num_draft_tokens": 8,
        "decrypted_draft_config_file": "draft.json",
        "tp_size": 1,
        "host": "127.0.0.1",
        "port": 20100,
        "nccl_port": 20161,
        "max_running_requests": 48,
        "random_seed": 0,
        "enable_metrics": True,
    }
    assert wanted.items() <= args.items()


def test_a_baseline_differs_by_the_speculative_arguments_alone(tiny_pair: TinyPair, tmp_path: Path) -> None:
    extra: dict[str, FlagValue] = {"speculative_attention_mode": "decode", "context_length": 512}
    spec = real_spec(tiny_pair, tmp_path, args=extra)
    with_draft, without = args_of(spec, speculative(3, 4, 8), Path("draft.json")), args_of(spec, baseline())
    assert without.items() <= with_draft.items()
    added = set(with_draft) - set(without)
    assert all(name.startswith("speculative_") or name == "decrypted_draft_config_file" for name in added)
    assert len(added) == 7
    assert without["max_running_requests"] == 48


def test_cpu_and_cuda_differ_by_flags_only(tiny_pair: TinyPair, tmp_path: Path) -> None:
    cpu = args_of(real_spec(tiny_pair, tmp_path), speculative(3, 1, 4, tp_size=2))
    held = ("2", "3")
    on_cuda = real_spec(
        tiny_pair, tmp_path, device="cuda", start_method="spawn", device_ids=held, stand_ins=frozenset()
    )
    cuda = args_of(on_cuda, speculative(3, 1, 4, tp_size=2))
    assert cuda["base_gpu_id"] == 0  # whatever the physical ids are
    assert set(cpu) - set(cuda) >= {"dtype", "prefill_attention_backend"}
    assert {k: v for k, v in cuda.items() if k not in ("base_gpu_id", "device")}.items() <= cpu.items()


def test_the_trials_flags_win_over_the_specs_and_these_over_defaults(tiny_pair: TinyPair, tmp_path: Path) -> None:
    spec = real_spec(tiny_pair, tmp_path, args={"max_running_requests": 8, "chunked_prefill_size": 64, "dtype": "half"})
    triple = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
    config = EngineConfig(layout=(2, 4, 5), triple=triple, tp_size=1, flags=(("chunked_prefill_size", 128),))
    args = args_of(spec, config)
    chosen = [args[name] for name in ("max_running_requests", "chunked_prefill_size", "dtype")]
    assert chosen == [8, 128, "half"]


@pytest.mark.parametrize(
    "name", ["api_key", "base_gpu_id", "tp_size", "nccl_port", "speculative_num_steps", "decrypted_draft_config_file"]
)
def test_arguments_that_are_ours_are_refused(tiny_pair: TinyPair, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=rf"^engine\.args\.{name}: not allowed here; \S+"):
        real_spec(tiny_pair, tmp_path, args={name: "1"})


def test_dashes_in_an_argument_are_refused(tiny_pair: TinyPair, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="snake_case"):
        real_spec(tiny_pair, tmp_path, args={"mem-fraction-static": 0.8})


def test_words() -> None:
    assert words({"enable_x": True, "disable_y": False, "mem_fraction_static": 0.8, "page_size": 1}) == [
        "--enable-x",
        "--mem-fraction-static",
        "0.8",
        "--page-size",
        "1",
    ]


def test_the_recorded_command_is_sglangs_own_whatever_the_start_method(tiny_pair: TinyPair, tmp_path: Path) -> None:
    for method in ("spawn", "fork"):
        command = server_command(real_spec(tiny_pair, tmp_path, start_method=method), {"tp_size": 1})
        assert command[1:] == ("-m", "sglang.launch_server", "--tp-size", "1")


def test_secrets_are_redacted() -> None:
    command = [
        "python",
        "--api-key",
        "sk-1",
        "--admin-api-key",
        "sk-2",
        "--ssl-keyfile-password",
        "p",
        "--tp-size",
        "2",
    ]
    assert redact(command) == tuple(word if word not in ("sk-1", "sk-2", "p") else "<redacted>" for word in command)


def test_pipeline_stages_count_as_devices(spec: ServerSpec) -> None:
    triple = Triple(num_steps=1, eagle_topk=1, num_draft_tokens=2)
    config = EngineConfig(layout=(2, 4, 5), triple=triple, tp_size=2, flags=(("pp_size", 2),))
    assert world_size(spec, config) == 4
    assert world_size(spec, baseline(2)) == 2


def test_a_layout_the_draft_ships_needs_no_other_config(tmp_path: Path) -> None:
    shipped = real_spec(make_tiny_pair(tmp_path / "pair", aux_ids=(-1, 2, 6)), tmp_path)
    assert override_ids(shipped, (0, 3, 7)) is None
    assert override_ids(shipped, (2, 4, 5)) == (1, 3, 4)


def test_without_ids_the_default_layout_needs_no_other_config(spec: ServerSpec) -> None:
    assert override_ids(spec, (2, 4, 5)) is None
    assert override_ids(spec, (0, 3, 7)) == (-1, 2, 6)


def test_a_layout_that_cannot_be_written_says_so(spec: ServerSpec) -> None:
    inexpressible = override_ids(spec, (2, 4, 8))
    assert isinstance(inexpressible, Inexpressible)
    assert "tap 8" in inexpressible.reason


def test_the_drafts_files_stay_as_they_are(tiny_pair: TinyPair, tmp_path: Path) -> None:
    spec = fake_spec(tiny_pair, tmp_path)
    before = {path: path.read_bytes() for path in tiny_pair.draft.iterdir()}
    path = write_draft_config(spec, (0, 3, 7), (-1, 2, 6))
    assert path.parent == spec.work_dir
    assert {path: path.read_bytes() for path in tiny_pair.draft.iterdir()} == before


def test_other_keys_of_the_eagle_config_are_kept(spec: ServerSpec) -> None:
    from dataclasses import replace

    draft = replace(spec.draft, config={"hidden_size": 64, "eagle_config": {"fc_norm": True}})
    assert config_with_ids(draft, (1, 3, 4)) == {
        "hidden_size": 64,
        "eagle_config": {
            "fc_norm": True,
            "eagle_aux_hidden_state_layer_ids": [1, 3, 4],
            "use_aux_hidden_state": True,
        },
    }
