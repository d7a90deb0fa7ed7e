"""The draft's vocabulary against the target's, and the map between them (`d2t`, `t2d`).

SGLang reads target id = draft id + d2t[draft id] and ignores `t2d` (`srt/models/llama_eagle3.py`, `load_weights`).
Without `d2t` a draft id is taken for the same target id.
"""

from __future__ import annotations

from search_spaces.checks.context import CheckContext, Finding, error, warning
from search_spaces.checks.draft_class import LLAMA_DRAFT
from search_spaces.model_facts import DraftFacts, VocabMapFacts

_TRAINED = "save d2t with the draft as its trainer wrote it"


def draft_vocab_size(draft: DraftFacts) -> int | None:
    """The number of tokens the draft can propose: as declared, else the rows of its own output layer."""
    declared = draft.config.get("draft_vocab_size")
    if isinstance(declared, int) and not isinstance(declared, bool):
        return declared
    head = draft.tensor("lm_head.weight")
    return head.shape[0] if head is not None and head.shape else None


def vocabulary_map(context: CheckContext) -> list[Finding]:
    """`d2t`: there when it is needed, no identity, of the right length, inside the target's vocabulary."""
    draft, target = context.draft, context.target.vocab_size
    size = draft_vocab_size(draft)
    if size is None or draft.weights_unread:
        return []
    sizes = f"draft vocabulary {size}, target vocabulary {target}"
    if draft.vocab_map_unread:
        d2t = draft.tensor("d2t")
        if d2t is not None and d2t.dtype.startswith(("F", "BF")):
            message = (
                f"d2t holds {d2t.dtype} numbers: SGLang adds them to draft ids and cannot use the sums as token ids"
            )
            return [error("d2t-type", message, draft.vocab_map_unread, "save d2t as 64-bit whole numbers")]
        return [warning("d2t-unread", "the vocabulary map could not be read", draft.vocab_map_unread, _TRAINED)]
    if draft.vocab_map is None:
        if size == target:
            return []
        return [
            error(
                "d2t-missing",
                f"the draft proposes {size} of {target} tokens and its checkpoint has no d2t: SGLang reads draft ids as"
                f" the first {size:,} target ids, and acceptance collapses",
                f"{sizes}, no tensor d2t",
                _TRAINED,
            )
        ]
    return _map_values(draft.vocab_map, size, target, sizes)


def _map_values(vocab: VocabMapFacts, size: int, target: int, sizes: str) -> list[Finding]:
    if vocab.entries != size:
        return [
            error(
                "d2t-length",
                f"d2t maps {vocab.entries} draft ids, the draft's vocabulary has {size}",
                sizes,
                "use the d2t that was saved with this output layer",
            )
        ]
    span = f"target ids {vocab.lowest_target_id} to {vocab.highest_target_id}, {vocab.distinct_target_ids} distinct"
    if vocab.all_zero and size < target:
        return [
            error(
                "d2t-identity",
                f"d2t is all zeros although the draft's vocabulary is smaller: the identity map onto the first"
                f" {size:,} ids of {target:,}, so almost every proposal is another token than the draft meant",
                f"{sizes}, d2t all zero",
                _TRAINED,
            )
        ]
    if vocab.lowest_target_id < 0 or vocab.highest_target_id >= target:
        return [
            error(
                "d2t-out-of-range",
                f"d2t leads outside the target's vocabulary of {target} (absolute ids stored instead of offsets?)",
                span,
                "store offsets: d2t[i] = target id - i",
            )
        ]
    findings = []
    if vocab.distinct_target_ids < vocab.entries:
        findings.append(
            warning(
                "d2t-collides",
                f"{vocab.entries - vocab.distinct_target_ids} draft ids share a target id with another"
                " (absolute ids stored instead of offsets?)",
                span,
                "store offsets: d2t[i] = target id - i",
            )
        )
    if vocab.holds_target_ids:
        return [
            error(
                "d2t-absolute",
                "d2t holds target ids themselves: SGLang adds each to its draft id, so almost every proposal is another"
                " token than the draft meant",
                f"t2d marks exactly the values of d2t; as offsets they reach {span}",
                "store offsets: d2t[i] = target id - i",
            )
        ]
    if vocab.t2d_agrees is False:
        findings.append(
            warning(
                "t2d-disagrees",
                "t2d marks other target ids than d2t reaches: one of the two is from another training run"
                " (SGLang uses d2t)",
                span,
                _TRAINED,
            )
        )
    if vocab.t2d_entries is not None and vocab.t2d_entries != target:
        findings.append(
            warning(
                "t2d-length",
                f"t2d covers {vocab.t2d_entries} target ids, the target has {target}: made for another target?",
                f"{sizes}, t2d of {vocab.t2d_entries}",
                "pair the draft with the target it was trained for",
            )
        )
    return findings


def output_layer(context: CheckContext) -> list[Finding]:
    """The draft's output layer against its declared vocabulary, and what SGLang does when one of them is missing."""
    draft = context.draft
    declared, head = draft.config.get("draft_vocab_size"), draft.tensor("lm_head.weight")
    tied = bool(draft.config.get("tie_word_embeddings"))
    findings = []
    if draft.architecture == LLAMA_DRAFT and "draft_vocab_size" not in draft.config and not tied:
        findings.append(
            error(
                "draft-vocab-size-missing",
                f"draft_vocab_size is not in the draft's config: {LLAMA_DRAFT} reads it and fails to start",
                f"{draft.path / 'config.json'}; srt/models/llama_eagle3.py",
                "write draft_vocab_size (null when the draft shares the target's output layer)",
            )
        )
    if isinstance(declared, int) and head is not None and head.shape[:1] != (declared,):
        findings.append(
            error(
                "output-layer-rows",
                f"the draft's output layer has {head.shape[0] if head.shape else 0} rows, draft_vocab_size is"
                f" {declared}: the weights do not load",
                f"lm_head.weight {list(head.shape)}",
                "make draft_vocab_size the number of rows",
            )
        )
    if isinstance(declared, int) and head is None and draft.tensors and not tied:
        # A full-size vocabulary can be mended without the trainer: null shares the target's output layer.
        build = warning if declared == context.target.vocab_size else error
        findings.append(
            build(
                "output-layer-missing",
                "draft_vocab_size is given but the checkpoint has no lm_head.weight: the output layer starts random",
                f"draft_vocab_size {declared}",
                "save the output layer, or write draft_vocab_size: null to share the target's",
            )
        )
    return findings


def tied_output_layer(context: CheckContext) -> list[Finding]:
    """`tie_word_embeddings` on a draft with an output layer or a vocabulary of its own."""
    draft, target = context.draft, context.target.vocab_size
    if draft.architecture != LLAMA_DRAFT or not draft.config.get("tie_word_embeddings"):
        return []
    size, head = draft_vocab_size(draft), draft.tensor("lm_head.weight")
    if head is None and size in (None, target):
        return []
    return [
        error(
            "output-layer-tied",
            "tie_word_embeddings makes SGLang use the embedding as the draft's output layer"
            + (": its own lm_head.weight is skipped silently" if head is not None else "")
            + (f", and the first {size:,} tokens stand for its {size:,} of {target:,}" if size != target else ""),
            f"tie_word_embeddings = true, draft vocabulary {size}, target vocabulary {target},"
            f" lm_head.weight {'absent' if head is None else list(head.shape)}",
            "write tie_word_embeddings: false (a draft's config is often copied from a small target's)",
        )
    ]


def shared_vocabulary(context: CheckContext) -> list[Finding]:
    """The vocabularies that share one embedding."""
    target, draft = context.target.vocab_size, context.draft
    declared = draft.text_config.get("vocab_size")
    size = draft_vocab_size(draft)
    if size is not None and size > target:
        return [
            error(
                "draft-vocab-too-large",
                f"the draft proposes {size} tokens, the target knows {target}",
                f"draft vocabulary {size}, target vocabulary {target}",
                "pair the draft with the target it was trained for",
            )
        ]
    if isinstance(declared, int) and declared != target:
        return [
            warning(
                "vocab-size",
                f"the draft's config has vocab_size {declared}, the target {target}: another tokenizer or a padded"
                " vocabulary; SGLang gives the draft the target's embedding",
                f"vocab_size {declared} against {target}",
                "check that both use the same tokenizer",
            )
        ]
    return []
