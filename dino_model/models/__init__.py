"""From a name to a module: `catalogue` says what a name means, `load` makes the model.

A file is read by `checkpoint`, which finds the tensors of a backbone. `backbones` builds DINO's own ViT and
ResNet-50, `conversion` those of other code. `families` lists what no tensor shows, `attention` reads any ViT.
"""
