"""Puts our SGLang plugin where a server finds it: on its path, with an entry point, whatever its interpreter."""

from __future__ import annotations

from pathlib import Path

PACKAGE = "specsweep_sglang_plugin"
PLUGIN_NAME = "specsweep"
"""The entry point's name, by which SGLANG_PLUGINS lists it."""
PLUGIN_SOURCES = Path(__file__).resolve().parents[1] / "sglang_plugin"

_METADATA = "Metadata-Version: 2.1\nName: specsweep-sglang-plugin\nVersion: 1\n"
_ENTRY_POINTS = f"[sglang.srt.plugins]\n{PLUGIN_NAME} = {PACKAGE}.registration:register\n"


def write_plugin_folder(folder: Path) -> Path:
    """Make `folder` importable as a distribution that registers the plugin; idempotent. Returns the folder."""
    info = folder / "specsweep_sglang_plugin-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(_METADATA)
    (info / "entry_points.txt").write_text(_ENTRY_POINTS)
    link = folder / PACKAGE
    if not link.is_symlink():
        link.symlink_to(PLUGIN_SOURCES, target_is_directory=True)
    return folder
