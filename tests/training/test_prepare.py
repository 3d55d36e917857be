"""Blocks that are compiled or computed twice: the same losses and gradients."""

from dataclasses import replace

import pytest
import torch

from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.errors import SettingError
from tests.training.methods.tiny import build, random_batch
from tests.training.runs import ABLATIONS, METHODS
from training.prepare import prepare_networks

CPU = torch.device("cpu")


def first_step(config, **options):
    """Loss and gradients of a method whose networks are prepared with these options."""
    method = build(config)
    prepare_networks(method, CPU, "fp32", **options)
    torch.manual_seed(1)
    loss = method(random_batch(), 0).value
    loss.backward()
    return loss, {name: p.grad for name, p in method.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("config", [METHODS["dino"], replace(ABLATIONS, views=1, kept_tokens=0.5)])
@pytest.mark.parametrize("option", ["compile", "checkpoint_activations"])
def test_option_of_the_blocks_keeps_loss_and_gradients(config, option, monkeypatch):
    compiled, honest = [], torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda f, **k: (compiled.append(f), honest(f, backend="eager", **k))[1]
    )
    expected, found = first_step(config), first_step(config, **{option: True})
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert len(compiled) == (option == "compile")


@pytest.mark.parametrize("option", ["compile", "checkpoint_activations"])
def test_option_of_the_blocks_is_refused_for_a_resnet(option):
    method = build(METHODS["supervised"], BackboneConfig("resnet50"), classes=2)
    with pytest.raises(SettingError, match=f"--{option.replace('_', '-')} is for ViTs"):
        prepare_networks(method, CPU, "fp32", **{option: True})
