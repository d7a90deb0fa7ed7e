"""Reaching MLflow: the URI, the client, the experiment, and MLflow's own value classes. The one importer of MLflow.

It is imported when a connection is made and not before.
"""

from __future__ import annotations

import logging
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from search_spaces.errors import EnvironmentProblem, InputError

logger = logging.getLogger(__name__)

_REACH_TIMEOUT_S = 5.0
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SETTINGS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "15",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
"""A server that goes away must not hold up the sweep for the minutes of MLflow's own retries."""


def connect(uri: str, experiment: str, artifact_root: Path) -> tuple[Any, str]:
    """(client, experiment id); a missing experiment is created, a deleted one restored.

    `artifact_root` is where a new experiment on a database keeps artifacts; a tracking server decides for itself.
    InputError for a URI that MLflow does not serve, EnvironmentProblem when it cannot be reached.
    """
    check_uri(uri)
    check_reachable(uri)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    try:
        from mlflow import MlflowClient

        client = MlflowClient(tracking_uri=uri)
        return client, _experiment(client, experiment, uri, artifact_root)
    except Exception as error:
        raise EnvironmentProblem(f"tracking.uri {_without_password(uri)}: {one_line(error)}") from None


def check_uri(uri: str) -> None:
    """InputError unless the URI is a tracking server's address or a database's, SQLite by an absolute path."""
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme not in (*_DATABASES, "http", "https"):
        raise InputError(
            f"tracking.uri {uri!r}: MLflow no longer keeps runs in plain files; "
            "use sqlite:////absolute/path/mlflow.db or http(s)://host:port"
        )
    if scheme == "sqlite":
        path = uri.partition(":///")[2]
        if not path.startswith("/"):
            raise InputError(f"tracking.uri {uri!r}: the path must be absolute: sqlite:////absolute/path/mlflow.db")


def check_reachable(uri: str) -> None:
    """EnvironmentProblem, within seconds, when a tracking server does not answer or a database file cannot be made."""
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme == "sqlite":
        path = Path(uri.partition(":///")[2])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentProblem(f"tracking.uri {uri}: {error.strerror or error}") from None
    elif scheme in ("http", "https"):
        try:
            with urllib.request.urlopen(f"{uri.rstrip('/')}/health", timeout=_REACH_TIMEOUT_S):  # noqa: S310 - checked
                pass
        except urllib.error.HTTPError:
            pass  # it answers, if only to ask for a password
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise EnvironmentProblem(f"tracking.uri {_without_password(uri)}: no answer: {one_line(reason)}") from None


def _experiment(client: Any, name: str, uri: str, artifact_root: Path) -> str:
    found = client.get_experiment_by_name(name)
    if found is None:
        local = urlsplit(uri).scheme.partition("+")[0] in _DATABASES
        location = artifact_root.absolute().as_uri() if local else None
        return str(client.create_experiment(name, artifact_location=location))
    if found.lifecycle_stage == "deleted":
        logger.warning("MLflow experiment %s was deleted and is restored", name)
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def param_entities(params: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import Param

    return [Param(name, value) for name, value in params.items()]


def metric_entities(metrics: Mapping[str, float], at_ms: int, steps: Mapping[str, int] | None = None) -> list[Any]:
    from mlflow.entities import Metric

    return [Metric(name, value, at_ms, (steps or {}).get(name, 0)) for name, value in metrics.items()]


def tag_entities(tags: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import RunTag

    return [RunTag(name, value) for name, value in tags.items()]


def one_line(error: object) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    return uri.replace(f":{parts.password}@", ":***@") if parts.password else uri
