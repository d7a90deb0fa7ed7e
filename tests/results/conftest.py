"""One real MLflow store on SQLite for the whole session: making one costs seconds."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from tracked_study import TrackedStudy, open_view

from results.store import StudyFolder


@pytest.fixture(scope="session")
def mlflow_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mlflow")


_numbers = itertools.count()


@pytest.fixture
def tracked(mlflow_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrackedStudy:
    monkeypatch.chdir(tmp_path)  # nothing may be written relative to the working directory
    folder = StudyFolder(tmp_path / "study")
    folder.open_for_write()
    name, uri, root = f"study-{next(_numbers)}", f"sqlite:///{mlflow_store / 'mlflow.db'}", mlflow_store / "artifacts"
    return TrackedStudy(uri=uri, folder=folder, name=name, artifact_root=root, view=open_view(uri, folder, name, root))
