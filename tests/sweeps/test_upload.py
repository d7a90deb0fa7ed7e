from __future__ import annotations

import random
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from search_spaces.errors import InputError
from sweeps import upload
from sweeps.upload import files_to_send, pack, show_bytes


def fill(folder: Path) -> None:
    for name in (
        "sweep.yaml",
        "models/draft/model.safetensors",
        ".git/config",
        ".venv/x",
        "sub/__pycache__/y.pyc",
        "out/log.txt",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def sent(folder: Path) -> list[str]:
    return sorted(str(file) for file in files_to_send(folder))


def test_what_ray_leaves_out_stays_here(tmp_path: Path) -> None:
    fill(tmp_path)
    assert sent(tmp_path) == ["models/draft/model.safetensors", "out/log.txt", "sweep.yaml"]


def test_what_git_ignores_stays_here(tmp_path: Path) -> None:
    fill(tmp_path)
    (tmp_path / ".git" / "config").unlink()
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_text("out/\n")
    assert sent(tmp_path) == [".gitignore", "models/draft/model.safetensors", "sweep.yaml"]


@pytest.mark.parametrize("place", ["models/draft", "models/draft/model.safetensors"])
def test_what_the_job_needs_travels_or_it_is_said(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "job"
    fill(folder)
    (folder / ".git" / "config").unlink()
    subprocess.run(["git", "init", "-q", str(folder)], check=True)
    needed = {"sweep.yaml": Path("sweep.yaml"), "draft": Path(place)}
    assert pack(folder, tmp_path / "job.zip", needed)
    # a model that was cloned has a repository of its own, of which git lists nothing
    clone = folder / "models" / "draft"
    subprocess.run(["git", "init", "-q", str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "add", "."], check=True)
    author = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "-C", str(clone), *author, "commit", "-q", "-m", "x"], check=True)
    with pytest.raises(
        InputError, match=r"draft: models/draft/model\.safetensors would not travel .*repository of its"
    ):
        pack(folder, tmp_path / "job.zip", needed)
    shutil.rmtree(clone / ".git")
    (clone / ".DS_Store").touch()
    (folder / ".gitignore").write_text(".DS_Store\n")
    assert pack(folder, tmp_path / "job.zip", needed)
    (folder / ".gitignore").write_text("*.safetensors\n")
    with pytest.raises(InputError, match="git ignores it"):
        pack(folder, tmp_path / "job.zip", needed)
    (folder / ".gitignore").write_text("*.yaml\n")
    with pytest.raises(InputError, match=r"sweep\.yaml: sweep\.yaml would not travel"):
        pack(folder, tmp_path / "job.zip", needed)


def test_a_model_behind_a_link_does_not_travel(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    fill(folder)
    (folder / "link").symlink_to("models/draft")
    with pytest.raises(InputError, match=r"draft: link/model\.safetensors would not travel .*behind a link"):
        pack(folder, tmp_path / "job.zip", {"draft": Path("link")})


def test_the_zip_is_the_same_for_the_same_content(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    fill(folder)
    first, second = tmp_path / "1.zip", tmp_path / "2.zip"
    size = pack(folder, first)
    (folder / "sweep.yaml").touch()
    pack(folder, second)
    assert first.read_bytes() == second.read_bytes()
    assert size == first.stat().st_size
    with zipfile.ZipFile(first) as packed:
        assert packed.read("models/draft/model.safetensors") == b"models/draft/model.safetensors"


def test_too_much_is_refused_with_the_largest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_UPLOAD_BYTES", 2**20)
    folder = tmp_path / "job"
    fill(folder)
    noise = random.Random(0)
    (folder / "big.npy").write_bytes(noise.randbytes(900_000))
    (folder / "bigger.npy").write_bytes(noise.randbytes(1_000_000))
    with pytest.raises(
        InputError, match=r"largest: bigger\.npy \(1\.0 MiB\), big\.npy \(0\.9 MiB\), .*absolute path"
    ) as caught:
        pack(folder, tmp_path / "job.zip")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "job.zip").exists()


def test_text_that_gets_small_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_UPLOAD_BYTES", 2**20)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "prompts.jsonl").write_text("the same again\n" * 500_000)
    assert pack(tmp_path / "job", tmp_path / "job.zip") < 2**20


def test_a_draft_of_150_mb_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(150 * 2**20)
    with pytest.raises(
        InputError, match=r"150\.0 MiB are too much to send, Ray takes 100\.0 MiB; largest: model\.safetensors"
    ):
        pack(tmp_path, tmp_path.parent / "job.zip")


def test_sizes_are_shown_for_people() -> None:
    assert [show_bytes(size) for size in (12 * 2**10, 152_567_808)] == ["12.0 KiB", "145.5 MiB"]
