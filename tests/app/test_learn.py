"""Settings and numbers of the tab Learn."""

import numpy as np

from app.handlers.attention_maps import attention
from app.tabs.learn import numbers, settings


def test_widest_and_narrowest_head_are_chosen_by_entropy(encoding):
    maps = attention(encoding)
    shares = maps.reshape(len(maps), -1)
    shares = shares / shares.sum(axis=1, keepdims=True)
    entropies = -(shares * np.log(shares)).sum(axis=1)
    found = numbers(encoding, encoding)
    assert found["widest"].startswith(f"head {entropies.argmax()} with {entropies.max():.2f}")
    assert found["narrowest"].startswith(f"head {entropies.argmin()} with {entropies.min():.2f}")
    assert settings(3, encoding)["head"] == str(entropies.argmin())
