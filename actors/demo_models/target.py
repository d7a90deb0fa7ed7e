"""The demo target: a small Llama in plain torch, saved in the layout that `LlamaForCausalLM` loads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from actors.demo_models.tokenizer import BOS_ID, EOS_ID, PAD_ID

NORM_EPS = 1e-5
ROPE_THETA = 10000.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes shared by target and draft. `mlp` is the width between the gate and down projections."""

    vocab: int
    hidden: int = 64
    mlp: int = 192
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    max_positions: int = 2048

    def __post_init__(self) -> None:
        if self.head_dim % 2 or self.heads % self.kv_heads:
            raise ValueError(
                f"{self.heads} heads of {self.head_dim} cannot share {self.kv_heads} kv heads in rotary halves"
            )

    def to_config(self) -> dict[str, object]:
        """The keys of a Hugging Face Llama `config.json` that follow from the sizes."""
        return {
            "model_type": "llama",
            "vocab_size": self.vocab,
            "hidden_size": self.hidden,
            "intermediate_size": self.mlp,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": self.max_positions,
            "rms_norm_eps": NORM_EPS,
            "rope_theta": ROPE_THETA,
            "rope_scaling": None,
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": BOS_ID,
            "eos_token_id": EOS_ID,
            "pad_token_id": PAD_ID,
            "torch_dtype": "float32",
        }


def rotary(positions: Tensor, head_dim: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of rotary embeddings (half-split order, as Llama on Hugging Face), (positions, head_dim)."""
    inverse = ROPE_THETA ** (-torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)
    angles = (positions.to(torch.float32)[:, None] * inverse).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
    """Apply `rotary` to (batch, heads, positions, head_dim)."""
    first, second = x.chunk(2, dim=-1)
    return x * cos_sin[0] + torch.cat((-second, first), dim=-1) * cos_sin[1]


class RMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.weight.shape, self.weight, NORM_EPS)


class Attention(nn.Module):
    """Projections of grouped-query attention; `in_width` differs from the hidden size in an EAGLE-3 draft."""

    def __init__(self, sizes: Sizes, in_width: int) -> None:
        super().__init__()
        self.sizes = sizes
        width, kv_width = sizes.heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.q_proj = nn.Linear(in_width, width, bias=False)
        self.k_proj = nn.Linear(in_width, kv_width, bias=False)
        self.v_proj = nn.Linear(in_width, kv_width, bias=False)
        self.o_proj = nn.Linear(width, sizes.hidden, bias=False)

    def project(self, x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Rotated queries and keys, and values, each (batch, heads, positions, head_dim) with kv heads repeated."""
        batch, length, _ = x.shape
        shape = (batch, length, -1, self.sizes.head_dim)
        q = rotate(self.q_proj(x).view(shape).transpose(1, 2), cos_sin)
        k = rotate(self.k_proj(x).view(shape).transpose(1, 2), cos_sin)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        group = self.sizes.heads // self.sizes.kv_heads
        return q, k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)

    def merge(self, mixed: Tensor) -> Tensor:
        """(batch, heads, positions, head_dim) to (batch, positions, hidden)."""
        merged: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return merged


class GatedMLP(nn.Module):
    """SiLU-gated feed-forward block."""

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class Block(nn.Module):
    """One pre-norm decoder layer."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(sizes.hidden)
        self.self_attn = Attention(sizes, sizes.hidden)
        self.post_attention_layernorm = RMSNorm(sizes.hidden)
        self.mlp = GatedMLP(sizes.hidden, sizes.mlp)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor]) -> Tensor:
        q, k, v = self.self_attn.project(self.input_layernorm(x), cos_sin)
        x = x + self.self_attn.merge(functional.scaled_dot_product_attention(q, k, v, is_causal=True))
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Target(nn.Module):
    """A Llama whose parameter names are those of its checkpoint without the prefix `model.`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed_tokens = nn.Embedding(sizes.vocab, sizes.hidden)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = RMSNorm(sizes.hidden)
        self.lm_head = nn.Linear(sizes.hidden, sizes.vocab, bias=False)
        initialise(self)

    def forward(self, ids: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Logits (batch, positions, vocab) of (batch, positions) ids, and the residual stream at taps 0 to N."""
        cos_sin = rotary(torch.arange(ids.shape[1]), self.sizes.head_dim)
        x = self.embed_tokens(ids)
        taps = [x]
        for layer in self.layers:
            x = layer(x, cos_sin)
            taps.append(x)
        return self.lm_head(self.norm(x)), tuple(taps)

    def save(self, folder: Path) -> None:
        """Write `config.json`, `generation_config.json` and `model.safetensors` into an existing folder."""
        config = {
            "architectures": ["LlamaForCausalLM"],
            "num_hidden_layers": self.sizes.layers,
            **self.sizes.to_config(),
        }
        write_json(folder / "config.json", config)
        write_json(folder / "generation_config.json", {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID})
        state = self.state_dict()
        named = {name if name.startswith("lm_head") else f"model.{name}": tensor for name, tensor in state.items()}
        save_file(
            {name: tensor.contiguous() for name, tensor in named.items()},
            folder / "model.safetensors",
            {"format": "pt"},
        )


def initialise(model: nn.Module) -> None:
    """Normal weights of 1/sqrt(inputs) from torch's global generator, smaller where the residual stream is written."""
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            scale = 1.0 if "embed" in name else parameter.shape[1] ** -0.5
            damping = 0.25 if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            nn.init.normal_(parameter, std=scale * damping)


def write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
