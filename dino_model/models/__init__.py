"""From a name to a module.

    load.load_model
    ├─ catalogue.kind_of             what the name means
    ├─ checkpoint.read_backbone      a file or run → the tensors of one backbone, and its description
    │  ├─ backbones.create_backbone  DINO's own ViT and ResNet-50
    │  └─ conversion.build_vit       a ViT of other code, by the names and shapes of its tensors
    ├─ conversion.load_described     a folder with config.json; `load_hosted`: a name of timm, `hf:owner/name`
    └─ load.wrap_module              own code

`families` lists what no tensor shows, and `attention` reads any ViT.
"""
