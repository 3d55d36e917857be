"""Training on a CUDA device without a GPU: no mixed devices, no wait, no race, and the cost of a step."""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks.fake_cuda.steps import count_step
from benchmarks.plan import PEAKS, Plan
from tests.cuda import cases
from tests.training.runs import CROPS, METHODS

pytestmark = pytest.mark.slow
MATRIX = pytest.mark.cuda_matrix
FLUSH = ("synchronization at training/run/logging.py", "_local_scalar_dense at training/run/checkpoint.py")
"""Before a checkpoint is copied, the metrics are written; the loss scale of fp16 is read."""


def check(counts):
    """Counts of the start and three steps; a checkpoint is copied before the third."""
    _, plain, saved, end = counts
    for step in (plain, saved, end):
        assert not step.errors
        assert not step.pageable
    assert not plain.collectives + saved.collectives
    assert not plain.waits
    assert all(line.startswith(FLUSH) for line in [*saved.waits, *end.waits]), saved.waits
    return plain


@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp32"])
def test_training_step_never_waits(on_cuda, precision):
    check(on_cuda(cases.train, cases.SMALL, precision))


CORE = ("moco-v2", "swav")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in CORE else MATRIX) for name in METHODS if name != "dino"]
)
def test_step_of_every_method_never_waits(on_cuda, name):
    crops = CROPS.get(name, cases.SMALL.crops)
    check(on_cuda(cases.train, replace(cases.SMALL, method=METHODS[name], crops=crops)))


@MATRIX
def test_distillation_from_a_cache_never_waits(on_cuda):
    recipe = replace(cases.SMALL, method=METHODS["distill"], crops=CROPS["distill"])
    check(on_cuda(cases.train_from_cache, recipe))


@MATRIX
@pytest.mark.parametrize(
    "options",
    [{"accumulate": 2}, {"checkpoint_activations": True}, {"compile": True}, {"workers": 1}],
    ids=str,
)
def test_step_with_options_never_waits(on_cuda, options):
    check(on_cuda(cases.train, cases.SMALL, "bf16", options))


@pytest.mark.parametrize(
    ("precision", "operations", "traffic", "peak"),
    [
        pytest.param("bf16", 978, 66.3, 7.5),
        pytest.param("fp16", 1408, 89.8, 8.26, marks=MATRIX),
        pytest.param("fp32", 1426, 127.5, 13.5, marks=MATRIX),
    ],
)
def test_official_step_costs_as_recorded(on_cuda, precision, operations, traffic, peak):
    step = check(on_cuda(cases.train, cases.OFFICIAL, precision))
    found = {"operations": step.operations, "traffic": step.traffic / 2**30, "peak": step.peak / 2**30}
    assert found == pytest.approx({"operations": operations, "traffic": traffic, "peak": peak}, rel=0.1)
    if precision != "fp32":  # one call of attention in each block of teacher and student
        depth = 12
        assert step.names["_varlen_attn"] == 2 * depth
        assert step.names["_varlen_attn_backward"] == depth
        assert not any(name.startswith("_scaled_dot_product") for name in step.names)


def test_step_as_a_graph_is_one_operation_and_the_updates(on_cuda):
    _, recording, replaying, _ = counts = on_cuda(cases.train_as_graph, cases.OFFICIAL)
    check(counts)
    assert "replay" in replaying.names
    assert replaying.operations < recording.operations / 3


@MATRIX
def test_checkpointed_activations_save_half_of_the_memory(on_cuda):
    plain, saving = (
        check(on_cuda(cases.train, cases.OFFICIAL, "bf16", options))
        for options in ({}, {"checkpoint_activations": True})
    )
    assert saving.peak < 0.5 * plain.peak


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "dino" else MATRIX)
        for name in ("dino", "sinkhorn-knopp", "infonce", "infonce with a queue", "spreading", "supervised")
    ],
)
def test_step_of_two_ranks_never_waits(on_cuda, name):
    check(on_cuda(partial(cases.train, ranks=2), replace(cases.SMALL, method=METHODS[name])))


@pytest.mark.parametrize(
    ("wait", "record", "words"),
    [
        (True, True, ""),
        (False, True, "stream 0 does not wait for stream"),
        (True, False, "is freed while stream 0 uses it"),
    ],
)
def test_fake_device_notices_memory_used_by_two_streams(on_cuda, wait, record, words):
    errors = on_cuda(cases.two_streams, wait, record)
    assert len(errors) == bool(words)
    assert words in "".join(errors)


def test_plan_counts_the_operations_of_a_step(on_cuda):
    cost, step = on_cuda(count_step, cases.SMALL, "bf16"), check(on_cuda(cases.train, cases.SMALL))
    assert cost.operations == pytest.approx(step.operations, rel=0.1)
    assert 0 < cost.traffic < step.traffic
    time = Plan(host_time=5.0, peak_share=0.5, bandwidth_share=0.5).step_time(cost, "A100")
    assert time.host == pytest.approx(5e-6 * cost.operations)
    assert time.products == pytest.approx(cost.flops / (0.5 * PEAKS["A100"]))
    assert time.total == time.host  # of a tiny network
