"""The study folder: durable, all-or-nothing records that never change, and clear refusals of what is not one."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from result_builders import cell, config, launch, record, row, spec_row

from results.cells import summarise_cell
from results.failures import Failure
from results.launch_script import command_text, user_command
from results.record_json import decode_record, encode_record
from results.store import StudyFolder
from search_spaces.config import Triple
from search_spaces.errors import EnvironmentProblem, InputError


@pytest.fixture
def folder(tmp_path: Path) -> StudyFolder:
    made = StudyFolder(tmp_path / "study")
    made.open_for_write()
    return made


def full_record(trial_id: str = "t0001"):
    observation = cell([spec_row("p0", (11, 14, 11, 4, 0, 3), 6), row(prompt_id="p1")])
    return record(trial_id, cells=[summarise_cell(observation, Triple(num_steps=5, eagle_topk=1, num_draft_tokens=6))])


def test_a_trial_is_read_back_exactly(folder: StudyFolder) -> None:
    written = full_record()
    rows = {
        (1, None): (row(), row(prompt_id="p1", error="lost", first_token_s=None, histogram=None)),
        (8, None): (row(),),
        (0, 2.5): (row(),),
    }
    path = folder.write_trial(written, rows, {"server.log": b"line\n"})
    assert folder.records() == (written,)
    assert folder.rows("t0001") == rows
    names = sorted(entry.name for entry in path.iterdir())
    assert names == ["launch.sh", "record.json", "requests.parquet", "server.log", "server_info.json"]
    info = json.loads(folder.trial_file("t0001", "server_info.json").read_text())
    assert info["effective_args"]["max_running_requests"] == 48
    assert os.access(path / "launch.sh", os.X_OK)


def test_failed_trials_are_records_too(folder: StudyFolder) -> None:
    failed = record(
        "t0002", failure=Failure(phase="launch", kind="oom", message="no memory", log_tail="a\nb"), launch=None
    )
    folder.write_trial(failed, {}, {})
    assert folder.records() == (failed,)
    assert folder.rows("t0002") == {}
    assert not folder.records()[0].ok


def test_records_come_in_the_order_of_their_numbers(folder: StudyFolder) -> None:
    for trial_id in ("t10-a0", "t2-a1", "t2-a0", "baseline-tp1"):
        folder.write_trial(record(trial_id), {}, {})
    assert folder.trial_ids() == tuple(r.trial_id for r in folder.records())
    assert set(folder.trial_ids()) == {"baseline-tp1", "t2-a0", "t2-a1", "t10-a0"}
    assert [name for name in folder.trial_ids() if name.startswith("t")] == ["t2-a0", "t2-a1", "t10-a0"]


def test_a_finished_record_is_never_changed(folder: StudyFolder) -> None:
    path = folder.write_trial(full_record(), {(1, None): (row(),)}, {"server.log": b"one"})
    before = {entry.name: entry.read_bytes() for entry in path.iterdir()}
    with pytest.raises(FileExistsError):
        folder.write_trial(replace(full_record(), study="other"), {}, {"server.log": b"two"})
    folder.write_trial(full_record("t0002"), {}, {})
    folder.open_for_write()
    assert {entry.name: entry.read_bytes() for entry in path.iterdir()} == before


@pytest.mark.parametrize("trial_id", ["", ".hidden", "../up", "a/b", "x" * 200])
def test_ids_that_are_no_plain_names_are_refused(folder: StudyFolder, trial_id: str) -> None:
    with pytest.raises(ValueError, match="trial id"):
        folder.write_trial(record(trial_id), {}, {})


@pytest.mark.parametrize("name", ["../evil", "record.json", "requests.parquet", ".tmp-x"])
def test_file_names_cannot_leave_the_record_or_replace_it(folder: StudyFolder, name: str) -> None:
    with pytest.raises(ValueError, match="not a name for a file"):
        folder.write_trial(record("t1"), {}, {name: b""})
    assert folder.records() == ()


KILLED_AT_EACH_WRITE = """
import os, shutil, signal, sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pathlib import Path
import pyarrow.parquet
from result_builders import record, row
from results.store import StudyFolder

folder = StudyFolder(Path(sys.argv[3]))
calls = ("fsync", "open", "close", "mkdir", "rename")
originals = {name: getattr(os, name) for name in calls}


def write_and_die(kill_at):
    steps = 0

    def counted(function):
        def run(*args, **kwargs):
            nonlocal steps
            steps += 1
            if steps == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)

        return run

    for name in calls:
        setattr(os, name, counted(originals[name]))
    folder.write_trial(record("t0002"), {(1, None): (row(),) * 20}, {"server.log": b"x" * 100_000})
    os._exit(0)


for kill_at in range(1, 100, 2):
    child = os.fork()
    if child == 0:
        write_and_die(kill_at)
    status = os.waitpid(child, 0)[1]
    ids = folder.trial_ids()
    assert ids in (("t0001",), ("t0001", "t0002")), ids
    assert len(folder.records()) == len(ids)
    if "t0002" in ids:
        assert len(folder.rows("t0002")[(1, None)]) == 20
        assert len(folder.trial_file("t0002", "server.log").read_bytes()) == 100_000
        shutil.rmtree(folder.record_path("t0002"))
    removed = folder.open_for_write()
    assert not [name for name in os.listdir(folder.records_path) if name.startswith(".tmp-")]
    print(kill_at, os.WIFSIGNALED(status), "t0002" in ids, len(removed))
    if not os.WIFSIGNALED(status):
        break
"""


def test_killed_at_any_moment_a_trial_is_whole_or_absent(folder: StudyFolder) -> None:
    folder.write_trial(full_record(), {(1, None): (row(),)}, {})
    root, here = Path(__file__).parents[2], Path(__file__).parent
    command = [sys.executable, "-c", KILLED_AT_EACH_WRITE, str(root), str(here), str(folder.path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes = [tuple(line.split()[1:]) for line in done.stdout.splitlines()]
    assert len(outcomes) > 8
    assert ("True", "False", "1") in outcomes  # killed half way: a leftover, nothing to read
    assert ("True", "True", "0") in outcomes  # killed after the rename: whole
    assert outcomes[-1] == ("False", "True", "0")
    assert folder.trial_ids() == ("t0001",)


def test_what_a_killed_writer_left_is_in_nobodys_way_and_goes(folder: StudyFolder) -> None:
    """In a container the next driver has the same process id as the one that died."""
    places = [folder.path / name for name in ("probes", "traces", "traces/0,3,7 tp1")]
    for place in places:
        place.mkdir()
        (place / f".tmp-0001.pools-{os.getpid()}").write_bytes(b"half")
        folder.write_file(place / "0001.pools", "whole")
    (folder.logs_path / ".tmp-of-somebody").touch()
    assert folder.open_for_write() == (f".tmp-0001.pools-{os.getpid()}",) * 3
    assert [[file.read_text() for file in place.glob("*.pools")] for place in places] == [["whole"]] * 3
    assert not [file for place in places for file in place.glob(".tmp-*")]
    assert (folder.logs_path / ".tmp-of-somebody").exists()


def test_a_full_disk_is_one_line_and_leaves_nothing(folder: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync
    calls = []

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EnvironmentProblem, match="No space left on device") as caught:
        folder.write_trial(full_record(), {(1, None): (row(),)}, {})
    assert "\n" not in str(caught.value)
    assert list(folder.records_path.iterdir()) == []
    monkeypatch.undo()
    folder.write_trial(full_record(), {(1, None): (row(),)}, {})
    assert len(folder.records()) == 1


def test_a_folder_that_cannot_be_written_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        StudyFolder(tmp_path / "file" / "study").open_for_write()


def test_reading_a_study_that_is_not_there_writes_nothing(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path / "none")
    assert folder.records() == ()
    assert folder.study() is None
    assert not folder.path.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[: len(text) // 2], "not a JSON object"),
        (lambda text: text.replace('"schema": 1', '"schema": 9'), "schema: 9, this version reads 1"),
        (lambda text: text.replace('"attempt": 0', '"attempt": "zero"'), "attempt: "),
        (lambda text: text.replace('"tp_size": 1', '"tp_size": true', 1), "tp_size"),
        (lambda text: text.replace('"trial_id": "t0001"', '"trial_id": "t0009"'), "does not match its folder"),
        (lambda text: text.replace('"role": "search"', '"role": "hero"'), "role"),
        (lambda text: "[1]", "not a JSON object"),
    ],
)
def test_a_corrupt_record_is_named_in_one_line(folder: StudyFolder, change, words: str) -> None:
    folder.write_trial(full_record(), {}, {})
    path = folder.trial_file("t0001", "record.json")
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError) as caught:
        folder.records()
    message = str(caught.value)
    assert words in message
    assert message.startswith(str(path))
    assert "\n" not in message


def test_a_corrupt_table_is_named_in_one_line(folder: StudyFolder) -> None:
    folder.write_trial(full_record(), {(1, None): (row(),)}, {})
    path = folder.trial_file("t0001", "requests.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="not a table of requests") as caught:
        folder.rows("t0001")
    assert "\n" not in str(caught.value)


def test_study_files_are_replaced_whole(folder: StudyFolder) -> None:
    folder.write_study({"space": "abc", "n": 1})
    folder.write_study({"space": "def"})
    assert folder.study() == {"space": "def"}
    folder.study_path.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        folder.study()


def test_a_record_without_additive_fields_is_still_read() -> None:
    content = json.loads(encode_record(full_record()))
    for name in ("degenerate_share", "context_strata", "mean_in_flight", "started_at_unix_s"):
        del content["cells"][0][name]
    del content["launch"]["extra_starts"]
    old = decode_record(json.dumps(content).encode(), name="old")
    assert old.cells[0].accept_length == full_record().cells[0].accept_length
    assert old.cells[0].context_strata == ()
    assert old.server_starts == 1


def test_a_record_counts_every_server_that_was_started_for_it() -> None:
    record = full_record()
    assert record.launch is not None
    started = replace(record.launch, extra_starts=2)
    failure = Failure(phase="launch", kind="oom", message="out of memory")
    for changes, starts in (
        ({"launch": started}, 3),
        ({"launch": replace(started, weights_loaded=False, extra_starts=0)}, 0),
        ({"launch": started, "failure": failure}, 3),
        ({"launch": None, "failure": failure}, 1),
        ({"launch": None, "failure": replace(failure, server_starts=2)}, 2),
        ({"launch": None, "failure": replace(failure, server_starts=0)}, 0),
    ):
        changed = replace(record, **changes)  # type: ignore[arg-type]
        assert decode_record(encode_record(changed), name="record.json").server_starts == starts


def test_the_launch_command_keeps_arguments_whole() -> None:
    command = launch().command
    assert command_text(command, (("A", "b c"),)).splitlines() == [
        "A='b c' \\",
        "  python -m sglang.launch_server \\",
        "  --model-path '/models/my target' \\",
        "  --tp-size 2",
    ]


def test_the_launch_script_runs_from_any_place_with_its_files(folder: StudyFolder, tmp_path: Path) -> None:
    command = ("sh", "-c", 'cat "$1"; echo "$V" "$@"', "--x", "/gone/draft.json", "--port", "30100", "--name", "x y'")
    made = launch(command=command, files=(("/gone/draft.json", "{}\n"),), environment=(("V", "a $b"),))
    folder.write_trial(replace(record("t1"), launch=made), {}, {})
    moved = tmp_path / "a copy"
    folder.record_path("t1").rename(moved)
    done = subprocess.run([moved / "launch.sh"], capture_output=True, text=True, check=True, timeout=10, cwd="/")
    assert done.stdout.splitlines() == ["{}", f"a $b {moved}/draft.json --name x y'"]


def test_a_switched_server_is_launched_with_its_own_triple() -> None:
    words = ("python", "--speculative-num-steps", "7", "--speculative-eagle-topk", "8", "--tp-size", "1")
    made = launch(command=words, switch_s=0.5)
    assert user_command(made, config((0, 3, 7), (3, 2, 6))) == (
        "python",
        "--speculative-num-steps",
        "3",
        "--speculative-eagle-topk",
        "2",
        "--tp-size",
        "1",
    )
    assert user_command(replace(made, switch_s=None), config())[2] == "7"


def test_the_script_says_which_trial_it_starts(folder: StudyFolder) -> None:
    folder.write_trial(record("t0001", config((0, 3, 7), (5, 1, 6), 2)), {}, {})
    second = folder.trial_file("t0001", "launch.sh").read_text().splitlines()[1]
    assert second == "# Trial t0001 of study demo: layout 0,3,7 at (5,1,6), tp 2, SGLang 0.5.23"
