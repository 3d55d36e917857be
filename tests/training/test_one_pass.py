"""One pass of all crops against a pass for each size."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from dino_model.models.backbones import BackboneConfig
from dino_model.runtime.device import autocast
from training import one_pass
from training.augmentation.randomness import Randomness
from training.methods.head import HeadConfig
from training.methods.network import cls_tokens, create_network
from training.one_pass import OnePass, pack

CPU = torch.device("cpu")
SHAPES = ((2, 9), (3, 4))
WIDTH, TOKENS = 24, 5 * (2 * 10 + 3 * 5)


def outputs_and_gradients(one_pass, precision, **settings):
    """Bottlenecks of four crops of two sizes, and the gradient of every weight."""
    torch.manual_seed(0)
    config = BackboneConfig("vit_tiny", 8, 32, width=WIDTH, depth=3, heads=3, drop_path=0.3, **settings)
    network = create_network(config, HeadConfig(16, hidden=8, bottleneck=4))
    network.one_pass = one_pass
    crops = torch.randn(2, 5, 3, 32, 32), torch.randn(3, 5, 3, 16, 16)
    visible = torch.rand(2, 5, 16).argsort()[..., :9]
    with autocast(precision, CPU):
        randomness = Randomness(0, 0, 0, 5)
        features = network.features(*crops, randomness=randomness, visible=visible, patches=False)
        found = network.head.project(cls_tokens(features))
        (found * torch.randn(found.shape)).sum().backward()
    return found, {name: weight.grad for name, weight in network.backbone.named_parameters()}


@pytest.mark.parametrize("settings", [{}, {"layer_scale": 0.1, "mlp": "swiglu"}], ids=["gelu", "swiglu"])
@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("fp16", 0.01), ("bf16", 0.06)])
def test_one_pass_gives_the_features_and_gradients_of_a_pass_per_size(settings, precision, tolerance):
    expected, gradients = outputs_and_gradients(None, "fp32", **settings)
    found, others = outputs_and_gradients(OnePass(), precision, **settings)
    torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
    for name, gradient in gradients.items():
        assert others[name].dtype == torch.float32
        size = max(gradient.norm(), gradients["blocks.0.mlp.fc1.weight"].norm())
        assert (others[name] - gradient).norm() <= tolerance * size, name


def assert_equal(found, expected):
    torch.testing.assert_close(found[0], expected[0])
    torch.testing.assert_close(found[1], expected[1])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recomputed_blocks_give_the_same_features_and_gradients(precision):
    expected = outputs_and_gradients(OnePass(), precision)
    assert_equal(outputs_and_gradients(OnePass(recompute=True), precision), expected)


@pytest.mark.parametrize("recompute", [False, True])
def test_blocks_of_a_network_share_one_compiled_graph_in_all_steps(monkeypatch, recompute):
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    def compile_whole(function, **options):
        return whole(function, backend=backend, fullgraph=True, **options)

    whole = torch.compile
    monkeypatch.setattr(torch, "compile", compile_whole)
    torch._dynamo.reset()
    compiled = OnePass(compile=True, recompute=recompute)
    found = outputs_and_gradients(compiled, "bf16")
    first = len(graphs)
    assert first == 2  # the first block has no stochastic depth
    assert_equal(found, outputs_and_gradients(OnePass(), "bf16"))
    outputs_and_gradients(compiled, "bf16")
    assert len(graphs) == first


def test_compiled_block_has_few_fused_operations_and_bytes(monkeypatch):
    """Operations that are no products, and their bytes as a multiple of those of the tokens.

    Inductor decides what to fuse, for a CPU, and no code is generated.
    """
    from functorch.compile import make_boxed_func  # here: seconds of every collection
    from torch._dynamo.utils import detect_fake_mode
    from torch._functorch import config as aot_config
    from torch._inductor.compile_fx import compile_fx, record_original_output_strides
    from torch._inductor.debug import DebugContext
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    found = []

    def count(module, inputs, **options):
        record_original_output_strides(module)
        graph = GraphLowering(module, is_inference=options.get("is_inference", False))
        with (
            V.set_graph_handler(graph),
            V.set_fake_mode(detect_fake_mode(inputs)),
            V.set_extern_kernel_nodes([]),
            V.set_debug_handler(DebugContext()),
        ):
            graph.run(*inputs)
            graph._update_scheduler()
            fused = [node for node in graph.scheduler.nodes if not (node.is_extern() or node.is_template())]
            sizes = [size for node in fused if (size := node.get_read_write_buffers_sizes())]
        found.append((len(sizes), sum(sizes) / (TOKENS * WIDTH * 2)))
        return make_boxed_func(module.forward)

    def compile_counted(function, **options):
        return whole(function, backend=partial(compile_fx, inner_compile=count), fullgraph=True, **options)

    whole = torch.compile
    monkeypatch.setattr(torch, "compile", compile_counted)
    torch._dynamo.reset()
    with aot_config.patch(enable_autograd_cache=False):  # a graph in the user's cache is not lowered again
        outputs_and_gradients(OnePass(compile=True), "bf16")
    limits = [(6, 19.5), (6, 19.5), (14, 47), (12, 41)]  # two forward passes, two backward passes
    assert len(found) == len(limits)
    for (operations, size), (most, largest) in zip(found, limits, strict=True):
        assert 0 < operations <= most
        assert 0 < size <= largest


def jagged(query, key, value, offsets, key_offsets, longest, key_longest):
    """Attention of nested tensors, with the arguments of `varlen_attn`."""
    assert longest == key_longest == offsets.diff().max()
    assert offsets is key_offsets
    nested = (
        torch.nested.nested_tensor_from_jagged(part.contiguous(), offsets.long()).transpose(1, 2)
        for part in (query, key, value)
    )
    return F.scaled_dot_product_attention(*nested).transpose(1, 2).values()


def test_attention_in_one_call_equals_a_call_for_each_size(monkeypatch):
    monkeypatch.setattr(one_pass, "varlen_attn", jagged)
    packing = pack(SHAPES, CPU)
    heads = torch.randn(sum(images * length for images, length in SHAPES), 3, 2, 8)
    with torch.no_grad():
        found = one_pass.attend_varlen(heads, packing)
        torch.testing.assert_close(found, one_pass.attend_groups(heads, packing))
