"""DINO: the algorithm, its settings, and the variants that the paper and later ones compare it with."""

from training.methods.dino.algorithm import DINO, DINOSchedules
from training.methods.dino.config import DINOConfig

__all__ = ["DINO", "DINOConfig", "DINOSchedules"]
