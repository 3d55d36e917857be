"""Object discovery on a patch grid without labels or training: LOST, TokenCut, MaskCut."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from dino_model.inference.quantities import unit_vectors
from segmentation.masks import Box, Mask, bounding_box, component_at, components, enlarge, keep_mass_of_maps

if TYPE_CHECKING:  # commands import this module before they need PyTorch
    from dino_model.inference.predictor import AttentionPredictor

Features = NDArray[np.floating]
TAU, MASKCUT_TAU = 0.2, 0.15  # cosine similarity above which two patches are connected
FAINT = 1e-5  # weight of the other edges, which keeps the graph connected
CHUNK = 2048  # patches that are compared with all others at once


class Discovery(NamedTuple):
    """Object on the patch grid."""

    mask: Mask  # [rows, columns]; empty where nothing stands out
    seed: tuple[int, int]  # row and column of the patch it grew from
    confidence: float = 1.0  # see cut_confidence; 1 if it was not computed


def keep_attention(attention: NDArray[np.floating], mass: float) -> list[Discovery]:
    """Take the patches that hold a share of a map's attention, [rows, columns], as one object."""
    row, column = divmod(int(attention.argmax()), attention.shape[1])
    return [Discovery(keep_mass_of_maps(attention, mass), (row, column))]


def keep_largest_part(attention: NDArray[np.floating], mass: float) -> list[Discovery]:
    """Take the largest connected part of `keep_attention`: the baseline DINO-seg of LOST's paper."""
    mask = components(keep_mass_of_maps(attention, mass)) == 1
    row, column = divmod(int(np.where(mask, attention, -1).argmax()), attention.shape[1])
    return [Discovery(mask, (row, column))]


def lost(features: Features, candidates: int = 100) -> Discovery:
    """Find one object by LOST: it holds the patch that is similar to the fewest others.

    That patch is the seed. The `candidates` patches with the fewest positive similarities join it if they are
    similar to it. A patch belongs to the object if the sum of its similarities to all of them is positive and
    it is connected with the seed. The features are keys of the last block: [rows, columns, D].

    Source: Siméoni et al. 2021, "Localizing objects with self-supervised transformers and no labels", sec. 3.
    """
    rows, columns, _ = features.shape
    flat = np.asarray(features, dtype=np.float32).reshape(rows * columns, -1)
    degrees = _count_similar(flat, [np.ones(len(flat), dtype=bool)], 0)[:, 0]  # each patch counts itself
    fewest = np.argsort(degrees, kind="stable")[:candidates]
    seed = int(fewest[0])
    similar = fewest[flat[fewest] @ flat[seed] > 0]
    summed = flat @ flat[similar].sum(axis=0)
    row, column = divmod(seed, columns)
    return Discovery(component_at(summed.reshape(rows, columns) > 0, row, column), (row, column))


def tokencut(features: Features) -> Discovery:
    """Find one object by TokenCut: a normalized cut of the graph of similar patches.

    The cut divides the eigenvector at its mean. The object is the connected component of the patch with the
    element of largest magnitude, on its side of the cut. The features are as for `lost`.

    Source: Wang et al. 2022, "Self-supervised transformers for unsupervised object discovery", section 3.
    """
    rows, columns, _ = features.shape
    return _side_of_extreme(_cut(features.reshape(rows * columns, -1), TAU).reshape(rows, columns))


def maskcut(features: Features, count: int) -> list[Discovery]:
    """Find up to `count` objects by repeated cuts: each object's patches are removed from the graph.

    The idea of MaskCut (Wang et al. 2023), on a grid of any shape. A piece is left out if it has at most 1 %
    of the image. The features are as for `lost`.
    """
    rows, columns, _ = features.shape
    flat = features.reshape(rows * columns, -1)
    patches, objects = np.arange(len(flat)), list[Discovery]()
    for _ in range(count):
        if not patches.size:
            break
        cut = np.full(rows * columns, np.nan)
        cut[patches] = _cut(flat[patches], MASKCUT_TAU)
        piece = _side_of_extreme(cut.reshape(rows, columns), background_in_corners=True)
        if not piece.mask.any():
            break
        if piece.mask.mean() > 0.01:
            objects.append(piece)
        patches = np.setdiff1d(patches, np.flatnonzero(piece.mask))
    return objects


MAX_OBJECTS = 254  # of a label image in bytes, without background and void
Need = Literal["keys", "attention", "mass", "count"]


class DiscoveryMethod(NamedTuple):
    """A method of object discovery, for the command, the page, help and documents.

    `find` returns objects, which may be empty. The names of its arguments are its needs. Keys are those of
    the last block, float32 [rows, columns, D], not normalized. Attention is that of one head,
    [rows, columns], and mass the share of it to keep. Count is the largest number of objects.
    """

    find: Callable[..., list[Discovery]]
    title: str
    summary: str

    @property
    def needs(self) -> tuple[Need, ...]:
        """Names of the arguments of `find`; raises ValueError for any that is not in `Need`."""
        names = tuple(signature(self.find).parameters)
        if unknown := [name for name in names if name not in get_args(Need)]:
            known = ", ".join(get_args(Need))
            raise ValueError(
                f"discovery method {self.title} has an argument {unknown[0]!r}: choose among {known}"
            )
        return cast(tuple[Need, ...], names)


METHODS: dict[str, DiscoveryMethod] = {
    "attention": DiscoveryMethod(
        keep_attention,
        "Attention",
        "The patches with the largest attention of [CLS].",
    ),
    "dino-seg": DiscoveryMethod(
        keep_largest_part,
        "DINO-seg",
        "The largest connected part of the attention that is kept.",
    ),
    "lost": DiscoveryMethod(
        lambda keys: [lost(keys)],
        "LOST",
        "Grown from the patch whose key is similar to the fewest other keys.",
    ),
    "tokencut": DiscoveryMethod(
        lambda keys: [tokencut(keys)],
        "TokenCut",
        "A normalized cut of the graph of similar keys.",
    ),
    "maskcut": DiscoveryMethod(
        lambda keys, count: maskcut(keys, count),
        "MaskCut",
        "TokenCut several times, each time without the objects found before.",
    ),
}
"""Every method by the name that commands and the page give it."""


def discovery_method(name: str) -> DiscoveryMethod:
    """Return a method of `METHODS`; raises ValueError for any other name."""
    if name not in METHODS:
        raise ValueError(f"Unknown discovery method {name!r}. Available: {', '.join(METHODS)}.")
    return METHODS[name]


def find_objects(name: str, inputs: Mapping[Need, Any]) -> list[Discovery]:
    """Find objects on the patch grid by the named method, without empty ones; `inputs` has what it needs.

    Their confidence is computed if `inputs` has keys. Raises ValueError for masks of another shape or type.
    """
    method = discovery_method(name)
    grids = {inputs[need].shape[:2] for need in ("keys", "attention") if need in inputs}
    objects = method.find(**{need: inputs[need] for need in method.needs})
    others: list[object] = [objects]
    if isinstance(objects, list):
        others = [each for each in objects if not isinstance(each, Discovery)]
    if others:
        raise ValueError(f"{name} returned a {type(others[0]).__name__}, expected a list of Discovery")
    for mask, (row, column), _ in objects:
        if mask.dtype != bool or mask.shape not in grids:
            expected = " or ".join(map(str, grids))
            raise ValueError(
                f"{name} returned a {mask.dtype} mask of {mask.shape}, expected bool of {expected}"
            )
        if not (0 <= row < mask.shape[0] and 0 <= column < mask.shape[1]):
            raise ValueError(f"{name} returned the seed {row}, {column}, outside of its mask of {mask.shape}")
    objects = [each for each in objects if each.mask.any()]
    most = min(MAX_OBJECTS, inputs["count"]) if "count" in method.needs else MAX_OBJECTS
    if len(objects) > most:
        raise ValueError(f"{name} found {len(objects)} objects, expected at most {most}")
    if "keys" not in inputs:
        return objects
    return [each._replace(confidence=cut_confidence(inputs["keys"], each.mask)) for each in objects]


def cut_confidence(features: Features, mask: Mask) -> float:
    """Rate how clearly an object is cut off from the rest of the image: 1 minus the normalized cut.

    The graph is TokenCut's: patches with a cosine similarity above 0.2 are connected. The value is 1 if no
    connection leaves the object. It is negative if the object is connected with the rest more than within
    itself. It is 0 if all patches of the image are connected, for an empty mask and for all patches. All
    methods share this scale. Features are [rows, columns, D], the mask [rows, columns].

    Source: Shi and Malik 2000, "Normalized cuts and image segmentation", equation 2.
    """
    inside = mask.ravel()
    if inside.all() or not inside.any():
        return 0.0
    unit = unit_vectors(features).reshape(len(inside), -1)
    counts = _count_similar(unit, [~inside, inside], TAU)
    outer, inner = counts[~inside].sum(axis=0), counts[inside].sum(axis=0)  # edges to outside, to inside
    return float(1 - outer[1] / max(outer.sum(), 1) - inner[0] / max(inner.sum(), 1))


def _count_similar(vectors: Features, groups: list[NDArray[np.bool_]], above: float) -> NDArray[np.int64]:
    """Count for each vector [patches, D] those of each group with a larger product: [patches, groups]."""
    counts = []
    for start in range(0, len(vectors), CHUNK):
        similar = vectors[start : start + CHUNK] @ vectors.T > above
        counts.append(np.stack([np.count_nonzero(similar[:, group], axis=1) for group in groups], axis=-1))
    return np.concatenate(counts)


def _cut(flat: Features, tau: float) -> NDArray[np.float64]:
    """Return the vector that cuts the patch graph, [patches]; zeros if all or no patches are connected."""
    unit = unit_vectors(flat)
    weights = np.where(unit @ unit.T > tau, 1.0, FAINT)
    return np.zeros(len(flat)) if weights.min() == weights.max() else second_eigenvector(weights)


def second_eigenvector(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Solve (D - W) y = lambda D y for the second smallest lambda: the normalized cut of a graph.

    With S = D^(-1/2) W D^(-1/2), y is D^(-1/2) z for the second largest eigenvector z of S. The largest
    eigenvector, D^(1/2) 1, is known and projected out, so that Lanczos iterations return z first. The edge
    weights W [nodes, nodes] are symmetric, with positive row sums D. The result [nodes] has unit length; its
    element of largest magnitude is positive.
    """
    degrees = weights.sum(axis=1)
    root = np.sqrt(degrees)
    eigenvector = None if len(weights) < _DENSE_BELOW else _lanczos(weights, root)
    if eigenvector is None:
        from scipy.linalg import eigh

        vector = eigh(np.diag(degrees) - weights, np.diag(degrees), subset_by_index=[1, 1])[1][:, 0]
    else:
        vector = eigenvector / root
    vector = vector / np.linalg.norm(vector)
    return vector * np.sign(vector[np.abs(vector).argmax()])


_DENSE_BELOW = 200  # nodes; the dense solver is faster there
_LEAST_GAP = 1e-7  # between eigenvalues; below, rounding decides the eigenvector


def _lanczos(weights: NDArray[np.float64], root: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Return the second largest eigenvector of S, or None if the solver does not converge."""
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    known = root / np.linalg.norm(root)

    def apply(vector: NDArray[np.float64]) -> NDArray[np.float64]:
        vector = vector.ravel() - known * (known @ vector.ravel())
        image = (weights @ (vector / root)) / root
        return image - known * (known @ image)

    start = np.random.default_rng(0).standard_normal(len(weights))
    operator = LinearOperator(weights.shape, matvec=apply, dtype=np.float64)
    try:
        values, vectors = eigsh(operator, k=2, which="LA", v0=start - known * (known @ start), tol=1e-9)
    except ArpackNoConvergence:
        return None
    return vectors[:, 1] if values[1] - values[0] > _LEAST_GAP else None


def _side_of_extreme(cut: NDArray[np.float64], background_in_corners: bool = False) -> Discovery:
    """Return the component of the patch of largest magnitude on the side of a cut that holds the object.

    NaN marks patches outside of the graph. With `background_in_corners`, a side that holds three corners of
    the image or more is the background, and the other side the object.
    """
    inside = ~np.isnan(cut)
    strength = np.where(inside, np.abs(cut), 0)
    above = cut > np.nanmean(cut)  # cells outside of the graph are not
    foreground = above == above.flat[strength.argmax()]
    if background_in_corners and foreground[[0, 0, -1, -1], [0, -1, 0, -1]].sum() >= 3:
        foreground = ~foreground
    foreground &= inside & (strength > 0)
    row, column = divmod(int(np.where(foreground, strength, -1).argmax()), cut.shape[1])
    return Discovery(component_at(foreground, row, column), (row, column))


class Placement(NamedTuple):
    """Position of a patch grid on an image."""

    image: tuple[int, int]  # height and width of the image in pixels
    covered: tuple[int, int]  # pixels that the grid covers from the top left corner, padding included

    def mask(self, on_grid: Mask) -> Mask:
        """Enlarge a mask [rows, columns] to pixels by nearest: [height, width]."""
        height, width = self.image
        return enlarge(on_grid, self.covered)[..., :height, :width]

    def box(self, on_grid: Mask) -> Box | None:
        """Return the box around a mask [rows, columns] in pixels of the image; None if it is empty."""
        return bounding_box(self.mask(on_grid)) if on_grid.any() else None


def key_features(keys: NDArray[np.floating], prefix: int, grid: tuple[int, int]) -> Features:
    """Concatenate the patch keys of all heads: [heads, tokens, d] -> float32 [rows, columns, heads * d]."""
    patches = keys[:, prefix:].astype(np.float32).transpose(1, 0, 2)  # [patches, heads, d]
    return patches.reshape(*grid, -1)


def last_keys(predictor: "AttentionPredictor") -> Features:
    """Return the keys of the last block, of the image set last: float32 [rows, columns, D]."""
    return key_features(predictor.keys(), predictor.prefix_tokens, predictor.grid)


def set_resized(predictor: "AttentionPredictor", image: NDArray[np.uint8]) -> Placement:
    """Encode an image, resized by the predictor; the grid covers the image exactly."""
    predictor.set_image(image)
    return Placement(predictor.image_size, predictor.image_size)


def set_padded(predictor: "AttentionPredictor", image: NDArray[np.uint8]) -> Placement:
    """Encode an image at its own size, padded at the right and bottom to whole patches.

    The padding has the model's mean color, which normalization turns into 0, as in LOST and TokenCut. The
    predictor has resize='native', which keeps whole patches.
    """
    (height, width), side = image.shape[:2], predictor.patch_size
    covered = -(-height // side) * side, -(-width // side) * side
    fed = np.empty((*covered, 3), dtype=np.uint8)
    fed[:] = np.rint(255 * np.array(predictor.model.mean)).astype(np.uint8)
    fed[:height, :width] = image
    predictor.set_image(fed)
    return Placement((height, width), covered)
