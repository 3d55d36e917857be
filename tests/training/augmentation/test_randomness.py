import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from training.augmentation.randomness import Randomness, mix


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**31), st.integers(0, 10**6), st.integers(0, 11), st.integers(1, 12), st.integers(1, 3)
)
def test_randomness_of_a_part_equals_that_of_the_batch(seed, step, first, images, stride):
    images = min(images, 12 - first)
    batch = Randomness(seed, step, 0, 12, stride)
    whole = Randomness(seed, step, 0, 12 * stride).uniform("depth", 3)
    expected = whole[:, ::stride][:, first : first + images]
    assert torch.equal(batch.part(first, images).uniform("depth", 3), expected)
    assert torch.equal(batch.part(first, images).part(0, images).uniform("depth", 3), expected)


def test_randomness_depends_on_seed_step_and_purpose():
    draws = [(0, 0, "depth"), (1, 0, "depth"), (0, 1, "depth"), (0, 0, "patches")]
    numbers = [Randomness(seed, step, 0, 12).uniform(purpose)[0] for seed, step, purpose in draws]
    assert len(torch.stack(numbers).unique()) == 4


def test_mix_of_seed_0_is_the_published_sequence_of_splitmix64():
    published = (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)
    assert [mix(0, position) for position in range(3)] == [number >> 1 for number in published]
    golden = 0x9E3779B97F4A7C15  # a seed shifts the sequence by that many times this number
    assert [mix(seed, 2 - seed * golden) for seed in range(3)] == [published[2] >> 1] * 3


def test_random_numbers_are_uniform():
    numbers = Randomness(3, 5, 0, 4000).uniform("depth", 5)
    assert numbers.dtype == torch.float32
    assert (numbers.min(), numbers.max()) == pytest.approx((0, 1), abs=1e-3)
    assert numbers.max() < 1
    assert (numbers.mean(), numbers.var()) == pytest.approx((1 / 2, 1 / 12), abs=0.01)
