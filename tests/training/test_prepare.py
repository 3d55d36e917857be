"""Blocks that are compiled or computed twice: the same losses and gradients."""

import pytest
import torch

from dino_model.runtime.device import autocast
from tests.training.methods.tiny import build, random_batch
from training.methods.dino_ablations_config import AblationsConfig
from training.methods.dino_config import DINOConfig
from training.methods.head import HeadConfig
from training.methods.network import StochasticDepth
from training.prepare import compile_blocks, recompute_blocks

pytestmark = pytest.mark.slow

CONFIG = DINOConfig(HeadConfig(16, hidden=8, bottleneck=4), freeze_last_layer_epochs=0)


def first_step(config, *changes):
    """Loss, gradients and method after functions have changed the backbones."""
    method = build(config)
    for backbone in method.backbones().values():
        for change in changes:
            change(backbone)
    torch.manual_seed(1)
    loss = method(random_batch(), 0).value
    loss.backward()
    gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    return loss.item(), gradients, method


@pytest.mark.parametrize("config", [CONFIG, AblationsConfig(**vars(CONFIG), views=1, kept_tokens=0.5)])
@pytest.mark.parametrize("compiled", [False, True])
def test_recompute_blocks_with_stochastic_depth_keeps_loss_and_gradients(config, compiled, monkeypatch):
    plain, expected, method = first_step(config)
    names = method.state_dict().keys()
    passes, honest = [], StochasticDepth.forward
    monkeypatch.setattr(StochasticDepth, "forward", lambda self, x: (passes.append(1), honest(self, x))[1])
    changes = [lambda backbone: compile_blocks(backbone, "eager")] if compiled else []
    loss, found, method = first_step(config, *changes, recompute_blocks)
    assert loss == plain
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    if not compiled:
        assert len(passes) == 2 * 2 * 2  # two layers, two groups of crops, two times; the teacher has none
    assert method.state_dict().keys() == names


def test_compile_blocks_over_20_steps_and_a_probe_compiles_only_in_the_first_step():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    method = build(CONFIG, steps_per_epoch=20)
    for backbone in method.backbones().values():
        compile_blocks(backbone, backend)
    counts = []
    for step in range(20):
        with autocast("bf16", torch.device("cpu")):
            loss = method(random_batch(step=step), step)
        loss.value.backward()
        method.after_step(step, [loss.carry])
        counts.append(len(graphs))
        if step == 10:  # a k-NN probe: evaluation mode, no gradient, fp32, several batch sizes
            method.student.backbone.eval()
            with torch.no_grad():
                for num_images in (7, 5, 9):
                    method.student.backbone(torch.randn(num_images, 3, 32, 32))
            method.student.backbone.train()
    assert counts[0] > 0
    assert counts == counts[:1] * 20
