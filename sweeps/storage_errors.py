"""What a study's storage raises when it does not answer, and how long it is asked again."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import SQLAlchemyError

from search_spaces.errors import EnvironmentProblem

logger = logging.getLogger(__name__)

STORAGE_ERRORS = (StorageInternalError, SQLAlchemyError, OSError)
"""A locked file, a full disk, a database that restarts. Optuna's own error hides SQLAlchemy's."""

PAUSES_S = (0.5, 1.0, 2.0)
"""Between tries; SQLite itself waits 5 s for a lock in each."""


class Named(Protocol):
    name: str


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Named)


def patient(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Repeat a method of a study, which must bear it, while its storage fails; then EnvironmentProblem."""

    @functools.wraps(method)
    def repeated(study: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        for pause_s in PAUSES_S:
            try:
                return method(study, *args, **kwargs)
            except STORAGE_ERRORS as error:
                logger.warning("search.storage: %s; tried again in %g s", reason_of(error), pause_s)
                time.sleep(pause_s)
        try:
            return method(study, *args, **kwargs)
        except STORAGE_ERRORS as error:
            raise EnvironmentProblem(f"search.storage: study {study.name!r}: {reason_of(error)}") from error

    return repeated


def reason_of(error: BaseException) -> str:
    """The first line of what the database said."""
    cause = error.__cause__ if isinstance(error, StorageInternalError) and error.__cause__ else error
    return (str(cause).strip() or type(cause).__name__).splitlines()[0]
