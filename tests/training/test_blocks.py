"""Blocks that are compiled or computed twice: the same losses and gradients."""

from dataclasses import replace

import pytest
import torch

from dino_model.device import autocast, set_tensor_float32
from dino_model.head import HeadConfig
from tests.training.methods.tiny import build, random_batch
from training.blocks import compile_blocks, recompute_blocks
from training.methods.dino_config import DINOConfig
from training.methods.network import StochasticDepth

pytestmark = pytest.mark.slow

CONFIG = DINOConfig(HeadConfig(16, hidden=8, bottleneck=4), freeze_last_layer_epochs=0)


def learned(change, config):
    """Loss and gradients of the first step, after `change` was made to the backbones."""
    method = build(config)
    for backbone in method.backbones().values():
        change(backbone)
    torch.manual_seed(1)
    loss = method(random_batch(), 0)
    loss.value.backward()
    gradients = {name: p.grad for name, p in method.named_parameters() if p.grad is not None}
    return loss.value.item(), gradients, method


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, views=1, kept_tokens=0.5)])
@pytest.mark.parametrize("twice", [False, True])
def test_recompute_blocks_keeps_loss_and_gradients(config, twice, monkeypatch):
    """With stochastic depth, whose numbers are other ones by the time of the backward pass."""
    plain, expected, _ = learned(lambda backbone: None, config)
    passes, honest = [], StochasticDepth.forward
    monkeypatch.setattr(StochasticDepth, "forward", lambda self, x: (passes.append(1), honest(self, x))[1])

    def change(backbone):
        if twice:
            compile_blocks(backbone, "eager")  # what is computed twice may be compiled
        recompute_blocks(backbone)

    loss, found, method = learned(change, config)
    assert loss == plain
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    if not twice:
        assert len(passes) == 2 * 2 * 2  # two layers, two groups of crops, two times; the teacher has none
    assert method.state_dict().keys() == build(config).state_dict().keys()


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
        if step == 10:
            probe(method.student.backbone)
    assert counts == counts[:1] * 20


def probe(backbone):
    """Compute features as a k-NN probe does: evaluation mode, no gradient, fp32, several batch sizes."""
    backbone.eval()
    with torch.no_grad():
        for num_images in (7, 5, 9):
            backbone(torch.randn(num_images, 3, 32, 32))
    backbone.train()


def test_set_tensor_float32_in_fp32_forbids_and_in_bf16_allows_it():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    try:
        set_tensor_float32("bf16")
        assert torch.backends.cuda.matmul.allow_tf32
        set_tensor_float32("fp32")
        assert not torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before
