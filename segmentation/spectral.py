"""Cutting a graph of patches in two: the eigenproblem of normalised cuts, by block Lanczos or densely.

The second smallest solution of (D - W) y = lambda D y, where W holds the edge weights and D their row sums,
is D^(-1/2) z with z the second largest eigenvector of S = D^(-1/2) W D^(-1/2); the largest is known, D^(1/2)
1. One product of S with a handful of vectors costs one pass over the matrix, and about ten passes are enough.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_BLOCK = 4  # vectors a step: a pass over the matrix costs the same as with one, and equal eigenvalues show up
_STEPS = 60
_DENSE_BELOW = 200  # nodes; there the dense solver is the faster one
_TOLERANCE = 1e-9  # of the eigenvector: residual / gap bounds its error
_LEAST_GAP = 1e-7  # between eigenvalues: below, the eigenvector is a matter of rounding


def affinity(features: NDArray[np.floating], tau: float, faint: float = 1e-5) -> Matrix:
    """Edge weights of a patch graph: 1 where the cosine similarity exceeds `tau`, `faint` elsewhere.

    Args:
        features: [nodes, D]; a node without length is similar to none.
        tau: in (-1, 1).
        faint: small and positive, so that the graph hangs together.

    Returns:
        float64 [nodes, nodes], symmetric.

    Source: TokenCut (Wang et al. 2022), section 3.
    """
    unit = np.asarray(features, dtype=np.float32)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    return np.where(unit @ unit.T > tau, 1.0, faint)


def second_eigenvector(weights: Matrix) -> Vector:
    """The vector that cuts a graph best: second smallest solution of (D - W) y = lambda D y.

    Runs block Lanczos; falls back to the dense solver where that does not settle: eigenvalues so close that
    the eigenvector is a matter of rounding, or a graph of few nodes.

    Args:
        weights: symmetric, positive row sums: [nodes, nodes].

    Returns:
        [nodes], of unit length, its largest element (by size) positive.

    Raises:
        ValueError: fewer than two nodes.
    """
    if len(weights) < 2:
        raise ValueError(f"a graph of {len(weights)} nodes cannot be cut; expected at least 2")
    found = _lanczos(weights) if len(weights) >= _DENSE_BELOW else None
    return _canonical(second_eigenvector_dense(weights) if found is None else found)


def second_eigenvector_dense(weights: Matrix) -> Vector:
    """As `second_eigenvector`, sign aside, by the dense solver for generalised eigenproblems: [nodes]."""
    degrees = weights.sum(axis=1)
    _, vectors = eigh(np.diag(degrees) - weights, np.diag(degrees), subset_by_index=[1, 1])
    return vectors[:, 0]


def _lanczos(weights: Matrix) -> Vector | None:
    """Block Lanczos with full reorthogonalisation; None where it does not settle."""
    degrees = weights.sum(axis=1)
    root = np.sqrt(degrees)
    start = np.random.default_rng(0).standard_normal((len(weights), _BLOCK))
    basis = (root / np.linalg.norm(root))[
        :, None
    ]  # the known eigenvector first: all else stays orthogonal to it
    images = np.empty((len(weights), 0))  # S times each later basis vector
    block = start
    for _ in range(_STEPS):
        block = _orthonormal(block, basis)
        basis = np.hstack([basis, block])
        image = (weights @ (block / root[:, None])) / root[:, None]
        images = np.hstack([images, image])
        values, combinations = np.linalg.eigh(basis[:, 1:].T @ images)  # of S within the basis, ascending
        best, gap = combinations[:, -1], values[-1] - values[-2]
        residual = np.linalg.norm(images @ best - values[-1] * (basis[:, 1:] @ best))
        if residual <= _TOLERANCE * gap and gap > _LEAST_GAP:
            return (basis[:, 1:] @ best) / root
        block = image
    return None


def _orthonormal(block: Matrix, basis: Matrix) -> Matrix:
    """The block's directions outside of the basis: [nodes, block]. Twice, for once leaves rounding behind."""
    for _ in range(2):
        block = np.linalg.qr(block - basis @ (basis.T @ block))[0]
    return block


def _canonical(vector: Vector) -> Vector:
    unit = vector / np.linalg.norm(vector)
    return unit * np.sign(unit[np.abs(unit).argmax()])
