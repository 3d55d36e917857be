"""A step whose operations are recorded once and repeated equals the step that is computed anew."""

from dataclasses import replace
from typing import Any, ClassVar
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from dino_model.runtime.device import autocast
from dino_model.runtime.errors import SettingError
from tests.training.methods.tiny import BACKBONE, random_batch
from tests.training.runs import METHODS, RECIPE
from training.augmentation.crops import Crops
from training.methods.config import MethodContext, MethodSchedules
from training.methods.dino import DINO
from training.optim import create_optimizer, decay_groups
from training.prepare import create_graph, prepare_networks
from training.recipes.recipe import OptimizerConfig, Plan
from training.step_graph import WARM_UP, StepGraph
from training.train import train_step


class Recording(TorchDispatchMode):
    """Like `torch.cuda.CUDAGraph`: repeats operations with the memory and numbers of the recording."""

    made: ClassVar[list[Any]] = []

    def __init__(self):
        super().__init__()
        self.operations, self.replays = [], 0
        self.made.append(self)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        detached = tree_map_only(torch.Tensor, torch.Tensor.detach, results)
        self.operations.append((func, args, kwargs or {}, detached))
        return results

    @torch.no_grad()
    def replay(self):
        self.replays += 1
        for func, args, kwargs, results in self.operations:
            found = func(*args, **kwargs)
            for place, value in zip(tree_flatten(results)[0], tree_flatten(found)[0], strict=True):
                if isinstance(place, torch.Tensor) and place.data_ptr() != value.data_ptr():
                    place.copy_(value)


def train(device, batches, *, graph, precision="bf16", **settings):
    """Take steps with DINO; return its weights, center and the optimizer's moments."""
    recipe = replace(RECIPE, method=replace(METHODS["dino"], **settings), epochs=len(batches), batch_size=4)
    recipe = replace(recipe, optimizer=OptimizerConfig(warmup_epochs=0))
    plan = Plan.of(recipe, 4)
    torch.manual_seed(0)
    method = recipe.method.build(MethodContext(BACKBONE, plan.method)).to(device)
    prepare_networks(method, device, precision)
    optimizer = create_optimizer("adamw", decay_groups(method), device)
    step_graph = StepGraph(method) if graph else None
    for step, batch in enumerate(batches):
        context = autocast(precision, device)
        train_step(method, optimizer, batch, step, plan, context, graph=step_graph)
    moments = [state["exp_avg"] for state in optimizer.state.values()]
    return [*method.state_dict().values(), *moments]


@pytest.mark.parametrize(
    ("settings", "sizes", "recordings"),
    [
        ({}, [4] * 7, 1),
        ({"freeze_last_layer_epochs": 5}, [4] * 8, 2),
        # the temperature changes in steps 4 and 5
        ({"teacher_temperature": 0.07, "teacher_temperature_warmup_epochs": 6}, [4] * 8, 3),
        ({}, [4] * 5 + [3] * 5, 2),
    ],
    ids=["plain", "frozen last layer", "temperature", "other crops"],
)
def test_repeated_step_equals_computed_step(settings, sizes, recordings):
    torch.manual_seed(1)
    batches = [random_batch(local=local, step=step) for step, local in enumerate(sizes)]
    device = torch.device("cpu")
    expected = train(device, batches, graph=False, **settings)
    Recording.made.clear()
    with mock.patch.multiple("torch.cuda", CUDAGraph=Recording, graph=lambda graph, **options: graph):
        found = train(device, batches, graph=True, **settings)
    assert len(Recording.made) == recordings
    warm_ups = WARM_UP * len(set(sizes))
    assert sum(recording.replays for recording in Recording.made) == len(batches) - warm_ups
    for value, other in zip(found, expected, strict=True):
        assert torch.equal(value, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_graph_equals_launched_operations():
    torch.manual_seed(1)
    device, batches = torch.device("cuda"), [random_batch(step=step) for step in range(8)]
    batches = [replace(batch, crops=Crops(*(group.to(device) for group in batch.crops))) for batch in batches]
    found, expected = (train(device, batches, graph=graph) for graph in (True, False))
    for value, other in zip(found, expected, strict=True):
        assert torch.equal(value, other)


@pytest.mark.parametrize(
    ("name", "device", "accumulate", "precision", "words"),
    [
        ("dino", "cpu", 1, "bf16", "needs a CUDA device"),
        ("dino", "cuda", 2, "bf16", "--accumulate 1"),
        ("dino", "cuda", 1, "fp16", "leave it out, or --precision fp16"),
        ("koleo and ibot", "cuda", 1, "bf16", "without options of ablations"),
        ("moco-v2", "cuda", 1, "bf16", "--method dino"),
    ],
)
def test_graph_is_refused(name, device, accumulate, precision, words):
    method = METHODS[name].build(MethodContext(BACKBONE, MethodSchedules(teacher_temperature=np.ones(1))))
    with pytest.raises(SettingError, match=words):
        create_graph(method, torch.device(device), accumulate, precision)


def test_subclass_of_dino_is_refused_unless_it_names_its_numbers():
    class Mine(DINO):
        """A loss that may draw numbers of its own."""

    method = METHODS["dino"].build(MethodContext(BACKBONE, MethodSchedules(teacher_temperature=np.ones(1))))
    method.__class__ = Mine
    with pytest.raises(SettingError, match="without options of ablations"):
        create_graph(method, torch.device("cuda"), 1, "bf16")
