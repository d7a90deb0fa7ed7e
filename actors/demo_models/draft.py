"""The demo draft: an EAGLE-3 head (Li et al. 2025, arXiv 2503.01840) in plain torch, in SGLang's conventions.

Conventions read in SGLang 0.5.23, `srt/models/llama_eagle3.py`: at position p the draft sees the target's taps at p and
the embedding of token p+1; `fc` joins the taps; the attention input is [norm(embedding), norm(hidden)]; the hidden
state handed to the next step is the residual stream before the last norm; `d2t` holds target id minus draft id.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from actors.demo_models.target import Attention, GatedMLP, RMSNorm, Sizes, initialise, rotary, write_json

Keys = list[tuple[Tensor, Tensor]]


class DraftBlock(nn.Module):
    """The one decoder layer of an EAGLE-3 draft; its names are those of the checkpoint under `midlayer.`."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(sizes.hidden)
        self.hidden_norm = RMSNorm(sizes.hidden)
        self.self_attn = Attention(sizes, 2 * sizes.hidden)
        self.post_attention_layernorm = RMSNorm(sizes.hidden)
        self.mlp = GatedMLP(sizes.hidden, sizes.mlp)

    def forward(self, embeds: Tensor, hidden: Tensor, step: int, cache: Keys) -> Tensor:
        """One draft step for every anchor at once; appends this step's keys and values to `cache`.

        `embeds` and `hidden` are (batch, anchors, hidden size). Anchor a drafts after the target's position a: at
        `step` it stands at position a + step and sees the first step's keys up to its anchor (made from the target's
        own states) and, of each later step up to this one, its own key only. So a server's draft cache looks.
        """
        length = embeds.shape[1]
        cos_sin = rotary(torch.arange(step, step + length), self.self_attn.sizes.head_dim)
        joined = torch.cat((self.input_layernorm(embeds), self.hidden_norm(hidden)), dim=-1)
        q, k, v = self.self_attn.project(joined, cos_sin)
        q = q * q.shape[-1] ** -0.5
        cache.append((k, v))
        first_k, first_v = (tensor[:, :, :length] for tensor in cache[0])
        later = [(own_k[:, :, :length], own_v[:, :, :length]) for own_k, own_v in cache[1:]]
        unseen = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = (q @ first_k.transpose(-1, -2)).masked_fill(unseen, float("-inf"))
        own = [(q * own_k).sum(-1, keepdim=True) for own_k, _ in later]
        weights = torch.cat((scores, *own), dim=-1).softmax(dim=-1)
        mixed = weights[..., :length] @ first_v
        for index, (_, own_v) in enumerate(later):
            mixed = mixed + weights[..., length + index, None] * own_v
        hidden = hidden + self.self_attn.merge(mixed)
        out: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return out


class Draft(nn.Module):
    """An EAGLE-3 draft for `num_taps` taps that speaks the `hot_ids` of the target's vocabulary (ascending)."""

    def __init__(self, sizes: Sizes, *, num_taps: int, hot_ids: Sequence[int]) -> None:
        super().__init__()
        if list(hot_ids) != sorted(set(hot_ids)):
            raise ValueError("hot ids must be distinct and ascending")
        self.sizes = sizes
        self.hot_ids = torch.tensor(hot_ids)
        self.fc = nn.Linear(num_taps * sizes.hidden, sizes.hidden, bias=False)
        self.midlayer = DraftBlock(sizes)
        self.norm = RMSNorm(sizes.hidden)
        self.lm_head = nn.Linear(sizes.hidden, len(hot_ids), bias=False)
        initialise(self)

    @torch.no_grad()
    def speak_like(self, lm_head: Tensor) -> None:
        """Start from the target's output rows of the draft's vocabulary."""
        self.lm_head.weight.copy_(lm_head[self.hot_ids])

    def step(self, embeds: Tensor, hidden: Tensor, step: int, cache: Keys) -> tuple[Tensor, Tensor]:
        """Logits over the draft's vocabulary and the hidden state that the next step takes."""
        hidden = self.midlayer(embeds, hidden, step, cache)
        return self.lm_head(self.norm(hidden)), hidden

    def save(self, folder: Path) -> None:
        """Write `config.json` and `model.safetensors` into an existing folder.

        The config deliberately names no `eagle_config`: SGLang then feeds its default layers, whatever was trained.
        """
        config = {"architectures": ["LlamaForCausalLMEagle3"], "num_hidden_layers": 1, **self.sizes.to_config()}
        write_json(folder / "config.json", config | {"draft_vocab_size": len(self.hot_ids)})
        spoken = torch.zeros(self.sizes.vocab, dtype=torch.bool)
        spoken[self.hot_ids] = True
        tables = {"d2t": self.hot_ids - torch.arange(len(self.hot_ids)), "t2d": spoken}
        tensors = {name: tensor.contiguous() for name, tensor in self.state_dict().items()}
        save_file(tensors | tables, folder / "model.safetensors", {"format": "pt"})
