"""Networks without arithmetic, for methods judged by given outputs: a crop's pixels are the output."""

import torch
from torch import Tensor, nn

from training.crops import Crops
from training.methods.method import Batch
from training.randomness import Randomness


class Echo(nn.Module):
    """Gives one of the two rows of crops [crops, batch, 2, 1, width]: the student's or the teacher's."""

    def __init__(self, row: int, weights: dict[str, Tensor] | None = None) -> None:
        super().__init__()
        self.row, self.backbone, self.head = row, nn.Identity(), nn.Identity()
        self.head.last_layer = nn.Identity()
        for name, weight in (weights or {}).items():
            self.register_parameter(name, nn.Parameter(weight.clone()))

    def forward(self, *groups: Tensor, randomness: Randomness | None = None) -> Tensor:
        return torch.cat([group[:, :, self.row, 0] for group in groups])

    def project(
        self, *groups: Tensor, randomness: Randomness | None = None, visible: Tensor | None = None
    ) -> Tensor:
        return self(*groups)

    def logits(self, projected: Tensor) -> Tensor:
        return projected


def batch_of(student: Tensor, teacher: Tensor) -> Batch:
    """A batch for which `Echo` gives these outputs.

    Args:
        student: [crops, batch, width], views first.
        teacher: [2, batch, width] of the views.
    """
    rest = student.new_zeros(len(student) - 2, *student.shape[1:])
    both = torch.stack([student, torch.cat([teacher, rest])], dim=2).unsqueeze(3)
    return Batch(Crops(both[:2], both[2:]), None, Randomness(0, 0, 0, student.shape[1], student.shape[1]))
