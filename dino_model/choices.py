"""The values that options of commands take. Imports nothing heavy: `--help` runs without torch."""

from typing import Literal

Precision = Literal["auto", "fp32", "bf16", "fp16"]
ComputePrecision = Literal["fp32", "bf16", "fp16"]
Resize = Literal["short-side", "squash", "native", "davis"]
CheckpointKey = str | None
"""Name of one of several networks, as the method that trained them calls it; None: its default one."""
