"""Schedules agree with the official ones to the last digits."""

import numpy as np

from training.schedules import cosine, linear_warmup


def test_schedules_agree(oracle):
    file = oracle("schedules")
    epochs, per_epoch = int(file["epochs"]), int(file["iterations_per_epoch"])
    steps = epochs * per_epoch
    expected = {
        "lr": cosine(
            float(file["peak_lr"]), float(file["final_lr"]), steps, int(file["warmup_epochs"]) * per_epoch
        ),
        "weight_decay": cosine(float(file["weight_decay_start"]), float(file["weight_decay_end"]), steps),
        "teacher_momentum": cosine(
            float(file["teacher_momentum_start"]), float(file["teacher_momentum_end"]), steps
        ),
        "teacher_temperature": linear_warmup(
            float(file["teacher_temperature_start"]),
            float(file["teacher_temperature_end"]),
            epochs,
            int(file["teacher_temperature_warmup_epochs"]),
        ),
    }
    for name, schedule in expected.items():
        np.testing.assert_allclose(schedule, file[name], atol=1e-12, rtol=0, err_msg=name)
