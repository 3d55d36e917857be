"""Everything a picture needs to become attention maps: backbones, weights, features, predictor."""
