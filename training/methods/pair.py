"""A student and the teacher that follows it: what DINO, BYOL and MoCo share."""

from dataclasses import replace
from typing import ClassVar

from torch import nn

from dino_model.backbones import BackboneConfig
from dino_model.head import HeadConfig
from training.methods.base import Method
from training.methods.network import Network, create_network
from training.optim import ParameterGroup, decay_groups, move_average


class StudentAndTeacher(Method):
    """The student is trained; the teacher, which is built like it, starts as its copy, without gradients."""

    networks: ClassVar[tuple[str, str]] = ("teacher", "student")
    """Which of the two the method's paper evaluates, and the other."""

    def __init__(self, student: Network, teacher: Network) -> None:
        """`teacher` may lack what only the student has: stochastic depth, a predictor."""
        super().__init__()
        self.student, self.teacher = student, teacher
        weights = student.state_dict()
        teacher.load_state_dict({name: weights[name] for name in teacher.state_dict()})
        teacher.requires_grad_(False)

    def follow(self, momentum: float) -> None:
        """teacher <- momentum * teacher + (1 - momentum) * student, for all weights that the teacher has.

        Buffers, which are statistics of batch normalisation, stay the teacher's own.
        """
        own, weights = dict(self.teacher.named_parameters()), dict(self.student.named_parameters())
        move_average(list(own.values()), [weights[name] for name in own], momentum)

    def backbones(self) -> dict[str, nn.Module]:
        """Both networks', the one that the paper evaluates first."""
        return {name: getattr(self, name).backbone for name in self.networks}

    def parameter_groups(self) -> list[ParameterGroup]:
        """What the optimizer trains: the student, with a predictor where it has one."""
        return decay_groups(self.student)


def create_pair(backbone: BackboneConfig, head: HeadConfig, predictor: int = 0) -> tuple[Network, Network]:
    """A student and its teacher, which has neither stochastic depth nor a predictor."""
    student = create_network(backbone, head, predictor)
    return student, create_network(replace(backbone, drop_path=0.0), head)
