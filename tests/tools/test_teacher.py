"""The teacher of the shipped model, written from a package."""

import zipfile

import numpy as np
import torch
from safetensors.numpy import load_file

WIDTH = 8


def tiny_wheel(path, member):
    """A model of two blocks, exported as the package's: matrices have numbers, positions are split."""
    from onnx import TensorProto, helper, numpy_helper  # a fifth of a second

    rng = np.random.default_rng(0)
    arrays, nodes = {}, []

    def add(name, *shape):
        arrays[name] = rng.random(shape, np.float32)

    add("backbone.embeddings.cls_token", 1, 1, WIDTH)
    add("backbone.embeddings.patch_embeddings.projection.weight", WIDTH, 3, 14, 14)
    add("backbone.embeddings.patch_embeddings.projection.bias", WIDTH)
    for end in ("weight", "bias"):
        add(f"backbone.layernorm.{end}", WIDTH)
    add("onnx::Reshape_9", 1, 4, WIDTH)
    add("onnx::Concat_10", 1, 1, WIDTH)
    add("decoder.weight", WIDTH, WIDTH)
    shapes = {f"attention.attention.{part}": (WIDTH, WIDTH) for part in ("query", "key", "value")}
    shapes |= {
        "attention.output.dense": (WIDTH, WIDTH),
        "mlp.fc1": (4 * WIDTH, WIDTH),
        "mlp.fc2": (WIDTH, 4 * WIDTH),
    }
    for layer in range(2):
        place = f"encoder.layer.{layer}"
        for part, (out, inputs) in shapes.items():
            number = f"onnx::MatMul_{100 * layer + len(arrays)}"
            add(number, inputs, out)
            add(f"backbone.{place}.{part}.bias", out)
            node = f"/backbone/encoder/layer.{layer}/{part.replace('.', '/')}/MatMul"
            nodes.append(helper.make_node("MatMul", ["input", number], [f"{number}_out"], name=node))
        scores = ["query", "key"]  # a product of two activations
        nodes.append(
            helper.make_node(
                "MatMul",
                scores,
                [f"s{layer}"],
                name=f"/backbone/encoder/layer.{layer}/attention/attention/MatMul",
            )
        )
        for norm in ("norm1", "norm2"):
            add(f"backbone.{place}.{norm}.weight", WIDTH)
            add(f"backbone.{place}.{norm}.bias", WIDTH)
        for number in "12":
            add(f"backbone.{place}.layer_scale{number}.lambda1", WIDTH)
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    output = helper.make_tensor_value_info("s1", TensorProto.FLOAT, None)
    model = helper.make_model(helper.make_graph(nodes, "graph", [], [output], tensors))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, model.SerializeToString())
    return {name: torch.from_numpy(array) for name, array in arrays.items()}, nodes


def test_teacher_is_written_with_official_names(tmp_path):
    from tools import teacher  # imports ONNX

    arrays, nodes = tiny_wheel(tmp_path / "small.whl", teacher.MEMBER)
    output = tmp_path / "teacher.safetensors"
    assert teacher.main(teacher.Teacher(tmp_path / "small.whl", output)) == 0
    tensors = {name: torch.from_numpy(array) for name, array in load_file(output).items()}
    assert {"pos_embed", "mask_token", "blocks.0.ls1.gamma"} <= tensors.keys()
    matrices = {node.name: arrays.get(node.input[1]) for node in nodes}
    parts = [
        matrices[f"/backbone/encoder/layer.1/attention/attention/{p}/MatMul"]
        for p in ("query", "key", "value")
    ]
    torch.testing.assert_close(tensors["blocks.1.attn.qkv.weight"], torch.cat([part.T for part in parts]))
    fc1 = matrices["/backbone/encoder/layer.0/mlp/fc1/MatMul"]
    torch.testing.assert_close(tensors["blocks.0.mlp.fc1.weight"], fc1.T)
    positions = torch.cat([arrays["onnx::Concat_10"], arrays["onnx::Reshape_9"]], 1)
    torch.testing.assert_close(tensors["pos_embed"], positions)
    torch.testing.assert_close(
        tensors["blocks.1.ls2.gamma"], arrays["backbone.encoder.layer.1.layer_scale2.lambda1"]
    )
