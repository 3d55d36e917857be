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
from dino_model.models.position import resample
from tests.dino_model.models.test_official import randomized

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
COMPUTE: dict[str, Any] = {"size": 32, "precision": "fp32", "device": "cpu"}
IMAGE = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


class OfficialAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.num_heads, self.qkv, self.proj = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.scale = (width // heads) ** -0.5

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        query, key, value = self.qkv(tokens).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (query @ key.mT * self.scale).softmax(dim=-1)
        return self.proj((weights @ value).transpose(1, 2).flatten(2)), weights


class OfficialMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.fc2(nn.functional.gelu(self.fc1(tokens)))


class OfficialBlock(nn.Module):
    """A block with the interface of facebookresearch/dino."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attn, self.mlp = OfficialAttention(width, heads), OfficialMlp(width)

    def forward(self, tokens: Tensor, return_attention: bool = False) -> Tensor:
        mixed, weights = self.attn(self.norm1(tokens))
        if return_attention:
            return weights
        tokens = tokens + mixed
        return tokens + self.mlp(self.norm2(tokens))


class OfficialEmbedding(nn.Module):
    def __init__(self, width: int, patch_size: int) -> None:
        super().__init__()
        self.patch_size, self.proj = patch_size, nn.Conv2d(3, width, patch_size, patch_size)


class OfficialViT(nn.Module):
    """A ViT with the names and the interface of facebookresearch/dino."""

    def __init__(self, width: int, depth: int, heads: int, patch_size: int, side: int) -> None:
        super().__init__()
        self.patch_embed, self.side = OfficialEmbedding(width, patch_size), side
        self.cls_token = nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + side**2, width))
        self.blocks = nn.ModuleList(OfficialBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width, eps=1e-6)

    def prepare_tokens(self, images: Tensor) -> Tensor:
        patches = self.patch_embed.proj(images)
        grid = patches.shape[2], patches.shape[3]
        tokens = torch.cat([self.cls_token.expand(len(images), -1, -1), patches.flatten(2).mT], dim=1)
        return tokens + resample(self.pos_embed, (self.side, self.side), grid, mode="official")


class ChunkedViT(OfficialViT):
    """The interface of facebookresearch/dinov2 with its blocks in chunks."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        first, *others = self.blocks
        self.blocks = nn.ModuleList([nn.ModuleList([first]), nn.ModuleList([nn.Identity(), *others])])
        self.num_register_tokens = 0

    def prepare_tokens_with_masks(self, images: Tensor, masks: Tensor | None = None) -> Tensor:
        assert masks is None
        return super().prepare_tokens(images)


@pytest.mark.parametrize("kind", [OfficialViT, ChunkedViT])
def test_official_vit_gives_the_maps_of_the_same_weights(kind: type[OfficialViT]):
    config = BackboneConfig(patch_size=8, image_size=32, width=48, depth=3, heads=3, position_mode="official")
    own = randomized(create_backbone(config))
    vit, state = kind(48, 3, 3, 8, 4), own.state_dict()
    if kind is ChunkedViT:
        places = {0: "0.0", 1: "1.1", 2: "1.2"}
        for block, place in places.items():
            state = {k.replace(f"blocks.{block}.", f"chunk.{place}."): v for k, v in state.items()}
        state = {k.replace("chunk.", "blocks."): v for k, v in state.items()}
    vit.load_state_dict(state)
    found = AttentionPredictor(vit, mean=MEAN, std=STD, **COMPUTE)
    expected = AttentionPredictor(LoadedModel("own", own, MEAN, STD, "", None), **COMPUTE)
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
    vit = randomized(OfficialViT(48, 2, 3, 8, 4)).eval()
    vit.blocks[-1].attn.scale = 1.5
    predictor = AttentionPredictor(vit, mean=MEAN, std=STD, **COMPUTE)
    predictor.set_image(IMAGE)
    tokens = vit.blocks[0](vit.prepare_tokens(predictor.input_tensor(IMAGE)))
    weights = vit.blocks[-1](tokens, return_attention=True)
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
    with pytest.raises(ValueError, match=r"a OfficialViT has no mean and std of its own: pass both"):
        AttentionPredictor(OfficialViT(48, 2, 3, 8, 4), std=STD)
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
        super().__init__(48, 2, 3, 8, 4)

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
        (lambda: type("Other", (nn.Module,), {"prepare_tokens": None})(), "this one lacks blocks, heads"),
        (
            lambda: _change(patch_size=(8, 16)),
            r"patch_size of this Changed is \(8, 16\), expected an integer",
        ),
        (lambda: _change(patch_size=16), r"embed returned \[1, 25, 48\], expected .* 2 × 3 patches"),
        (
            lambda: _change(prefix_tokens=0),
            r"embed returned \[1, 25, 48\], expected .* 0 prefix tokens and 4 × 6",
        ),
        (lambda: _change(prefix_tokens=None), "prefix_tokens of this Changed is None, expected"),
        (lambda: _change(embed=lambda self, images: (images,)), "embed returned tuple, expected"),
        (
            lambda: _change(queries_keys=lambda self, block, tokens: None),
            "queries_keys returned NoneType, expected",
        ),
        (
            lambda: _change(queries_keys=lambda self, block, tokens: (tokens,) * 2),
            r"queries_keys returned \[1, 25, 48\], expected",
        ),
        (lambda: _change(heads=4), "heads of this Changed is 4, but its blocks have 3"),
        (
            lambda: _change_blocks(nn.ModuleDict({"0": nn.Identity()})),
            "blocks of this OwnViT is a ModuleDict",
        ),
        (lambda: _change_blocks(nn.ModuleList()), "an nn.ModuleList of one block or more"),
        (
            lambda: _change_blocks([nn.Linear(48, 40), nn.Identity()]),
            r"block 0 returned \[1, 25, 40\], expected \[1, 25, 48",
        ),
        (
            lambda: OwnViT().half(),
            r"the weights of OwnViT are float16, expected float32: pass module.float\(\)",
        ),
        (lambda: OwnViT().to("meta"), "the weights of OwnViT are on the meta device: load them first"),
        (
            lambda: timm.create_model("swin_tiny_patch4_window7_224"),
            "SwinTransformer cannot be read: expected one of",
        ),
        (
            lambda: VisionTransformer(56, 8, embed_dim=48, depth=1, num_heads=3, pos_embed="none"),
            r"takes images of 56 × 56, found 32 × 48: create it with dynamic_img_size=True, or choose size=5",
        ),
    ],
)
def test_module_that_breaks_the_protocol_is_refused_in_a_sentence_that_names_the_fault(create, error):
    with pytest.raises(ValueError, match=error):
        _read(create())


def _read(model: nn.Module) -> None:
    predictor = AttentionPredictor(model, mean=MEAN, std=STD, **COMPUTE)
    predictor.set_image(IMAGE)
    predictor.cls_attention()


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
