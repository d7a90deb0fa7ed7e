"""The unrolled draft against a plain, token-by-token one with a key/value cache, as a server runs it."""

import math

import pytest
import torch
from torch import Tensor

from actors.demo_models.acceptance import accepted_drafts, chain_acceptance, greedy
from actors.demo_models.draft import Draft
from actors.demo_models.target import Sizes, Target, rotary, rotate

SIZES = Sizes(vocab=40, hidden=32, mlp=48, layers=4, heads=4, kv_heads=2, head_dim=8)
LAYOUT = (0, 2, 3)
EPS = 1e-5


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def turn(x: Tensor, position: int) -> Tensor:
    """Rotary embedding of (heads, head_dim) by complex multiplication."""
    half = x.shape[-1] // 2
    angles = torch.tensor([position / 10000 ** (2 * i / x.shape[-1]) for i in range(half)])
    turned = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones(half), angles)
    return torch.cat((turned.real, turned.imag), -1)


class PlainDraft:
    """One token at a time; `cache` holds a key and a value for every position seen."""

    def __init__(self, draft: Draft) -> None:
        self.w = {name: tensor.detach() for name, tensor in draft.named_parameters()}
        self.sizes = draft.sizes
        self.cache: list[tuple[Tensor, Tensor]] = []

    def step(self, embed: Tensor, hidden: Tensor, position: int) -> tuple[Tensor, Tensor]:
        w, heads, kv, width = self.w, self.sizes.heads, self.sizes.kv_heads, self.sizes.head_dim
        layer = "midlayer."
        joined = torch.cat(
            (rms(embed, w[layer + "input_layernorm.weight"]), rms(hidden, w[layer + "hidden_norm.weight"]))
        )
        q = turn((w[layer + "self_attn.q_proj.weight"] @ joined).view(heads, width), position)
        k = turn((w[layer + "self_attn.k_proj.weight"] @ joined).view(kv, width), position)
        self.cache.append((k, (w[layer + "self_attn.v_proj.weight"] @ joined).view(kv, width)))
        mixed = []
        for head in range(heads):
            shared = head // (heads // kv)
            scores = torch.stack([q[head] @ key[shared] for key, _ in self.cache]) / math.sqrt(width)
            mixed.append(scores.softmax(0) @ torch.stack([value[shared] for _, value in self.cache]))
        hidden = hidden + w[layer + "self_attn.o_proj.weight"] @ torch.cat(mixed)
        x = rms(hidden, w[layer + "post_attention_layernorm.weight"])
        gate, up = w[layer + "mlp.gate_proj.weight"] @ x, w[layer + "mlp.up_proj.weight"] @ x
        hidden = hidden + w[layer + "mlp.down_proj.weight"] @ (gate * gate.sigmoid() * up)
        return w["lm_head.weight"] @ rms(hidden, w["norm.weight"]), hidden


@pytest.fixture(scope="module")
def models() -> tuple[Target, Draft]:
    torch.manual_seed(1)
    target = Target(SIZES).eval()
    draft = Draft(SIZES, num_taps=len(LAYOUT), hot_ids=list(range(3, 39, 2))).eval()
    for parameter in (*target.parameters(), *draft.parameters()):
        if parameter.dim() == 1:
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return target, draft


@torch.no_grad()
def test_unrolled_steps_equal_a_cached_draft(models: tuple[Target, Draft]):
    target, draft = models
    ids = torch.randint(SIZES.vocab, (12,))
    _, taps = target(ids[None])
    states = draft.fc(torch.cat([taps[tap] for tap in LAYOUT], -1))
    embeds = target.embed_tokens(ids[None])
    anchor, steps = 5, 4
    plain = PlainDraft(draft)
    for position in range(anchor + 1):
        logits, hidden = plain.step(embeds[0, position + 1], states[0, position], position)
    expected = [logits]
    for step in range(1, steps):
        logits, hidden = plain.step(embeds[0, anchor + 1 + step], hidden, anchor + step)
        expected.append(logits)
    state, cache = states, []
    for step in range(steps):
        anchors = len(ids) - 1 - step
        found, state = draft.step(embeds[:, 1 + step :], state[:, :anchors], step, cache)
        torch.testing.assert_close(found[0, anchor], expected[step], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_rotary_is_a_complex_product():
    x = torch.randn(1, 3, 6, 8)
    turned = rotate(x, rotary(torch.arange(2, 8), 8))
    for index in range(6):
        torch.testing.assert_close(turned[0, :, index], turn(x[0, :, index], index + 2))


@torch.no_grad()
def test_taps_are_the_residual_stream(models: tuple[Target, Draft]):
    target, _ = models
    ids = torch.arange(3, 11)[None]
    logits, taps = target(ids)
    assert len(taps) == SIZES.layers + 1
    torch.testing.assert_close(taps[0], target.embed_tokens.weight[ids])
    torch.testing.assert_close(logits, target.lm_head(rms(taps[-1], target.norm.weight)))


def test_target_equals_the_public_llama(models: tuple[Target, Draft], tmp_path):
    transformers = pytest.importorskip("transformers")
    target, _ = models
    target.save(tmp_path)
    public = transformers.LlamaForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    ids = torch.randint(SIZES.vocab, (2, 9))
    with torch.no_grad():
        expected = public(input_ids=ids, output_hidden_states=True)
        logits, taps = target(ids)
    torch.testing.assert_close(logits, expected.logits, rtol=1e-4, atol=1e-5)
    for tap in range(SIZES.layers):
        torch.testing.assert_close(taps[tap], expected.hidden_states[tap], rtol=1e-4, atol=1e-5)


@torch.no_grad()
def test_greedy_needs_no_good_guess(models: tuple[Target, Draft]):
    target, _ = models
    prompt = torch.tensor([5, 9, 11, 30])
    expected = prompt
    for _ in range(8):
        expected = torch.cat((expected, target(expected[None])[0][0, -1].argmax()[None]))
    found = greedy(target, torch.cat((prompt, torch.zeros(8, dtype=torch.int64))), len(prompt))
    assert found.tolist() == expected.tolist()


@torch.no_grad()
def test_accepted_drafts_are_the_leading_right_ones(models: tuple[Target, Draft]):
    target, draft = models
    ids = torch.randint(SIZES.vocab, (14,))
    plain_counts = []
    steps = 3
    for anchor in range(len(ids) - 1 - steps):
        plain, (_, taps) = PlainDraft(draft), target(ids[None])
        states = draft.fc(torch.cat([taps[tap] for tap in LAYOUT], -1))[0]
        for position in range(anchor + 1):
            logits, hidden = plain.step(target.embed_tokens(ids[position + 1]), states[position], position)
        right = 0
        while right < steps and draft.hot_ids[logits.argmax()] == ids[anchor + 2 + right]:
            right += 1
            logits, hidden = plain.step(target.embed_tokens(ids[anchor + 1 + right]), hidden, anchor + right)
        plain_counts.append(right)
    assert accepted_drafts(target, draft, LAYOUT, ids, steps).tolist() == plain_counts


@torch.no_grad()
def test_chain_acceptance_of_a_perfect_and_a_hopeless_draft(
    models: tuple[Target, Draft], monkeypatch: pytest.MonkeyPatch
):
    target, draft = models
    ids = torch.randint(SIZES.vocab, (40,))
    for right, verify_steps in ((3, 5), (0, 20)):
        monkeypatch.setattr(
            "actors.demo_models.acceptance.accepted_drafts", lambda *_, right=right: torch.full((36,), right)
        )
        found = chain_acceptance(target, draft, LAYOUT, [(ids, 6)], steps=3, new_tokens=21)
        assert (found.tokens, found.verify_steps) == (21, verify_steps)
        assert found.by_position == (float(right > 0),) * 3


def test_hot_ids_must_ascend():
    with pytest.raises(ValueError, match="ascending"):
        Draft(SIZES, num_taps=3, hot_ids=[4, 3])
