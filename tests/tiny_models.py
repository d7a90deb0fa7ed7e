"""A tiny Llama target and EAGLE-3 draft with random float32 weights, written in a second without torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB, DRAFT_VOCAB, HIDDEN, LAYERS, HEADS, KV_HEADS, INTERMEDIATE = 512, 256, 64, 8, 4, 2, 128
HEAD_DIM = HIDDEN // HEADS
EXPERTS = 4
SENTENCES = [
    "the quick brown fox jumps over the lazy dog. speculative decoding accepts draft tokens.",
    "def main(args): return [x for x in range(10)] # python code sample",
    "once upon a time there was a little server that served a little model on a little machine.",
]
CHAT_TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"

Weights = dict[str, np.ndarray]


@dataclass(frozen=True, kw_only=True)
class TinyPair:
    """Folders of the target and of its draft. The target has 8 blocks, so SGLang's default layout is taps 2, 4, 5."""

    target: Path
    draft: Path


def make_tiny_pair(
    folder: Path, *, seed: int = 0, aux_ids: tuple[int, ...] | None = None, target_class: str = "LlamaForCausalLM"
) -> TinyPair:
    """Write `folder/target` and `folder/draft`; `aux_ids` go into the draft's `eagle_config`, absent when None.

    `target_class` is one of `TARGET_CLASSES`; the draft is the same for all.
    """
    rng = np.random.default_rng(seed)
    pair = TinyPair(target=folder / "target", draft=folder / "draft")
    for path in (pair.target, pair.draft):
        path.mkdir(parents=True)
    _write_tokenizer(pair.target)
    _write_json(pair.target / "config.json", _config(target_class, LAYERS) | TARGET_CLASSES[target_class])
    save_file(_target_weights(rng, target_class), str(pair.target / "model.safetensors"), metadata={"format": "pt"})
    draft_config = _config("LlamaForCausalLMEagle3", 1) | {"draft_vocab_size": DRAFT_VOCAB, "torch_dtype": "float32"}
    if aux_ids is not None:
        eagle = {"eagle_aux_hidden_state_layer_ids": list(aux_ids), "use_aux_hidden_state": True}
        draft_config["eagle_config"] = eagle
    _write_json(pair.draft / "config.json", draft_config)
    num_aux = 3 if aux_ids is None else len(aux_ids)
    save_file(_draft_weights(rng, num_aux), str(pair.draft / "model.safetensors"), metadata={"format": "pt"})
    return pair


TARGET_CLASSES: dict[str, dict[str, object]] = {
    "LlamaForCausalLM": {},
    "Qwen3ForCausalLM": {"model_type": "qwen3"},
    "Qwen3MoeForCausalLM": {
        "model_type": "qwen3_moe",
        "num_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": INTERMEDIATE,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "norm_topk_prob": True,
    },
}
"""By class of the target, what its config has that a Llama's has not."""


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1))


def _config(architecture: str, num_layers: int) -> dict[str, object]:
    return {
        "architectures": [architecture],
        "model_type": "llama",
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": num_layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "pad_token_id": 2,
        "torch_dtype": "float32",
    }


def _write_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(models.BPE(unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=["<s>", "</s>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES * 50, trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": CHAT_TEMPLATE, "model_max_length": 2048}
    _write_json(folder / "tokenizer_config.json", settings | special)
    _write_json(folder / "special_tokens_map.json", special)


def _block(rng: np.random.Generator, prefix: str, attention_in: int) -> Weights:
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, attention_in),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, attention_in),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, attention_in),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
        "mlp.up_proj": (INTERMEDIATE, HIDDEN),
        "mlp.down_proj": (HIDDEN, INTERMEDIATE),
    }
    weights = {f"{prefix}.{name}.weight": _matrix(rng, shape) for name, shape in shapes.items()}
    for norm in ("input_layernorm", "post_attention_layernorm"):
        weights[f"{prefix}.{norm}.weight"] = np.ones(HIDDEN, dtype=np.float32)
    return weights


def _matrix(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    return rng.normal(0, 0.08, shape).astype(np.float32)


def _target_weights(rng: np.random.Generator, target_class: str) -> Weights:
    weights = {
        "model.embed_tokens.weight": _matrix(rng, (VOCAB, HIDDEN)),
        "model.norm.weight": np.ones(HIDDEN, dtype=np.float32),
        "lm_head.weight": _matrix(rng, (VOCAB, HIDDEN)),
    }
    for layer in range(LAYERS):
        block = _block(rng, f"model.layers.{layer}", HIDDEN)
        if target_class != "LlamaForCausalLM":
            for norm in ("q_norm", "k_norm"):
                block[f"model.layers.{layer}.self_attn.{norm}.weight"] = np.ones(HEAD_DIM, dtype=np.float32)
        weights |= _with_experts(rng, block) if target_class == "Qwen3MoeForCausalLM" else block
    return weights


def _with_experts(rng: np.random.Generator, block: Weights) -> Weights:
    """A block whose MLP is routed: a gate, and the same three matrices once for each expert."""
    weights: Weights = {}
    for name, values in block.items():
        if ".mlp." not in name:
            weights[name] = values
            continue
        prefix, _, part = name.partition(".mlp.")
        weights[f"{prefix}.mlp.gate.weight"] = _matrix(rng, (EXPERTS, HIDDEN))
        weights |= {f"{prefix}.mlp.experts.{i}.{part}": _matrix(rng, values.shape) for i in range(EXPERTS)}
    return weights


def _draft_weights(rng: np.random.Generator, num_aux: int) -> Weights:
    target_ids = np.arange(DRAFT_VOCAB) * 2  # draft token i stands for target token 2 i
    reachable = np.zeros(VOCAB, dtype=bool)
    reachable[target_ids] = True
    return _block(rng, "midlayer", 2 * HIDDEN) | {
        "midlayer.hidden_norm.weight": np.ones(HIDDEN, dtype=np.float32),
        "fc.weight": _matrix(rng, (HIDDEN, num_aux * HIDDEN)),
        "norm.weight": np.ones(HIDDEN, dtype=np.float32),
        "lm_head.weight": _matrix(rng, (DRAFT_VOCAB, HIDDEN)),
        "d2t": (target_ids - np.arange(DRAFT_VOCAB)).astype(np.int64),
        "t2d": reachable,
    }
