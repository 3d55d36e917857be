"""Names of precisions, without torch: `--help` must not wait for it."""

from typing import Literal

Precision = Literal["auto", "fp32", "bf16", "fp16"]
ComputePrecision = Literal["fp32", "bf16", "fp16"]
