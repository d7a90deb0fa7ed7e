"""Stand-in for triton: SGLang imports it in srt/utils/common.py and wherever GPU kernels are defined."""

from import_stand_in import install  # type: ignore[import-not-found]


def cdiv(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(a // -b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below n; 0 for n < 1."""
    return 1 << (n - 1).bit_length() if n > 0 else 0


install(__name__, __version__="3.0.0", cdiv=cdiv, next_power_of_2=next_power_of_2)
