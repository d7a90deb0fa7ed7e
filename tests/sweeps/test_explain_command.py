from __future__ import annotations

import json
from pathlib import Path

import pytest

from sweeps.cli import main

ROW = {"num_steps": 1, "eagle_topk": 1, "num_draft_tokens": 8, "accept_length": 1.74}
LOG = (
    "[x TP0] server_args=ServerArgs(tp_size=1, speculative_num_steps=3, speculative_eagle_topk=1,"
    " speculative_num_draft_tokens=4, max_running_requests=48)\n"
    "[x TP0] Decode batch, #running-req: 48, #token: 9, token usage: 0.04, accept len: 2.60, accept rate: 0.53,"
    " cuda graph: True, gen throughput (token/s): 1044.10, #queue-req: 16\n"
)


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_rows_log_and_dump_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = write(tmp_path, "rows.jsonl", json.dumps(ROW) + "\n" + json.dumps({**ROW, "tp_size": 8}) + "\n")
    assert main(["explain", rows, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [row["verdict"] for row in content["verdicts"]] == ["yes", "no", "no"]
    log = write(tmp_path, "server.log", LOG)
    dump = write(tmp_path, "info.json", json.dumps({"internal_states": [{}], "tp_size": 1}, indent=2))
    assert main(["explain", log, dump]) == 0
    text = capsys.readouterr().out
    assert "harness: yes" in text
    assert "16 of 64 wait in the queue" in text
    pretty = write(tmp_path, "one.json", json.dumps(ROW, indent=2))
    assert main(["explain", pretty]) == 0
    assert "config: YES" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "empty"), ("hello\n", "neither JSONL"), ('{"a": 1}\n', "unknown key 'a'"), ("[{}]", "neither JSONL")],
)
def test_bad_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str) -> None:
    assert main(["explain", write(tmp_path, "bad", text)]) == 2
    message = capsys.readouterr().err
    assert words in message
    assert str(tmp_path / "bad") in message
    assert len(message.splitlines()) == 1


def test_missing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", str(tmp_path / "nowhere.jsonl")]) == 2
    assert "nowhere.jsonl" in capsys.readouterr().err
