"""Distillation: its loss, its teachers, its cache."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional

from dino_model.data.collection import open_images
from dino_model.models.attention import attention_rows
from dino_model.models.backbones import BackboneConfig, create_backbone
from dino_model.models.checkpoint import write_safetensors
from dino_model.models.load import LoadedModel, load_model
from dino_model.runtime.errors import SettingError
from tests.dino_model.small_models import made
from training.augmentation.crops import Crops
from training.augmentation.randomness import Randomness
from training.methods.config import MethodContext
from training.methods.distill import Distill
from training.methods.distill_config import DistillConfig
from training.methods.distill_loss import StudentView
from training.methods.distill_teacher import (
    FrozenTeacher,
    Squares,
    TeacherOutput,
    matching_patches,
    resample_maps,
    token_statistics,
)
from training.methods.method import Batch

BACKBONE = BackboneConfig("vit_tiny", 8, 32, width=24, depth=2, heads=3)
PLAIN = DistillConfig("teacher", view_scales=(1.0,), aligned=1.0, jitter=0.0, gray=0.0, average=0.9)
"""Every view is the whole square, with its own colors."""
UNMIRRORED = 0  # a step whose view is not mirrored, with seed 0


@pytest.fixture(scope="module")
def teacher_file(tmp_path_factory):
    """A teacher with the architecture of the student, and visibly different attention of its heads."""
    return write_teacher(tmp_path_factory.mktemp("teacher") / "teacher.safetensors", BACKBONE)


def write_teacher(path, config, seed=1):
    torch.manual_seed(seed)
    backbone = create_backbone(config)
    with torch.no_grad():
        for block in backbone.blocks:
            block.attn.qkv.weight.mul_(20)
    write_safetensors(backbone, path, config=config, mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3))
    return str(path)


@pytest.fixture
def collection(images):
    return open_images(images)


def build(config, images, backbone=BACKBONE, precision="fp32", **more) -> Distill:
    torch.manual_seed(0)
    setup = MethodContext(backbone, images=images, size=32, precision=precision, **more)
    method = config.build(setup)
    method.prepare(lambda _: None)
    return method


def squares_batch(images, numbers=(0, 3, 4, 9), step=UNMIRRORED) -> Batch:
    """Centered squares of images, as a loader could give them to the method."""
    method_input = build_squares(images).read(numbers)[0]
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    views = (method_input / 255 - mean) / std
    randomness = Randomness(0, step, 0, len(numbers))
    return Batch(Crops(views[None], views[:0, None]), None, randomness, torch.tensor(numbers))


def build_squares(images):
    return Squares(images, 32, 4, 8)


def test_loss_of_the_teacher_itself_is_zero(teacher_file, collection):
    """Student = teacher, with heads that standardize: every term vanishes, and only then."""
    config = replace(PLAIN, teacher=teacher_file)
    model = load_model(teacher_file)
    method = build(config, collection, mean=model.mean, std=model.std)
    method.student.backbone.load_state_dict(model.backbone.state_dict())
    for head, kind in (("patch_head", "patch"), ("cls_head", "cls")):
        linear = torch.nn.Linear(24, 24)
        mean, deviation = getattr(method, f"{kind}_mean"), getattr(method, f"{kind}_deviation")
        linear.weight.data, linear.bias.data = torch.diag(1 / deviation), -mean / deviation
        setattr(method.student, head, linear)
    batch = squares_batch(collection)
    mean, std = (torch.tensor(v).view(3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    own_mean, own_std = (torch.tensor(v).view(3, 1, 1) for v in (model.mean, model.std))
    views = (batch.crops.views * std + mean - own_mean) / own_std
    batch = replace(batch, crops=Crops(views, batch.crops.locals))
    loss, logs, _ = method(batch, UNMIRRORED)
    assert {"patch_loss", "cls_loss", "attention_loss", "rows_loss"} <= logs.keys()
    for name in logs.keys() - {"view_patches"}:
        assert logs[name].abs() < 1e-5, name
    assert loss.abs() < 1e-5
    with torch.no_grad():
        method.student.backbone.blocks[-1].attn.qkv.weight.mul_(1.1)
    assert method(batch, UNMIRRORED).logs["rows_loss"] > 1e-4


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_loss_is_the_weighted_sum_of_the_terms_by_their_formulas(spread, teacher_file, collection):
    weights = {"patch_weight": 2.0, "cls_weight": 3.0, "attention_weight": 5.0, "rows_weight": 7.0}
    method = build(replace(PLAIN, teacher=teacher_file, attention_spread=spread, **weights), collection)
    batch = squares_batch(collection)
    loss, logs, _ = method(batch, UNMIRRORED)
    inputs = method.teacher_batch(batch)
    tokens, query, key = method.student(batch.crops.views[0], batch.randomness)
    cosine = torch.nn.CosineSimilarity(-1)
    patches = (inputs.output.patches - method.patch_mean) / method.patch_deviation
    patch_loss = 1 - cosine(method.student.patch_head(tokens[:, 1:]), patches).mean()
    cls = (inputs.output.cls - method.cls_mean) / method.cls_deviation
    cls_loss = 1 - cosine(method.student.cls_head(tokens[:, 0]), cls).mean()
    attention = (query[:, :, :, None] * key[:, :, None, 1:]).sum(-1).div(8**0.5).softmax(-1)
    rows = torch.cat([torch.zeros(4, 1, dtype=torch.long), 1 + inputs.sampled], 1)
    attention = torch.stack([of_image[:, chosen] for of_image, chosen in zip(attention, rows, strict=True)])
    targets = inputs.output.attention.clone()
    if spread:
        shares = (cosine(inputs.output.patches[:, :, None], inputs.output.patches[:, None]) / spread).exp()
        shares /= shares.sum(2, keepdim=True)  # [batch, from, to]
        targets[:, :, 0] = (targets[:, :, 0, :, None] * shares[:, None]).sum(2)
    divergence = (targets * (targets / attention).log()).sum(-1).mean(1)
    expected = {"patch_loss": patch_loss, "cls_loss": cls_loss}
    expected |= {"attention_loss": divergence[:, 0].mean(), "rows_loss": divergence[:, 1:].mean()}
    torch.testing.assert_close(
        {name: logs[name] for name in expected}, {n: v.detach() for n, v in expected.items()}
    )
    torch.testing.assert_close(
        loss, 2 * patch_loss + 3 * cls_loss + 5 * divergence[:, 0].mean() + 7 * divergence[:, 1:].mean()
    )
    for value, name in ((loss, "loss"), *((v, n) for n, v in logs.items())):
        assert value.isfinite(), name


@pytest.mark.parametrize(
    ("view", "left_out"),
    [
        (StudentView(4, 0.0, 0.0, 1.0, mirrored=False, aligned=True), set()),
        (StudentView(3, 0.25, 0.0, 0.75, mirrored=True, aligned=True), set()),
        (StudentView(2, 0.25, 0.5, 0.5, mirrored=False, aligned=True), {"cls_loss"}),
        (StudentView(4, 0.1, 0.2, 0.61, mirrored=False, aligned=False), {"rows_loss"}),
        (StudentView(4, 0.1, 0.2, 0.6, mirrored=False, aligned=False), {"cls_loss", "rows_loss"}),
    ],
)
def test_view_leaves_out_cls_of_small_boxes_and_rows_of_boxes_off_the_grid(
    view, left_out, teacher_file, collection, monkeypatch
):
    weights = {"patch_weight": 2.0, "cls_weight": 3.0, "attention_weight": 5.0, "rows_weight": 7.0}
    method = build(replace(PLAIN, teacher=teacher_file, **weights), collection)
    monkeypatch.setattr("training.methods.distill_loss.draw_view", lambda *_: view)
    loss, logs, _ = method(squares_batch(collection), UNMIRRORED)
    terms = {name.replace("weight", "loss"): weight for name, weight in weights.items()}
    assert {name for name in terms if logs[name].isnan()} == left_out
    kept = [weight * logs[name] for name, weight in terms.items() if name not in left_out]
    torch.testing.assert_close(loss.detach(), sum(kept))


def test_average_follows_faster_in_the_first_steps(teacher_file, collection):
    method = build(replace(PLAIN, teacher=teacher_file, average=0.5), collection)
    momenta = []
    for step in (0, 3, 8, 1000):
        for average, student in zip(
            method.average.parameters(), method.student.backbone.parameters(), strict=True
        ):
            average.data.fill_(1), student.data.fill_(0)
        method.after_step(step, [])
        momenta.append(next(method.average.parameters()).flatten()[0].item())
    assert momenta == pytest.approx([1 / 10, 4 / 13, 0.5, 0.5])


@pytest.mark.parametrize("scale", [1.25, 1.5])  # of 1.6 and 2.3 times the patches
def test_enlarged_view_takes_every_second_image_however_the_batch_is_divided(scale, teacher_file, collection):
    config = replace(PLAIN, teacher=teacher_file, view_scales=(scale,), aligned=0.0, jitter=0.3)
    method = build(config, collection)
    batch = squares_batch(collection)
    whole = method(batch, UNMIRRORED).value
    parts = [method(part, UNMIRRORED).value for part in batch.split(2)]
    torch.testing.assert_close(torch.stack(parts).mean(), whole)
    views = batch.crops.views.clone()
    views[:, 1::2] = 0
    assert method(replace(batch, crops=Crops(views, views[:0])), UNMIRRORED).value == whole
    views[:, 2] = 0
    assert method(replace(batch, crops=Crops(views, views[:0])), UNMIRRORED).value != whole
    assert [part.every(9).num_images for part in batch.split(4)] == [1] * 4
    ten = replace(squares_batch(collection, range(10)), randomness=Randomness(0, 0, 0, 10, 10))
    kept = [part.every(3).indices.tolist() for part in ten.split(2)]
    assert kept == [[0, 3], [6, 9]]


def test_cached_outputs_equal_live_ones_on_the_whole_square(teacher_file, collection, tmp_path):
    """Within 2e-3 of the largest value: the cache holds float16."""
    config = replace(PLAIN, teacher=teacher_file)
    cached = build(replace(config, teacher_cache=str(tmp_path)), collection)
    live, batch = build(config, collection), squares_batch(collection)
    found = cached.teacher_batch(batch)
    drawn = live.teacher_batch(batch)
    assert torch.equal(found.squares, drawn.squares)
    numbers = batch.randomness.uniform("rows", 16)  # [patches, images]
    assert torch.equal(drawn.sampled, numbers.argsort(dim=0).T[:, : PLAIN.sampled_rows])
    expected = live.teacher.outputs(found.squares, 4, found.sampled)
    for name, values in expected._asdict().items():
        bound = 2e-3 * values.abs().max().item()
        torch.testing.assert_close(getattr(found.output, name).float(), values, atol=bound, rtol=0)
    for name in ("patch_mean", "patch_deviation", "cls_mean", "cls_deviation"):
        torch.testing.assert_close(getattr(cached, name), getattr(live, name), atol=2e-3, rtol=2e-3)


def test_statistics_are_mean_and_deviation_of_all_tokens(teacher_file, collection):
    method = build(replace(PLAIN, teacher=teacher_file), collection)
    squares = build_squares(collection)
    output = method.teacher.outputs(squares.read(range(10))[0], 4, squares.sample(range(10)))
    torch.testing.assert_close(method.patch_mean, output.patches.mean((0, 1)))
    torch.testing.assert_close(method.cls_deviation, output.cls.std(0, correction=0), atol=2e-4, rtol=0)
    constant = TeacherOutput(torch.ones(2, 3, 4), torch.ones(2, 4), torch.empty(0))
    found = token_statistics([constant])
    assert found.keys() == {"patch_mean", "patch_deviation", "cls_mean", "cls_deviation"}
    torch.testing.assert_close(found["cls_deviation"], torch.full((4,), 1e-4, dtype=torch.float64))


@pytest.mark.parametrize("cached", [True, False])
def test_statistics_are_of_images_taken_evenly_up_to_the_limit(
    cached, teacher_file, collection, tmp_path, monkeypatch
):
    name = "CACHED_SAMPLE" if cached else "LIVE_SAMPLE"
    monkeypatch.setattr(f"training.methods.distill_teacher.{name}", 4)
    cache = {"teacher_cache": str(tmp_path)} if cached else {}
    method = build(replace(PLAIN, teacher=teacher_file, **cache), collection)
    squares, numbers = build_squares(collection), (0, 3, 6, 9)  # of ten
    output = method.teacher.outputs(squares.read(numbers)[0], 4, squares.sample(numbers))
    torch.testing.assert_close(method.cls_mean, output.cls.mean(0), atol=2e-3, rtol=2e-3)


def test_interrupted_cache_continues_and_depends_on_teacher_and_images(
    teacher_file, images, tmp_path, monkeypatch
):
    collection = open_images(images)
    monkeypatch.setattr("training.methods.distill_teacher.IMAGES_AT_ONCE", 4)
    reports, honest, calls = [], FrozenTeacher.outputs, []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return honest(self, *given)

    config = replace(PLAIN, teacher=teacher_file, teacher_cache=str(tmp_path / "cache"))
    method = config.build(MethodContext(BACKBONE, images=collection, size=32))
    monkeypatch.setattr(FrozenTeacher, "outputs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        method.prepare(reports.append)
    method = config.build(MethodContext(BACKBONE, images=collection, size=32))
    method.prepare(reports.append)
    assert len(calls) == 4
    assert "teacher outputs for 10 images: 0.00 GB" in reports[0]
    assert "10 images, 8 of them done before" in reports[1]
    monkeypatch.undo()
    whole = build(replace(config, teacher_cache=str(tmp_path / "whole")), collection)
    assert whole.cache.file.path.name == method.cache.file.path.name
    assert np.array_equal(whole.cache.table, method.cache.table)
    other = write_teacher(tmp_path / "other.safetensors", BACKBONE, seed=2)
    fewer = collection.subset(range(9))
    names = {build(replace(config, teacher=other), collection).cache.file.path.name}
    names |= {build(config, fewer).cache.file.path.name, method.cache.file.path.name}
    assert len(names) == 3


def test_unreadable_image_is_replaced_and_reported(teacher_file, images, tmp_path):
    for name in ("a", "b", "c"):
        Image.new("RGB", (40, 40), (9, 99, 200)).save(tmp_path / f"{name}.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    config = replace(PLAIN, teacher=teacher_file, teacher_cache=str(tmp_path / "cache"))
    method, reports = config.build(MethodContext(BACKBONE, images=open_images(tmp_path), size=32)), []
    method.prepare(reports.append)
    assert any("b.png" in report for report in reports)
    assert np.array_equal(method.cache.table["squares"][1], method.cache.table["squares"][2])


TEACHERS = {
    "other patch, heads and grid": (BackboneConfig("vit_tiny", 14, 56, width=32, depth=1, heads=2), {}),
    "resampled": (BackboneConfig("vit_tiny", 16, 32, width=24, depth=1, heads=3), {"teacher_size": 90}),
    "without attention": ("random:resnet50", {"attention_weight": 0.0, "rows_weight": 0.0}),
}


@pytest.mark.parametrize("name", TEACHERS)
def test_any_teacher_gives_outputs_on_the_grid_of_the_student(name, collection, tmp_path):
    teacher, more = TEACHERS[name]
    teacher = teacher if isinstance(teacher, str) else write_teacher(tmp_path / "t.safetensors", teacher)
    method = build(replace(PLAIN, teacher=teacher, **more), collection)
    batch = squares_batch(collection)
    output = method.teacher_batch(batch).output
    assert output.patches.shape == (4, 16, method.teacher.width)
    if method.teacher.heads:
        assert output.attention.shape == (4, method.teacher.heads, 1 + 16, 16)
        torch.testing.assert_close(output.attention.sum(-1), torch.ones(output.attention.shape[:3]))
    loss = method(batch, UNMIRRORED).value
    loss.backward()
    assert loss.isfinite()
    gradients = [p.grad for p in method.student.parameters()]
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize(("grid", "other"), [(4, 6), (7, 3), (5, 5)])
def test_matching_patch_holds_the_center_of_the_patch(grid, other):
    found = matching_patches(torch.arange(grid**2).view(grid, grid), grid, other)
    for row, column in np.ndindex(grid, grid):
        place = [int((index + 0.5) / grid * other) for index in (row, column)]
        assert found[row, column] == place[0] * other + place[1]


def test_maps_are_resampled_by_a_triangle_of_the_width_of_two_new_patches():
    maps = torch.zeros(1, 1, 8, 8)
    maps[..., 3, 4] = 64
    found = resample_maps(maps.flatten(2), 8, 4).view(4, 4)
    expected = 64 * torch.outer(torch.tensor([0, 3, 1, 0]), torch.tensor([0, 1, 3, 0])) / 8**2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("family", "size"),
    [("ViT, registers", 0), ("ViT, registers", 28), ("ViT, registers", 48), ("BEiT", 0)],
)
def test_attention_of_a_teacher_is_that_of_its_last_block_over_the_patches(family, size):
    network, mean, std = made(family), (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)
    model = LoadedModel("t", network, mean, std, "", None)
    teacher = FrozenTeacher(model, attention=True, cls_row=True, size=size)
    squares = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    sampled, prefix = torch.tensor([3, 0, 14]), network.num_prefix_tokens
    found = teacher.outputs(squares, 4, sampled.expand(2, -1)).attention
    pixels = (squares / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    if size:
        pixels = functional.resize(pixels, [size] * 2, InterpolationMode.BICUBIC, antialias=True)
    own = -(-pixels.shape[-1] // 8)
    places = prefix + matching_patches(sampled, 4, own)
    with torch.no_grad():
        rows = attention_rows(network, pixels, [0, *places.tolist()])[..., prefix:]
    rows = torch.stack([resample_maps(row, own, 4) for row in rows.unbind(2)], dim=2)
    torch.testing.assert_close(found, rows / rows.sum(-1, keepdim=True), atol=1e-5, rtol=1e-4)


BAD = {
    "no teacher": ({"teacher": ""}, "distill needs a teacher: pass --teacher"),
    "no attention": (
        {"teacher": "random:resnet50"},
        "no attention of the teacher random:resnet50: .*--rows-weight 0",
    ),
    "no terms": (
        dict.fromkeys(("patch_weight", "cls_weight", "attention_weight", "rows_weight"), 0.0),
        "weight 0",
    ),
    "scales": ({"view_scales": ()}, "--view-scales"),
    "infinite scales": ({"view_scales": (1.0, float("inf"))}, "--view-scales"),
    "spread": ({"attention_spread": 0.1, "attention_weight": 0.0}, "without --attention-weight"),
    "jitter": ({"jitter": 0.7}, "--jitter is 0.7, expected 0 to 0.5"),
}


@pytest.mark.parametrize("name", BAD)
def test_settings_that_cannot_be_used_raise(name, collection):
    change, words = BAD[name]
    settings = {"teacher": "random:embedded"} | change
    with pytest.raises(SettingError, match=words):
        build(replace(PLAIN, **settings).resolve(), collection)


def test_student_that_is_a_resnet_raises(collection):
    with pytest.raises(SettingError, match="is a ViT: pass --architecture"):
        build(replace(PLAIN, teacher="random:embedded"), collection, BackboneConfig("resnet50"))


def test_checkpoint_holds_average_and_student_but_no_teacher(teacher_file, collection):
    method = build(replace(PLAIN, teacher=teacher_file), collection)
    assert not [
        name
        for name in method.state_dict()
        if not name.startswith(("student.", "average.", "patch_", "cls_", "source"))
    ]
    assert set(method.backbones()) == {"average", "student"}


def test_state_of_another_teacher_or_cache_is_refused(teacher_file, collection, tmp_path):
    state = build(replace(PLAIN, teacher=teacher_file), collection).state_dict()
    other = write_teacher(tmp_path / "other.safetensors", BACKBONE, seed=2)
    for change in ({"teacher": other}, {"teacher_cache": str(tmp_path / "cache")}):
        method = build(replace(PLAIN, **{"teacher": teacher_file} | change), collection)
        with pytest.raises(RuntimeError, match=r"its teacher and cache are [0-9a-f]{32} live; --teacher"):
            method.load_state_dict(state)
