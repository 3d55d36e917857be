"""Loss, gradient and center agree with the official ones, epoch after epoch."""

import torch

from tests.oracles.arrays import tensors
from training import losses
from training.methods.dino import update_center
from training.schedules import linear_warmup


def test_loss_gradient_and_center_agree(oracle):
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
