"""The target's tokenizer as prompts need it: its chat template and the length of a text in tokens."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from search_spaces.errors import EnvironmentProblem, InputError


def has_chat_template(model_path: Path) -> bool:
    """Whether a model's folder holds a chat template, judged by its files alone."""
    if (model_path / "chat_template.jinja").is_file() or (model_path / "chat_template.json").is_file():
        return True
    try:
        config = json.loads((model_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(config, dict) and bool(config.get("chat_template"))


class TargetTokenizer:
    """The tokenizer of a model's folder, loaded at the first use: importing `transformers` takes seconds.

    No code from the folder is run. EnvironmentProblem without `transformers`, InputError for a folder without a
    tokenizer or, in `render`, without a chat template.
    """

    def __init__(self, model_path: Path) -> None:
        self.model_path = model_path
        self._loaded: Any = None

    @property
    def template_hash(self) -> str:
        """16 hexadecimal digits over the chat template's text."""
        return hashlib.sha256(self._template().encode()).hexdigest()[:16]

    def render(self, messages: Sequence[Mapping[str, str]], where: str) -> str:
        """The messages as the text that the model was trained to answer, up to where its own turn begins.

        A leading BOS is left out where the tokenizer adds one by itself, as SGLang's `/generate` lets it do.
        """
        template = self._template()
        try:
            text = self._tokenizer().apply_chat_template(
                [dict(message) for message in messages],
                chat_template=template,
                tokenize=False,
                add_generation_prompt=True,
            )
        except Exception as error:  # the template is the model's own program and may raise anything
            raise InputError(f"{where}: the chat template refuses it: {' '.join(str(error).split())[:200]}") from error
        bos = self._tokenizer().bos_token
        doubled = bool(bos) and text.startswith(bos) and self._tokenizer()("a").input_ids[:1] == [self._bos_id()]
        return str(text[len(bos) :] if doubled else text)

    def count(self, text: str) -> int:
        """The text's length in tokens, special ones included, as the server counts a prompt."""
        return len(self._tokenizer()(text).input_ids)

    def _bos_id(self) -> int | None:
        return self._tokenizer().bos_token_id  # type: ignore[no-any-return]

    def _template(self) -> str:
        template = self._tokenizer().chat_template
        if isinstance(template, dict):
            template = template.get("default")
        if not isinstance(template, str) or not template:
            raise InputError(f"{self.model_path} has no chat template, which messages need; give texts instead")
        return template

    def _tokenizer(self) -> Any:
        if self._loaded is None:
            try:
                from transformers import AutoTokenizer
            except ImportError as error:
                raise EnvironmentProblem(
                    "chat messages and limits in tokens need the package `transformers`: pip install transformers"
                ) from error
            try:
                self._loaded = AutoTokenizer.from_pretrained(self.model_path, local_files_only=True)
            except Exception as error:  # transformers raises many kinds for a folder without a readable tokenizer
                message = " ".join(str(error).split())[:200]
                raise InputError(f"{self.model_path}: its tokenizer cannot be loaded: {message}") from error
        return self._loaded
