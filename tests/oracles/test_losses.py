"""Targets and losses agree, with their gradients, entropies, divergences and centers."""

import pytest
import torch

from tests.oracles.arrays import PRECISIONS, agree, tensors
from training import losses
from training.methods.dino import update_center
from training.recipes.schedules import linear_warmup

DTYPES = dict(PRECISIONS)
BALANCED = {torch.float64: 1e-10, torch.float32: 1e-4}  # what goes through exponentials of the batch


@pytest.fixture(params=DTYPES, ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def file(oracle, dtype):
    return tensors(oracle("dino_variants"))


def student(file, dtype):
    return file["student_output"].to(dtype).unflatten(0, (int(file["ncrops"]), -1)).requires_grad_()


def teacher(file, dtype):
    return file["teacher_output"].to(dtype).unflatten(0, (2, -1))


def made(name, file, dtype):
    """The target called `name`, [2, batch, K]."""
    logits = teacher(file, dtype)
    if name == "centering":
        return losses.sharpen(logits - file["center"], float(file["teacher_temperature"]))
    if name == "none":
        return losses.sharpen(logits, float(file["teacher_temperature"]))
    operation, rows = name.split("/")
    iterations = {"softmax_batch": 1, "sinkhorn1": 1, "sinkhorn3": 3}[operation]
    if rows == "joint":
        logits = logits.flatten(0, 1)
    found = losses.sinkhorn_knopp(logits, float(file["sinkhorn_tau"]), iterations)
    return found if rows == "per_view" else found.unflatten(0, (2, -1))


BATCH_TARGETS = [
    f"{operation}/{rows}"
    for operation in ("softmax_batch", "sinkhorn1", "sinkhorn3")
    for rows in ("per_view", "joint")
]


@pytest.mark.parametrize("name", ["centering", "none", *BATCH_TARGETS])
def test_targets_their_loss_gradient_entropy_and_divergence_agree(file, dtype, name):
    tolerance = (BALANCED if "/" in name else DTYPES)[dtype]
    target, ours = made(name, file, dtype), student(file, dtype)
    agree(target.flatten(0, 1), file[f"{name}/target"], tolerance)
    loss = losses.multi_crop_cross_entropy(ours, target, float(file["student_temperature"]))
    loss.backward()
    agree(loss, file[f"{name}/ce_loss"], tolerance)
    agree(ours.grad.flatten(0, 1), file[f"{name}/ce_grad"], tolerance)
    entropy = losses.entropy(target)
    agree(entropy, file[f"{name}/entropy"], tolerance)
    agree(loss.detach() - entropy, file[f"{name}/kl"], tolerance)


def test_center_agrees(file, dtype):
    center = file["center"].to(dtype).clone()
    update_center(center, teacher(file, dtype), float(file["center_momentum"]))
    agree(center, file["center_after"], DTYPES[dtype])


@pytest.mark.parametrize("name", ["mse", "mse_centered", "infonce_queue", "infonce_batch"])
def test_other_losses_and_their_gradients_agree(file, dtype, name):
    ours, theirs = student(file, dtype), teacher(file, dtype)
    if name.startswith("mse"):
        centered = theirs - file["center"] if name == "mse_centered" else theirs
        loss = losses.multi_crop_mse(ours, centered)
    else:
        negatives = file["negatives"].to(dtype) if name == "infonce_queue" else None
        loss = losses.multi_crop_info_nce(ours, theirs, float(file["infonce_temperature"]), negatives)
    loss.backward()
    agree(loss, file[f"{name}/loss"], DTYPES[dtype])
    agree(ours.grad.flatten(0, 1), file[f"{name}/grad"], DTYPES[dtype])


@pytest.mark.parametrize("setting", ["two_views", "multi_crop"])
def test_loss_of_byol_and_its_gradient_agree(oracle, setting, dtype):
    file, tolerance = tensors(oracle("byol")), DTYPES[dtype]
    crops = 2 if setting == "two_views" else int(file["ncrops"])
    predictions = file["predictions"][: crops * int(file["batch"])].to(dtype)
    predictions = predictions.unflatten(0, (crops, -1)).requires_grad_()
    loss = losses.multi_crop_mse(predictions, file["targets"].to(dtype).unflatten(0, (2, -1)))
    total = loss * 2 * (crops - 1)  # over all pairs
    total.backward()
    kind, over_pairs = ("", "") if crops == 2 else ("_sum", "_of_sum")
    assert total.item() == pytest.approx(file[f"{setting}/loss{kind}"].item(), rel=tolerance)
    agree(predictions.grad.flatten(0, 1), file[f"{setting}/predictions_grad{over_pairs}"], tolerance)
    if crops > 2:
        assert loss.item() == pytest.approx(file["multi_crop/loss_mean"].item(), rel=tolerance)


@pytest.mark.parametrize(("iterations", "name"), [(1, "one_iteration"), (3, "three_iterations")])
def test_sinkhorn_knopp_agrees_with_the_listing_of_the_paper(oracle, iterations, name):
    file = tensors(oracle("sinkhorn"))
    found = losses.sinkhorn_knopp(file["scores"].double(), float(file["tau"]), iterations)
    torch.testing.assert_close(found, file[name], atol=1e-9, rtol=0)


def test_loss_gradient_and_center_of_dino_agree_epoch_after_epoch(oracle):
    file = oracle("dino_loss")
    crops = int(file["ncrops"])
    temperatures = linear_warmup(
        float(file["teacher_temperature_start"]),
        float(file["teacher_temperature_end"]),
        int(file["epochs"]),
        int(file["teacher_temperature_warmup_epochs"]),
    )
    center = torch.from_numpy(file["center_before"]).clone()
    epochs = sorted(int(key.split("/")[0].removeprefix("epoch")) for key in file if key.endswith("/loss"))
    assert epochs
    for epoch in epochs:
        of_epoch = tensors(file, f"epoch{epoch}/")
        assert abs(temperatures[epoch] - float(of_epoch["teacher_temperature"])) < 1e-12
        student = of_epoch["student_output"].unflatten(0, (crops, -1)).requires_grad_()
        teacher = of_epoch["teacher_output"].unflatten(0, (2, -1))
        probabilities = losses.sharpen(teacher - center, float(temperatures[epoch]))
        loss = losses.multi_crop_cross_entropy(student, probabilities, float(file["student_temperature"]))
        loss.backward()
        update_center(center, teacher, float(file["center_momentum"]))
        torch.testing.assert_close(loss, of_epoch["loss"], atol=1e-5, rtol=0)
        torch.testing.assert_close(student.grad.flatten(0, 1), of_epoch["student_grad"], atol=1e-5, rtol=0)
        torch.testing.assert_close(center, of_epoch["center_after"], atol=1e-5, rtol=0)
