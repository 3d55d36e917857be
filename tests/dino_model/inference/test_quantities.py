import numpy as np
import pytest

from dino_model.inference import quantities
from dino_model.inference.predictor import AttentionPredictor


def vectors(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float16)


def test_attention_of_queries_and_keys_equals_predictor():
    predictor = AttentionPredictor("random:vit_tiny/16", size=64, precision="fp32", device="cpu")
    predictor.set_image(np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8))
    rows = quantities.attention(*predictor.queries_keys(3), token=0)
    np.testing.assert_allclose(rows.sum(axis=-1), 1, rtol=1e-5)
    patches = rows[:, predictor.prefix_tokens :].reshape(-1, *predictor.grid)
    np.testing.assert_allclose(patches, predictor.cls_attention(3), atol=1e-4)


def test_logits_and_cosines_equal_the_formulas():
    queries, keys = vectors(0, 2, 5, 7), vectors(1, 2, 5, 7)
    for head in range(2):
        products = keys[head].astype(float) @ queries[head, 3].astype(float)
        found = quantities.logits(queries, keys, 3)[head]
        np.testing.assert_allclose(found, products / 7**0.5, rtol=1e-4, atol=1e-6)
        one = keys[head].astype(float)
        expected = one @ one[2] / np.linalg.norm(one, axis=1) / np.linalg.norm(one[2])
        np.testing.assert_allclose(quantities.cosines(keys, 2)[head], expected, rtol=1e-4, atol=1e-6)


def test_key_similarity_is_the_cosine_of_keys_centered_over_patches():
    keys = vectors(6, 2, 6, 4)
    joined = np.concatenate(list(keys.astype(float)), axis=1)  # of all heads: [tokens, heads * d]
    joined -= joined[1:].mean(axis=0)  # token 0 is no patch
    found = quantities.key_similarity(keys, prefix=1, token=3)
    expected = joined @ joined[3] / np.linalg.norm(joined, axis=1) / np.linalg.norm(joined[3])
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_principal_colors_equal_plain_decomposition():
    features = vectors(3, 6, 5, 8).astype(np.float32) * np.arange(8, 0, -1)
    colors = quantities.principal_colors(features)
    flat = features.reshape(30, 8) - features.reshape(30, 8).mean(axis=0)
    left, sizes, _ = np.linalg.svd(flat, full_matrices=False)
    for channel in range(3):
        correlation = np.corrcoef((left * sizes)[:, channel], colors[..., channel].ravel())[0, 1]
        assert abs(correlation) == pytest.approx(1, abs=1e-5)
    assert (colors.min(axis=(0, 1)) == 0).all()
    assert (colors.max(axis=(0, 1)) == 1).all()
    shares = sizes[:3] ** 2 / (sizes**2).sum()
    np.testing.assert_allclose(quantities.explained_variance(features), shares, rtol=1e-5)
    turned = quantities.principal_colors(features[::-1, ::-1])[::-1, ::-1]
    np.testing.assert_allclose(turned, colors, atol=1e-5)  # with the same signs


def test_rollout_multiplies_half_of_the_attention_and_half_of_the_token_block_by_block():
    blocks = [(vectors(seed, 2, 5, 4), vectors(seed + 1, 2, 5, 4)) for seed in (1, 3, 5)]
    expected = np.eye(5)
    for queries, keys in blocks:
        logits = queries.astype(float) @ keys.astype(float).transpose(0, 2, 1) / 2
        attention = np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)
        expected = (0.5 * attention.mean(axis=0) + 0.5 * np.eye(5)) @ expected
    np.testing.assert_allclose(quantities.attention_rollout(iter(blocks)), expected, atol=1e-5)
    with pytest.raises(ValueError, match="at least one block"):
        quantities.attention_rollout([])


def test_lift_equals_the_formula():
    mask = np.zeros((6, 8), dtype=bool)  # patches of 2 × 2 pixels: 3 rows, 4 columns
    mask[2:4, 2:6] = True  # two of twelve patches
    attention = np.ones((2, 3, 4), dtype=np.float32)
    attention[0, 1, 1] = 5  # head 0: 6 of 16; head 1: 2 of 12
    attention[1] *= 0.25  # a head with most of its attention on [CLS] weighs less in the mean
    expected = (6 + 0.5) / (16 + 3) / (2 / 12)
    assert quantities.lift(attention, mask) == pytest.approx(expected)
    assert quantities.lift(attention * 0.1, mask) == pytest.approx(expected)  # renormalized
    between_centers = np.zeros((9, 9), dtype=bool)
    between_centers[0, 0] = True
    assert quantities.lift(np.ones((1, 3, 3)), between_centers) is None


def test_outlier_patches_marks_the_planted_tokens_alone():
    norms = np.random.default_rng(0).normal(40, 3, (20, 30)).astype(np.float32)
    planted = np.zeros((20, 30), bool)
    planted[[3, 11, 19], [29, 0, 7]] = True
    assert np.array_equal(quantities.outlier_patches(np.where(planted, 150, norms)), planted)
    assert not quantities.outlier_patches(norms).any()
    bound = 6 * 1.4826 * 2  # of a median absolute deviation of 2
    edge = [40, 40, 40, 42, 42, 38, 38, 38, 40 + bound - 0.01, 40 + bound + 0.01, 40 - 2 * bound]
    assert np.flatnonzero(quantities.outlier_patches(np.array(edge))).tolist() == [9]
