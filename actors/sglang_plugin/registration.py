"""The plugin's entry point: `register` is what SGLang calls in each of its processes."""

from __future__ import annotations

from .orders import ControlFolder


def register() -> None:
    """Register the hooks, or do nothing when no control folder is set."""
    control = ControlFolder.from_environment()
    if control is None:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from .feed_probe import FeedProbe
    from .pool_trace import PoolTrace
    from .switch import Switch

    trace = PoolTrace()
    switch = Switch(control, trace, FeedProbe())
    worker = "sglang.srt.speculative.eagle_worker_v2"
    HookRegistry.register("sglang.srt.managers.scheduler.Scheduler.flush_cache", switch.on_flush, HookType.AROUND)
    HookRegistry.register(f"{worker}.EagleDraftWorker.draft_forward", trace.on_draft_forward, HookType.AROUND)
    HookRegistry.register(f"{worker}.organize_draft_results", trace.on_organize, HookType.AROUND)
