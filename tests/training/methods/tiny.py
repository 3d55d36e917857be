"""Small networks and batches for the tests of every method."""

import torch

from dino_model.models.backbones import BackboneConfig
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.config import MethodConfig, MethodContext
from training.methods.method import Batch, Method
from training.optim import decay_groups

BACKBONE = BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=3, drop_path=0.3)


def build(
    config: MethodConfig, backbone: BackboneConfig = BACKBONE, steps_per_epoch: int = 3, classes: int = 0
) -> Method:
    """The method for two epochs, with the same weights each time."""
    torch.manual_seed(0)
    return config.build(MethodContext(backbone, config.schedules(2, steps_per_epoch), classes))


def random_batch(num_images=4, local=3, views=2, labels=None, step=0) -> Batch:
    crops = Crops(torch.randn(views, num_images, 3, 32, 32), torch.randn(local, num_images, 3, 16, 16))
    return Batch(crops, labels, Randomness(0, step, 0, num_images))


def state(method: Method) -> dict[str, torch.Tensor]:
    """A copy of the method's state without statistics of batch normalization."""
    return {
        name: tensor.clone()
        for name, tensor in method.state_dict().items()
        if not name.endswith(("running_mean", "running_var", "num_batches_tracked"))
    }


def step(method: Method, batch: Batch, number: int = 0, lr: float = 0.1) -> None:
    """Take one step of plain gradient descent in the order of the loop."""
    optimizer = torch.optim.SGD(decay_groups(method), lr=lr)
    loss = method(batch, number)
    loss.value.backward()
    method.after_backward(number)
    optimizer.step()
    optimizer.zero_grad()
    method.after_step(number, [loss.carry])
