"""Prepare a training: checks on all ranks, and the method on its device, in its precision, over all ranks."""

import torch
from torch import nn

from dino_model.data.collection import Images
from dino_model.runtime.device import ComputePrecision, set_tensor_float32
from dino_model.runtime.errors import SettingError
from dino_model.runtime.ranks import gather_objects
from training.blocks import prepare_networks
from training.distributed import synchronise_batch_norm, world
from training.methods.context import MethodContext
from training.methods.method import Method
from training.recipes.recipe import Plan, Recipe


def prepare_model(
    recipe: Recipe,
    plan: Plan,
    images: Images,
    *,
    seed: int,
    device: torch.device,
    precision: ComputePrecision,
    compile: bool = False,
    checkpoint_activations: bool = False,
) -> Method:
    """Build a recipe's method and prepare it for training.

    Args:
        recipe, plan, images: As in `training.session.Session`.
        seed: Of the weights; torch's global generator keeps its state.
        device: Of the networks.
        precision: Of the products outside of the loss.
        compile, checkpoint_activations: As in `training.blocks`.

    Returns:
        The method on the device, with batch normalization over all ranks.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        context = MethodContext(
            recipe.backbone,
            plan.method,
            num_classes(images),
            images,
            recipe.mean,
            recipe.std,
            size=recipe.crops.global_size,
            device=str(device),
            precision=precision,
        )
        method = recipe.method.build(context)
    method.head_only_steps = round(recipe.head_only_epochs * plan.steps_per_epoch)
    method.to(device)
    if recipe.resnet:
        method.to(memory_format=torch.channels_last)
    set_tensor_float32(precision)
    if world() > 1 and device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(method)
    elif world() > 1:
        synchronise_batch_norm(method)
    prepare_networks(
        method, device, precision, compile=compile, checkpoint_activations=checkpoint_activations
    )
    return method


def num_classes(images: Images) -> int:
    """Count the classes of training images; 0: they have no labels."""
    return 0 if images.labels is None else len(images.classes)


def check_ranks(what: str, own: str) -> None:
    """Raise SettingError where ranks have other images or settings than the first one."""
    first, *others = gather_objects(own)
    for number, other in enumerate(others, 1):
        if other != first:
            raise SettingError(
                f"the processes have different {what}: process 0 {first}, process {number} {other}"
            )


def check_batch(recipe: Recipe, accumulate: int, classes: int) -> None:
    """Raise SettingError for a batch that cannot be split so, or that the method cannot use."""
    own = recipe.batch_size // world()
    if recipe.batch_size % world():
        raise SettingError(f"--batch-size is {recipe.batch_size}, no multiple of the {world()} processes")
    if not 1 <= accumulate <= own or own % accumulate:
        raise SettingError(f"--accumulate is {accumulate}, expected a divisor of {own} images per process")
    recipe.method.check(recipe.crops, recipe.batch_size, accumulate, classes)
    if recipe.batch_norm and accumulate > 1:
        raise SettingError(
            "batch normalization needs the whole batch at once, and a ResNet or --batch-norm has it: "
            f"leave out --accumulate {accumulate}"
        )
    if recipe.batch_norm and recipe.batch_size < 2:
        raise SettingError("batch normalization needs 2 images or more at once: raise --batch-size")
