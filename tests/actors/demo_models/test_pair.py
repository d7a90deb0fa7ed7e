"""Making a pair end to end with a few steps, and the pair that is committed."""

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from actors.demo_models.card import CardRow, read_rows, render_card
from actors.demo_models.corpus import prompts
from actors.demo_models.pair import default_taps, make_pair
from actors.demo_models.training import TRAINED_LAYOUT, Recipe
from search_spaces.errors import InputError

SPECS = Path(__file__).parents[3] / "sweeps" / "specs"
COMMITTED = SPECS / "demo_pair"
TINY = Recipe(documents=40, length=72, short=24, batch=2, target_steps=3, draft_steps=3, unrolled=2)


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def keep_torch_as_it_was():
    threads, state = torch.get_num_threads(), torch.random.get_rng_state()
    yield
    torch.set_num_threads(threads)
    torch.random.set_rng_state(state)


@pytest.mark.usefixtures("keep_torch_as_it_was")
def test_same_seed_same_bytes(tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    for name in ("one", "two"):
        make_pair(tmp_path / name, TINY, lambda *news: seen.append(news[:3]), evaluated=1)
    assert hashes(tmp_path / "one") == hashes(tmp_path / "two")
    assert seen[:6] == [(stage, step, 3) for stage in ("target", "draft") for step in (1, 2, 3)]
    assert sorted(hashes(tmp_path / "one")) == [
        "MODEL_CARD.md",
        "draft/config.json",
        "draft/model.safetensors",
        "target/config.json",
        "target/generation_config.json",
        "target/model.safetensors",
        "target/tokenizer.json",
        "target/tokenizer_config.json",
        "training.jsonl",
    ]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_full_folder_is_refused_before_any_work(tmp_path: Path):
    (tmp_path / "kept").write_text("mine", encoding="utf-8")
    with pytest.raises(InputError, match="not an empty folder"):
        make_pair(tmp_path, TINY, lambda *_: pytest.fail("trained"))
    assert (tmp_path / "kept").read_text(encoding="utf-8") == "mine"
    with pytest.raises(InputError, match="cannot be written"):
        make_pair(tmp_path / "kept" / "below", TINY, lambda *_: pytest.fail("trained"))


@pytest.mark.usefixtures("keep_torch_as_it_was")
def test_an_interrupted_training_leaves_nothing(tmp_path: Path):
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_pair(tmp_path / "pair", TINY, interrupt)
    assert list(tmp_path.iterdir()) == []


def test_a_card_gives_its_numbers_back():
    rows = (
        CardRow(layout="trained", taps=(0, 3, 7), accept_length=3.25, by_position=(0.9, 0.75), how="a server"),
        CardRow(layout="default", taps=(2, 4, 5), accept_length=1.5, by_position=(0.4, 0.1), how="a server"),
    )
    card = render_card(seed=0, layers=8, hidden=64, parameters=(4000, 1000), rows=rows)
    assert read_rows(card) == rows
    assert "[-1, 2, 6]" in card


def test_committed_draft_does_not_say_how_it_was_trained():
    config = json.loads((COMMITTED / "draft" / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == ["LlamaForCausalLMEagle3"]
    assert not [key for key in config if "eagle" in key or "aux" in key]


def test_committed_shapes_fit_each_other():
    target = json.loads((COMMITTED / "target" / "config.json").read_text(encoding="utf-8"))
    draft = json.loads((COMMITTED / "draft" / "config.json").read_text(encoding="utf-8"))
    hidden = target["hidden_size"]
    assert (target["num_hidden_layers"], draft["vocab_size"]) == (8, target["vocab_size"])
    assert default_taps(8) == (2, 4, 5) != TRAINED_LAYOUT
    with safe_open(COMMITTED / "draft" / "model.safetensors", framework="pt") as weights:
        assert weights.get_slice("fc.weight").get_shape() == [draft["hidden_size"], len(TRAINED_LAYOUT) * hidden]
        spoken = weights.get_tensor("d2t") + torch.arange(draft["draft_vocab_size"])
        assert weights.get_tensor("t2d").nonzero().flatten().tolist() == spoken.tolist()
        assert weights.get_slice("lm_head.weight").get_shape() == [draft["draft_vocab_size"], draft["hidden_size"]]


def test_committed_pair_is_small():
    assert sum(path.stat().st_size for path in COMMITTED.rglob("*") if path.is_file()) < 4_000_000


def test_committed_card_keeps_the_promise():
    rows = read_rows((COMMITTED / "MODEL_CARD.md").read_text(encoding="utf-8"))
    for measured_with in {row.how for row in rows}:
        trained, default = (row for row in rows if row.how == measured_with)
        assert (trained.taps, default.taps) == (TRAINED_LAYOUT, (2, 4, 5))
        assert trained.accept_length >= 2.5
        assert default.accept_length <= 0.7 * trained.accept_length
    assert any("SGLang" in row.how for row in rows)


def test_committed_prompts_are_the_held_out_ones():
    lines = (SPECS / "demo_prompts.jsonl").read_text(encoding="utf-8").splitlines()
    assert tuple(json.loads(line)["text"] for line in lines) == prompts(len(lines))
    assert len(lines) >= 32
