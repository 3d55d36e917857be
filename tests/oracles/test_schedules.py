"""A recipe's plan agrees with the official schedules to the last digits."""

import numpy as np

from training.methods.dino_config import DINOConfig
from training.recipe import OptimizerConfig, Plan, Recipe


def test_the_plan_agrees(oracle):
    file = oracle("schedules")
    epochs, per_epoch = int(file["epochs"]), int(file["iterations_per_epoch"])
    recipe = Recipe(
        method=DINOConfig(
            teacher_momentum=float(file["teacher_momentum_start"]),
            teacher_temperature_start=float(file["teacher_temperature_start"]),
            teacher_temperature=float(file["teacher_temperature_end"]),
            teacher_temperature_warmup_epochs=int(file["teacher_temperature_warmup_epochs"]),
        ),
        optimizer=OptimizerConfig(
            lr=float(file["peak_lr"]),
            min_lr=float(file["final_lr"]),
            warmup_epochs=int(file["warmup_epochs"]),
            weight_decay=float(file["weight_decay_start"]),
            weight_decay_end=float(file["weight_decay_end"]),
        ),
        epochs=epochs,
        batch_size=256,
    )
    plan = Plan.of(recipe, num_images=per_epoch * 256 + 255)
    assert float(file["teacher_momentum_end"]) == 1
    found = {
        "lr": plan.lr,
        "weight_decay": plan.weight_decay,
        "teacher_momentum": plan.method.teacher_momentum,
        "teacher_temperature": plan.method.teacher_temperature[::per_epoch],
    }
    for name, schedule in found.items():
        np.testing.assert_allclose(schedule, file[name], atol=1e-12, rtol=0, err_msg=name)
    assert np.array_equal(plan.method.teacher_temperature, file["teacher_temperature"].repeat(per_epoch))
