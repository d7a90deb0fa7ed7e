"""Puts our SGLang plugin where a server finds it: on its path, with an entry point, whatever its interpreter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from actors.engines.server_spec import ServerSpec

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


def with_plugin(spec: ServerSpec, environment: Mapping[str, str]) -> ServerSpec:
    """`spec` for servers that load the plugin, which finds its orders by `environment`. Writes the plugin's folder."""
    folder = write_plugin_folder(spec.work_dir / "plugin")
    path = ":".join(filter(None, [spec.environment.get("PYTHONPATH"), str(folder)]))
    variables = {**spec.environment, **environment, "PYTHONPATH": path}
    # the user's own list of plugins would keep ours out (srt/plugins/__init__.py, load_plugins_by_group)
    if listed := spec.environment.get("SGLANG_PLUGINS"):
        variables["SGLANG_PLUGINS"] = f"{listed},{PLUGIN_NAME}"
    return replace(spec, environment=variables)
