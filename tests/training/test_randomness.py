import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.randomness import Randomness


def whole(seed=0, step=0, size=12):
    return Randomness(seed, step, 0, size, size)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 2**31), st.integers(0, 10**6), st.integers(0, 11), st.integers(1, 12))
def test_randomness_of_a_part_equals_that_of_the_batch(seed, step, first, num_images):
    num_images = min(num_images, 12 - first)
    numbers = whole(seed, step).uniform("depth", 3)
    assert torch.equal(
        whole(seed, step).part(first, num_images).uniform("depth", 3), numbers[:, first : first + num_images]
    )


def test_randomness_depends_on_seed_step_and_purpose():
    numbers = [
        whole().uniform("depth"),
        whole(seed=1).uniform("depth"),
        whole(step=1).uniform("depth"),
        whole().uniform("patches"),
    ]
    for i, one in enumerate(numbers):
        assert not any(torch.equal(one, other) for other in numbers[:i])
