"""Blocks that are compiled or computed twice: the same losses and gradients."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from dino_model.data.images import IMAGENET_MEAN, IMAGENET_STD
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.load import LoadedModel
from dino_model.runtime.errors import SettingError
from tests.training.methods.tiny import BACKBONE, build, random_batch
from tests.training.runs import ABLATIONS, METHODS
from training import initialize
from training.prepare import prepare_networks
from training.recipes.recipe import Recipe

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


def test_positions_of_an_initial_backbone_are_resampled_to_the_grid_of_the_method(monkeypatch):
    method, larger = build(METHODS["dino"]), create_backbone(replace(BACKBONE, image_size=48))
    torch.nn.init.normal_(larger.pos_embed)
    model = LoadedModel("larger", larger, IMAGENET_MEAN, IMAGENET_STD, "made here", None)
    monkeypatch.setattr(initialize, "load_model", lambda *_, **__: model)
    initialize.from_backbone(method, Recipe(BACKBONE), "larger")
    learned = larger.pos_embed[:, 1:].unflatten(1, (6, 6)).permute(0, 3, 1, 2)
    resized = F.interpolate(learned, (4, 4), mode="bicubic").flatten(2).transpose(1, 2)
    expected = torch.cat([larger.pos_embed[:, :1], resized], dim=1)
    for backbone in method.backbones().values():
        torch.testing.assert_close(backbone.pos_embed.data, expected.data)
        torch.testing.assert_close(backbone.patch_embed.proj.weight.data, larger.patch_embed.proj.weight.data)
