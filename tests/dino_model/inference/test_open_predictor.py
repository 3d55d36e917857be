"""The predictor takes modules of timm, of the official code, of torchvision, and of any other code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn
from torchvision.models import VisionTransformer as TorchvisionTransformer

from dino_model.inference.predictor import AttentionPredictor
from dino_model.models.attention import readable
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.load import LoadedModel
from tests.dino_model.models.test_official import randomized
from tests.dino_model.small_models import made

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
COMPUTE: dict[str, Any] = {"size": 32, "precision": "fp32", "device": "cpu"}
IMAGE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


class OfficialViT(nn.Module):
    """A ViT with the names and the interface of facebookresearch/dino."""

    def __init__(self, depth: int = 3) -> None:
        super().__init__()
        shape: Any = {"patch_size": 8, "image_size": 32, "width": 48, "depth": depth, "heads": 3}
        self.vit: Any = randomized(create_backbone(BackboneConfig(**shape, position_mode="official")))
        self.patch_embed, self.norm = self.vit.patch_embed, self.vit.norm
        self.blocks = nn.ModuleList(self.vit.blocks)

    def prepare_tokens(self, images: Tensor) -> Tensor:
        return self.vit._pos_embed(self.vit.patch_embed(images))


class ChunkedViT(OfficialViT):
    """The interface of facebookresearch/dinov2 with its blocks in chunks."""

    def __init__(self) -> None:
        super().__init__()
        first, *others = self.blocks
        self.blocks = nn.ModuleList([nn.ModuleList([first]), nn.ModuleList([nn.Identity(), *others])])
        self.num_register_tokens = 0

    def prepare_tokens_with_masks(self, images: Tensor, masks: Tensor | None = None) -> Tensor:
        assert masks is None
        return super().prepare_tokens(images)


@pytest.mark.parametrize("kind", [OfficialViT, ChunkedViT])
def test_official_vit_gives_the_maps_of_the_same_weights(kind: type[OfficialViT]):
    vit = kind()
    found = AttentionPredictor(vit, mean=MEAN, std=STD, **COMPUTE)
    expected = AttentionPredictor(LoadedModel("own", vit.vit, MEAN, STD, "", None), **COMPUTE)
    for predictor in (found, expected):
        predictor.set_image(IMAGE)
    assert (found.heads, found.blocks, found.patch_size, found.prefix_tokens) == (3, 3, 8, 1)
    assert found.grid == expected.grid == (4, 6)
    for block in (0, -1):
        np.testing.assert_allclose(found.cls_attention(block), expected.cls_attention(block), atol=1e-5)
        np.testing.assert_allclose(found.tokens(block), expected.tokens(block), atol=1e-4)
        for ours, theirs in zip(found.queries_keys(block), expected.queries_keys(block), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-2)
    torch.testing.assert_close(found.features([IMAGE]), expected.features([IMAGE]), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def test_official_vit_with_a_scale_of_its_own_gives_the_weights_of_its_last_block():
    vit = OfficialViT(2)
    vit.blocks[-1].attn.scale = 1.5
    predictor = AttentionPredictor(vit, mean=MEAN, std=STD, **COMPUTE)
    predictor.set_image(IMAGE)
    tokens = vit.blocks[0](vit.prepare_tokens(predictor.input_tensor(IMAGE)))
    block = vit.blocks[1]
    query, key, _ = block.attn.qkv(block.norm1(tokens)).unflatten(-1, (3, 3, 16)).permute(2, 0, 3, 1, 4)
    weights = (1.5 * query @ key.mT).softmax(dim=-1)
    np.testing.assert_allclose(predictor.cls_attention().reshape(3, -1), weights[0, :, 0, 1:], atol=1e-5)


@torch.no_grad()
def test_torchvision_vit_gives_its_own_attention_and_tokens():
    vit = TorchvisionTransformer(32, 8, num_layers=2, num_heads=3, hidden_dim=48, mlp_dim=96).eval()
    randomized(vit)
    predictor = AttentionPredictor(vit, mean=MEAN, std=STD, resize="squash", **COMPUTE)
    predictor.set_image(IMAGE)
    pixels = predictor.input_tensor(IMAGE)
    tokens = torch.cat([vit.class_token, vit._process_input(pixels)], dim=1)
    np.testing.assert_allclose(predictor.tokens(), vit.encoder(tokens)[0], atol=1e-4)
    tokens = vit.encoder.layers[0](tokens + vit.encoder.pos_embedding)
    normed, layer = vit.encoder.layers[1].ln_1(tokens), vit.encoder.layers[1].self_attention
    _, weights = layer(normed, normed, normed, average_attn_weights=False)
    np.testing.assert_allclose(predictor.cls_attention().reshape(3, -1), weights[0, :, 0, 1:], atol=1e-5)
    predictor.at(64).set_image(IMAGE)  # another size than it was trained on


def test_timm_module_is_read_at_any_size_and_left_unchanged():
    vit = randomized(VisionTransformer(32, 8, embed_dim=48, depth=2, num_heads=3, num_classes=5)).train()
    image = torch.randn(1, 3, 32, 32)
    predictor = AttentionPredictor(vit, mean=MEAN, std=STD, **COMPUTE)
    predictor.set_image(IMAGE)
    assert predictor.cls_attention().shape == (3, 4, 6)
    assert predictor.model.backbone.blocks[0].attn.qkv.weight is vit.blocks[0].attn.qkv.weight
    assert vit.training
    assert not vit.dynamic_img_size
    assert vit(image).shape == (1, 5)


def test_modules_that_do_not_fit_are_refused_with_what_is_expected():
    with pytest.raises(ValueError, match=r"a OfficialViT has no mean and std: set both as its attributes"):
        AttentionPredictor(OfficialViT(), std=STD)
    with pytest.raises(
        ValueError, match=r"expected one of timm's .*protocol.ViT, but this one lacks blocks, heads"
    ):
        AttentionPredictor(nn.Linear(2, 2), mean=MEAN, std=STD)
    with pytest.raises(TypeError, match=r"expected the name of a model, a LoadedModel or a torch\.nn"):
        AttentionPredictor(Path("model.pth"))  # type: ignore[arg-type]


class OwnViT(OfficialViT):
    """A ViT of another code base, which fulfils the protocol."""

    heads, patch_size, prefix_tokens = 3, 8, 1

    def __init__(self) -> None:
        super().__init__(2)

    def embed(self, images: Tensor) -> Tensor:
        return self.prepare_tokens(images)

    def queries_keys(self, block: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.blocks[block]
        query, key, _ = layer.attn.qkv(layer.norm1(tokens)).unflatten(-1, (3, 3, 16)).permute(2, 0, 3, 1, 4)
        return query, key


def _change(**attributes: Any) -> nn.Module:
    return type("Changed", (OwnViT,), attributes)()


def _change_blocks(blocks: Any) -> nn.Module:
    model = OwnViT()
    del model.blocks
    model.blocks = blocks
    return model


@pytest.mark.parametrize(
    ("create", "error"),
    [
        (lambda: _change(embed=property()), "this one lacks embed"),
        (lambda: _change(patch_size=(8, 16)), r"patch_size of this Changed is \(8, 16\)"),
        (lambda: _change(patch_size=16), r"embed returned \[1, 25, 48\], expected .* 2 × 3 patches"),
        (lambda: _change(prefix_tokens=0), r"returned \[1, 25, 48\], expected .* 0 prefix tokens and 4 × 6"),
        (lambda: _change(embed=lambda self, images: (images,)), "embed returned tuple, expected"),
        (lambda: _change(queries_keys=lambda *_: None), "queries_keys returned NoneType, expected"),
        (lambda: _change(heads=4), "heads of this Changed is 4, but its blocks have 3"),
        (lambda: _change_blocks(nn.ModuleDict({"0": nn.Identity()})), "blocks of .* is a ModuleDict"),
        (lambda: _change_blocks(nn.ModuleList()), "an nn.ModuleList of one block or more"),
        (lambda: _change_blocks([nn.Linear(48, 40), nn.Identity()]), r"block 0 returned \[1, 25, 40\]"),
        (lambda: OwnViT().half(), r"weights of OwnViT are float16, .*: pass module.float\(\)"),
        (lambda: _add_meta_weight(OwnViT()), "the weights of OwnViT are on the meta device: load them first"),
        (lambda: timm.create_model("swin_tiny_patch4_window7_224"), "cannot be read: expected one of"),
        (
            lambda: VisionTransformer(56, 8, embed_dim=48, depth=1, num_heads=3, pos_embed="none"),
            r"takes images of 56 × 56, found 32 × 48: create it with dynamic_img_size=True, or choose size=5",
        ),
    ],
)
def test_module_that_breaks_the_protocol_is_refused_in_a_sentence_that_names_the_fault(create, error):
    with pytest.raises(ValueError, match=error):
        _read(create())


def _add_meta_weight(model: nn.Module) -> nn.Module:
    model.unused = nn.Parameter(torch.empty(1, device="meta"))
    return model


def _read(model: nn.Module) -> None:
    predictor = AttentionPredictor(model, mean=MEAN, std=STD, **COMPUTE)
    predictor.set_image(IMAGE)
    predictor.cls_attention()


@pytest.mark.parametrize("name", ["ViT, SigLIP", "CaiT"])
def test_query_after_the_last_block_has_maps_of_that_block_only(name):
    model = made(name)
    predictor = AttentionPredictor(model, mean=(0.5,) * 3, std=(0.5,) * 3, **COMPUTE)
    predictor.set_image(IMAGE[:32, :32])
    with torch.no_grad():
        vit, images = (
            readable(model),
            (torch.from_numpy(IMAGE[:32, :32]).permute(2, 0, 1)[None] / 255 - 0.5) / 0.5,
        )
        expected = vit.summary_rows(vit.calls(images)[-1]()).reshape(3, 4, 4)
    for block in (-1, predictor.blocks - 1):
        np.testing.assert_allclose(predictor.cls_attention(block), expected, atol=1e-5)
    with pytest.raises(ValueError, match=rf"no \[CLS\] token in block {predictor.blocks - 2}, only a query"):
        predictor.cls_attention(predictor.blocks - 2)


@torch.no_grad()
def test_images_of_an_own_module_are_padded_at_the_right_and_bottom_to_whole_patches():
    vit, images = readable(randomized(OwnViT())), torch.randn(1, 3, 20, 13)
    padded = nn.functional.pad(images, (0, 3, 0, 4))
    torch.testing.assert_close(vit.output(images), vit.output(padded))


@torch.no_grad()
def test_output_of_an_own_module_without_cls_is_the_mean_of_its_patches():
    class Patches(OwnViT):
        prefix_tokens = 0

        def embed(self, images: Tensor) -> Tensor:
            return super().embed(images)[:, 1:]

    vit, images = randomized(Patches()), torch.randn(2, 3, 16, 24)
    tokens = vit.norm(vit.blocks[1](vit.blocks[0](vit.embed(images))))
    torch.testing.assert_close(readable(vit).output(images), tokens.mean(dim=1))


def test_own_module_is_read_by_the_number_of_the_block_with_as_many_channels_as_means():
    """A module may use one block several times; its first layer need not be that of the patches."""
    asked = []

    class Recurrent(OwnViT):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([self.blocks[0]] * 3)

        def embed(self, images: Tensor) -> Tensor:
            return super().embed(images[:, :3])

        def queries_keys(self, block: int, tokens: Tensor) -> tuple[Tensor, Tensor]:
            asked.append(block)
            return super().queries_keys(block, tokens)

    predictor = AttentionPredictor(Recurrent(), mean=(0.5,) * 4, std=(0.2,) * 4, **COMPUTE)
    predictor.set_image(np.concatenate([IMAGE, IMAGE[..., :1]], axis=2))
    predictor.cls_attention(1)
    assert asked == [1]
    with pytest.raises(ValueError, match=r"mean is \(124, 116, 104\), expected 3 values from 0 to 1"):
        AttentionPredictor(OwnViT(), mean=(124, 116, 104), std=STD, **COMPUTE)
