"""The driver's own log, in the study's folder."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from results.store import StudyFolder
from search_spaces.errors import InputError

DRIVER_LOG = "driver.log"


@contextlib.contextmanager
def driver_log(folder: StudyFolder) -> Iterator[None]:
    """What our packages log goes there too while in the context; appended to by every session.

    InputError when the folder cannot be written.
    """
    path = folder.logs_path / DRIVER_LOG
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours = [logging.getLogger(name) for name in ("sweeps", "actors", "results", "search_spaces")]
    levels = [logger.level for logger in ours]
    for logger in ours:
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, level in zip(ours, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        handler.close()
