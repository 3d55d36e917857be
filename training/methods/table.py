"""Table of the pretraining methods, without importing torch; command, help, recipes and doctor use it.

The table has the config whose options the command takes. For DINO it is that of the ablations, see
`training.methods.dino_ablations_config`.
"""

from training.methods.byol_config import BYOLConfig
from training.methods.config import MethodConfig
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.distill_config import DistillConfig
from training.methods.moco_config import MoCoConfig
from training.methods.supervised_config import SupervisedConfig
from training.methods.swav_config import SwAVConfig

METHODS: dict[str, type[MethodConfig]] = {}
"""Configs by the name of their method; the first method is the default."""


def add_method(config: type[MethodConfig]) -> None:
    """Add a method to the table.

    Raises:
        ValueError: Settings that would be those of another method: a name that exists, or what they inherit.
    """
    own = vars(config)
    if missing := [name for name in ("name", "implementation") if name not in own]:
        raise ValueError(f"{config.__name__} has no {missing[0]} of its own")
    if "__dataclass_fields__" not in own:
        raise ValueError(f"{config.__name__} is no dataclass: its options would be left out")
    if other := METHODS.get(config.name):
        raise ValueError(f"{config.__name__} and {other.__name__} have one name, {config.name!r}")
    METHODS[config.name] = config


for _config in (AblationsConfig, BYOLConfig, MoCoConfig, SwAVConfig, SupervisedConfig, DistillConfig):
    add_method(_config)
