"""Prepare a training: checks on all ranks, and the method on its device, in its precision, over all ranks."""

from typing import Any

import torch
from timm.models.resnet import ResNet
from torch import nn

from dino_model.data.collection import Images
from dino_model.models.backbones import choose_training_attention
from dino_model.runtime.device import ComputePrecision, set_tensor_float32
from dino_model.runtime.errors import SettingError
from dino_model.runtime.ranks import gather_objects
from training.distributed import synchronise_batch_norm, world
from training.methods.config import MethodContext
from training.methods.method import Method
from training.methods.network import Network
from training.one_pass import OnePass
from training.recipes.recipe import Plan, Recipe
from training.step_graph import StepGraph


def prepare_model(
    recipe: Recipe,
    plan: Plan,
    images: Images,
    *,
    seed: int,
    device: torch.device,
    precision: ComputePrecision,
    compile: bool,
    checkpoint_activations: bool,
) -> Method:
    """Build a recipe's method and prepare it for training.

    The arguments are those of `training.session.Session`. torch's global generator keeps its state. Batch
    normalization is over all ranks.
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
        method: Method = recipe.method.build(context)
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


def create_graph(
    method: Method, device: torch.device, accumulate: int, precision: ComputePrecision
) -> StepGraph:
    """Prepare the recording of a step; raise SettingError where a CUDA graph cannot repeat it."""
    if device.type != "cuda":
        raise SettingError(f"--cuda-graph needs a CUDA device, not {device.type}: leave it out")
    if method.graph_numbers(0) is None:
        raise SettingError("--cuda-graph is for --method dino without options of ablations: leave it out")
    if world() > 1 or accumulate > 1:
        raise SettingError("--cuda-graph is for one process and --accumulate 1: leave it out")
    if precision == "fp16":  # the host, which a graph leaves out, remembers that gradients are unscaled
        raise SettingError("--cuda-graph is for bf16 and fp32: leave it out, or --precision fp16")
    return StepGraph(method)


def prepare_networks(
    method: Method,
    device: torch.device,
    precision: ComputePrecision,
    *,
    compile: bool = False,
    checkpoint_activations: bool = False,
) -> None:
    """Choose how networks compute in a training step.

    Crops of all sizes share one pass of a ViT on CUDA in half precision, and with either option. Products in
    fp32 gain nothing.

    Args:
        method: The method, on its device.
        device, precision: Of the step.
        compile: Compile the blocks.
        checkpoint_activations: Compute every block again in the backward pass.

    Raises:
        SettingError: An option for networks that have no such pass: a ResNet, a student of distillation.
    """
    choose_training_attention(method, device, precision)
    networks = [module for module in method.modules() if isinstance(module, Network)]
    vits = [network for network in networks if not isinstance(network.backbone, ResNet)]
    for network in vits:
        # Crops are multiples of a patch. timm would copy them, even to pad them by nothing.
        embedding: Any = network.backbone.patch_embed
        embedding.dynamic_img_pad = False
    chosen = {"--compile": compile, "--checkpoint-activations": checkpoint_activations}
    if not vits and any(chosen.values()):
        option = next(name for name, is_chosen in chosen.items() if is_chosen)
        raise SettingError(f"{option} is for ViTs that are trained on crops: leave it out")
    if any(chosen.values()) or (device.type == "cuda" and precision != "fp32"):
        one_pass = OnePass(compile=compile, recompute=checkpoint_activations)
        for network in vits:
            network.one_pass = one_pass
