"""Which tensors are weight-decayed agrees with the official code."""

import json

from dino_model.backbones import BackboneConfig, create_backbone
from dino_model.head import HeadConfig, ProjectionHead
from training.methods.network import Network
from training.optim import decay_groups


def test_decayed_tensors_agree(oracle_folder):
    expected = json.loads((oracle_folder / "param_groups.json").read_text())
    names = {*expected["decayed"], *expected["not_decayed"]}
    depth = len({name.split(".")[2] for name in names if ".blocks." in name})
    layers = sum(name.startswith("head.mlp.") and name.endswith(".weight") for name in names)
    backbone = create_backbone(BackboneConfig("vit_tiny", 8, 64, width=48, depth=depth, heads=3))
    head = ProjectionHead(
        48, HeadConfig(96, layers, 64, 16, train_gain=any("weight_g" in name for name in names))
    )
    decayed, plain = decay_groups(Network(backbone, head))
    assert set(decayed["param_names"]) == set(expected["decayed"])
    assert set(plain["param_names"]) == set(expected["not_decayed"])
    assert (decayed["decayed"], plain["decayed"]) == (True, False)
