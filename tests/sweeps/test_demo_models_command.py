"""`demo-models`: plain progress lines in a pipe, bars on a terminal, refusal before training."""

import io
from pathlib import Path

import pytest

from search_spaces.errors import InputError
from sweeps.commands.demo_models import demo_models, training_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_pipe_gets_the_end_of_each_stage_without_control_characters():
    stream = io.StringIO()
    with training_progress(stream) as on_step:
        for step in range(1, 4):
            on_step("target", step, 3, 2.0)
        on_step("draft", 1, 1, 7.0)
    lines = stream.getvalue().splitlines()
    assert [line.rsplit(",", 1)[0] for line in lines] == ["target 3/3, loss 2.000", "draft 1/1, loss 7.000"]
    assert "\x1b" not in stream.getvalue()


def test_a_terminal_gets_bars():
    stream = Terminal()
    with training_progress(stream) as on_step:
        on_step("target", 1, 2, 3.0)
        on_step("target", 2, 2, 1.0)
        on_step("draft", 1, 2, 5.0)
    shown = stream.getvalue()
    assert "2/2" in shown
    assert "loss 2.900" in shown
    assert "draft" in shown


def test_a_full_folder_is_refused(tmp_path: Path):
    (tmp_path / "kept").touch()
    with pytest.raises(InputError, match="not an empty folder"):
        demo_models(tmp_path)
