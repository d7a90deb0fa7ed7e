"""Stand-in for torchvision: SGLang imports it in srt/multimodal/internvl_utils.py whatever the model is."""

from import_stand_in import install  # type: ignore[import-not-found]

install(__name__, __version__="0.0.0")
