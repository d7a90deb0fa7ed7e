"""Hooks that run inside SGLang's own processes, found through its plugin entry points (group `sglang.srt.plugins`).

Nothing here imports the rest of specsweep: SGLang may live in another interpreter, where this folder is all there is
(`actors.engines.plugin_folder` puts it on the server's path). Every hook is inert unless `SPECSWEEP_CONTROL` names a
control folder. No file of SGLang is edited.
"""
