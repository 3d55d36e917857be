"""Table of the pretraining methods, without importing torch; command, help, recipes and doctor use it."""

from training.methods.byol_config import BYOLConfig
from training.methods.config import MethodConfig
from training.methods.dino_config import DINOConfig
from training.methods.distill_config import DistillConfig
from training.methods.moco_config import MoCoConfig
from training.methods.supervised_config import SupervisedConfig
from training.methods.swav_config import SwAVConfig

METHODS: dict[str, type[MethodConfig]] = {
    config.name: config
    for config in (DINOConfig, BYOLConfig, MoCoConfig, SwAVConfig, SupervisedConfig, DistillConfig)
}
"""Settings by the name of their method; the first method is the default."""
