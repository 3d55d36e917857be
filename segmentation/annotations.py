"""One set of labels for the masks of a command: what their values mean is decided from all files at once."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.data.tables import read_lines
from dino_model.runtime.ahead import load_ahead
from dino_model.runtime.errors import pluralize
from segmentation.labels import VOID, DataError, Labels, palette
from segmentation.mask_files import StoredMask, count_values, load_mask

Scope = Literal["folder", "clip", "image"]
"""Masks that share labels: all of a folder, those of a video, or those of one image."""

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable"),
    *("dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""Names of labels 1 to 20."""
_VOC = (palette().astype(np.int64) @ [1 << 16, 1 << 8, 1]).tolist()  # color of each label
_WIDE_VOID = 65535  # of ids above 255
_KEPT_BYTES = 200_000_000  # of decoded masks of a clip


class NamedClass(NamedTuple):
    """A class of a list: its name, and the color of its masks if the list has it."""

    name: str
    color: int | None = None


VOC_LIST = (
    NamedClass("background", 0),
    *(NamedClass(name, color) for name, color in zip(VOC_CLASSES, _VOC[1:], strict=False)),
)


@dataclass(frozen=True)
class MaskRules:
    """What the user said about masks; the options of `MaskOptions`.

    Attributes:
        threshold: Least value of object 1, if masks have one object.
        ignore: Names, colors (#rrggbb) or values that are void.
        background: Color or value of the background; `none` if every color is a class.
        palette: Whether indices or colors are meant where palettes differ.
        classes: Names of the labels from 0 on.
    """

    threshold: int | None = None
    ignore: tuple[str, ...] = ()
    background: str | None = None
    palette: Literal["index", "color"] | None = None
    classes: tuple[NamedClass, ...] = ()


@dataclass(frozen=True)
class LabelSet:
    """How the values of masks become labels.

    Attributes:
        kind: The values are labels, or colors or ids that are numbered, or one object from a threshold on.
        values: Color or id of each label from 0 on, -1 for none; empty for labels.
        names: Of the labels from 0 on, as far as they are known.
        void: Values that are void.
        background: Value of the background, where the kind is labels.
        white: Label of the 1 of one-bit masks.
        threshold: Least value of the object.
    """

    kind: Literal["labels", "colors", "ids", "object"] = "labels"
    values: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    void: tuple[int, ...] = (VOID,)
    background: int = 0
    white: int = 1
    threshold: int | None = None

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "LabelSet":
        """Return the set with these fields, as `vars` gives them."""
        values: Any = {key: tuple(each) if isinstance(each, list) else each for key, each in fields.items()}
        return cls(**values)

    def apply(self, stored: StoredMask, name: str) -> Labels:
        """Convert a mask to labels [height, width]; raises DataError, with `name`, for an unknown value."""
        match self.kind:
            case "object":
                return (stored.values >= (self.threshold or 1)).astype(np.uint8)
            case "labels":
                values = stored.values
                if stored.is_color:
                    if (values & 255 != values >> 16).any():
                        raise DataError(f"the mask {name} is in color, but others are not")
                    values = values & 255
                values = values * np.int64(self.white) if stored.is_bits else values
                known = np.arange(VOID + 1)
                known[0] = self.background
                return self._find(values, known, name)
            case "colors":
                return self._find(stored.rgb(), np.array(self.values), name)
            case "ids":
                return self._find(stored.values, np.array(self.values), name)

    def _find(self, values: NDArray[Any], known: NDArray[Any], name: str) -> Labels:
        all_values = np.array([*self.void, *known.tolist()], np.int64)  # void first: it wins
        numbers = np.array([*[VOID] * len(self.void), *range(len(known))], np.uint8)
        unique, first = np.unique(all_values, return_index=True)
        if values.dtype == np.uint8:
            table = np.full(256, -1, np.int64)
            inside = (unique >= 0) & (unique < 256)
            table[unique[inside]] = numbers[first[inside]]
            if (table >= 0).all():
                return np.asarray(cv2.LUT(values, table.astype(np.uint8)), np.uint8)
        places = np.searchsorted(unique, values).clip(max=len(unique) - 1)
        if (wrong := values[unique[places] != values]).size:
            value = self.show(int(wrong.flat[0]))
            raise DataError(f"the mask {name} has {value}, which has no label; {self.describe()[:200]}")
        labels: Labels = numbers[first[places]]
        return labels

    def show(self, value: int) -> str:
        """Return a value in words: `#ff0000`, `id 900`, or `the value 7`."""
        return {"colors": f"#{value:06x}", "ids": f"id {value}"}.get(self.kind, f"the value {value}")

    def name(self, label: int) -> str:
        """Return the name of a label."""
        if label < len(self.names):
            return self.names[label]
        if 0 < label < len(self.values):
            return self.show(self.values[label])
        return "background" if label == 0 else f"class {label}"

    def describe(self) -> str:
        """Describe in one sentence how masks are read."""
        match self.kind:
            case "object":
                return f"masks: values from {self.threshold} on are one object"
            case "labels":
                return "masks: values are labels"
            case "colors" | "ids":
                pairs = [
                    f"{number} = {self.show(value)}"
                    for number, value in enumerate(self.values)
                    if value >= 0 and (number or value)
                ]
                return f"{self.kind} of masks: {', '.join(pairs)}"


class _File(NamedTuple):
    """What a look at a mask file gives."""

    path: Path
    kind: str
    counts: dict[int, int]  # pixels of each value
    colors: tuple[int, ...]
    error: str = ""

    @property
    def is_bits(self) -> bool:
        """Whether the values are bits."""
        return self.kind == "bits"

    @property
    def is_gray(self) -> bool:
        """Whether the values are gray values or ids."""
        return self.kind == "gray"

    @property
    def is_palette(self) -> bool:
        """Whether the values are indices of a palette."""
        return self.kind == "palette"

    @property
    def is_color(self) -> bool:
        """Whether the values are colors."""
        return self.kind == "color"

    def rgb(self) -> dict[int, int]:
        """Return the pixels of each color 0xRRGGBB."""
        if self.kind == "color":
            return self.counts
        scale = {"bits": 0xFFFFFF, "gray": 0x10101}.get(self.kind, 0)
        result = Counter[int]()
        for value, count in self.counts.items():
            index_color = self.colors[value] if value < len(self.colors) else 0
            result[value * scale if scale else index_color] += count
        return result


class MaskReader:
    """Reads the mask files of one command: all are looked at first, then one rule holds for them.

    0 is background, 255 void, others are objects or classes. Palette indices, gray values and ids of 16 bits
    are the labels. Colors, and ids above 255, are numbered in ascending order; black or 0 is the background.
    Colors that are all of PASCAL VOC's palette keep its labels. The order of the files has no influence.

    Attributes:
        label_set: How values become labels; of one image for the scope "image", so None.
        damaged: Files that cannot be read, with the reasons.
    """

    def __init__(
        self,
        files: Sequence[Path] = (),
        rules: MaskRules | None = None,
        *,
        scope: Scope = "folder",
        label_set: LabelSet | None = None,
        keep: bool = False,
    ) -> None:
        """Look at `files`; `label_set` repeats an earlier decision, `keep` keeps decoded masks.

        Raises:
            DataError: Values that have no certain meaning; the message names the option that gives it.
        """
        self.rules, self.scope = rules or MaskRules(), scope
        if label_set:
            self.rules = replace(self.rules, threshold=label_set.threshold)
        threshold = self.rules.threshold
        if threshold is not None and not 1 <= threshold <= 65535:
            raise DataError(f"--threshold is {threshold}; expected a value of masks from 1 on, such as 128")
        self._kept: dict[Path, StoredMask] | None = {} if keep else None
        self.files = sorted(load_ahead(self._look, dict.fromkeys(files)))
        if scope == "image" and not label_set:
            self.files = [self._decide_alone(file) for file in self.files]
        self.damaged = {file.path: file.error for file in self.files if file.error}
        usable = [file for file in self.files if not file.error]
        if self.damaged and not usable:
            raise DataError(next(iter(self.damaged.values())))
        if usable and not label_set:
            self._check_values(usable)
        self.label_set = label_set or (None if scope == "image" else decide(usable, self.rules))

    def read(self, path: Path) -> Labels:
        """Read a mask: uint8 [height, width]; raises DataError for a file that cannot be used."""
        stored = (self._kept or {}).get(path) or load_mask(path, lossy=self.rules.threshold is not None)
        return self._set_of(path, stored).apply(stored, str(path))

    def name(self, label: int) -> str:
        """Return the name of a label."""
        return (self.label_set or LabelSet()).name(label)

    def palette(self, folder: Path | None = None) -> NDArray[np.uint8]:
        """Return colors of labels 0 to 255, those of the files (of a folder) if they have some: [256, 3]."""
        colors = palette()
        own: dict[int, int] = {}
        if self.label_set and self.label_set.kind == "colors":
            own = dict(enumerate(self.label_set.values))
        elif self.label_set is None or self.label_set.kind == "labels":
            for file in self.files:
                if file.is_palette and folder in (None, file.path.parent):
                    pairs = enumerate(file.colors)
                    if any(color != index * 0x10101 for index, color in enumerate(file.colors[:VOID])):
                        own = {index: color for index, color in pairs if color > 0} | own
        for label, value in own.items():
            if value >= 0:
                colors[label] = [value >> 16, value >> 8 & 255, value & 255]
        return colors

    def describe(self) -> str:
        """Describe in one sentence how the masks are read."""
        return self.label_set.describe() if self.label_set else "masks: labels of each image by itself"

    def summary(self) -> dict[str, Any]:
        """Return the decision and the counts as JSON types: what `table` prints."""
        rows = [
            {"label": label, "class": name, "value": value, "files": files, "pixels": pixels}
            for (label, name, value), (files, pixels) in self._count().items()
        ]
        dropped = {path.name: reason for path, reason in self.damaged.items()}
        return {"masks": self.describe(), "classes": rows, "dropped": dropped}

    def table(self) -> str:
        """Format class, color or id, files and pixels of each label, and what is dropped."""
        summary = self.summary()
        lines = [f"{summary['masks'][:300]}; {pluralize(len(self.files), 'file')}"]
        if summary["classes"]:
            lines.append(f"{'label':>5}  {'class':<24}{'value':<10}{'files':>7}{'pixels':>14}")
        lines += [
            f"{row['label']:>5}  {row['class']:<24}{row['value']:<10}{row['files']:>7}{row['pixels']:>14,}"
            for row in summary["classes"]
        ]
        lines += [f"dropped: {reason}" for reason in list(self.damaged.values())[:5]]
        lines += [f"dropped: {len(self.damaged) - 5} more"] * (len(self.damaged) > 5)
        return "\n".join(lines)

    def _look(self, path: Path) -> _File:
        try:
            stored = load_mask(path, lossy=self.rules.threshold is not None)
        except DataError as error:
            return _File(path, "gray", {}, (), str(error))
        if self._kept is not None and stored.values.size * len(self._kept) < _KEPT_BYTES:
            self._kept[path] = stored
        return _File(path, stored.kind, count_values(stored.values), stored.colors)

    def _decide_alone(self, file: _File) -> _File:
        if not file.error:
            try:
                decide([file], self._rules_of(file))
            except DataError as error:
                return file._replace(error=str(error))
        return file

    def _rules_of(self, file: _File) -> MaskRules:
        """Rules for one image: its indices count, unless its colors are VOC's; it may lack background."""
        palette = self.rules.palette or ("color" if _has_voc_colors(file) else "index")
        return replace(self.rules, palette=palette, background=self.rules.background or "0")

    def _set_of(self, path: Path, stored: StoredMask) -> LabelSet:
        if self.label_set:
            return self.label_set
        file = _File(path, stored.kind, count_values(stored.values), stored.colors)
        label_set = decide([file], self._rules_of(file))
        return replace(label_set, white=self._white)

    @property
    def _white(self) -> int:
        """Value of the 1 of one-bit masks: beside masks of bytes 255."""
        return VOID if any(not file.is_bits for file in self.files) else 1

    def _check_values(self, files: Sequence[_File]) -> None:
        """Refuse colors and ids without a background, and masks of 0 and 255 only."""
        if self.rules.threshold is not None or self.rules.background or self.rules.ignore:
            return
        if _are_colored(files) or _are_wide(files):
            if not self.rules.classes:
                _check_zero(files)
        elif self.scope != "clip":
            if self.rules.palette is None and not any(each.color for each in self.rules.classes):
                _check_index_zero(files)
            values = {_gray(file, value, self._white) for file in files for value in file.counts}
            if VOID in values and values <= {0, VOID}:
                raise DataError(
                    f"the masks have 0 and 255 only, the first is {files[0].path}, and 255 is void: pass "
                    "--binary if 255 marks an object"
                )

    def _count(self) -> dict[tuple[int, str, str], tuple[int, int]]:
        """Count files and pixels of each label, with its name and value."""
        found: dict[tuple[int, str, str], tuple[int, int]] = {}
        for file in self.files:
            if file.error:
                continue
            rows: dict[tuple[int, str, str], int] = {}
            for value, pixels in (file.rgb() if self._is_by_color else file.counts).items():
                key = self._row(file, value)
                rows[key] = rows.get(key, 0) + pixels
            for key, pixels in rows.items():
                files, before = found.get(key, (0, 0))
                found[key] = files + 1, before + pixels
        return dict(sorted(found.items()))

    @property
    def _is_by_color(self) -> bool:
        return self.label_set is not None and self.label_set.kind == "colors"

    def _row(self, file: _File, value: int) -> tuple[int, str, str]:
        if self.label_set is None:
            gray = value if _are_colored(self.files) else _gray(file, value, self._white)
            is_void = gray == VOID and not (file.is_color and _are_colored(self.files))
            label = 0 if gray == 0 else VOID if is_void else 1
            return label, {0: "background", 1: "objects", VOID: "void"}[label], ""
        label_set = self.label_set
        bits_or_gray = {True: "bits", False: "gray"}[file.is_bits]
        kind: Any = "color" if self._is_by_color else bits_or_gray
        wide = value if self._is_by_color else _gray(file, value, 1)
        one = StoredMask(np.array([[wide]], np.int64), kind)
        try:
            label = int(label_set.apply(one, file.path.name)[0, 0])
        except DataError:
            return 256, "unknown: dropped", label_set.show(value)
        name = "void" if label == VOID else label_set.name(label)
        if label_set.kind == "labels" and file.is_palette and file.colors[value] not in (-1, value * 0x10101):
            return label, name, f"#{file.colors[value]:06x}"
        return (
            label,
            name,
            label_set.show(value) if label_set.kind in ("colors", "ids") and value >= 0 else "",
        )


def decide(files: Sequence[_File], rules: MaskRules) -> LabelSet:
    """Decide what the values of masks mean, from a look at all of them.

    Raises:
        DataError: See `MaskReader`.
    """
    if rules.threshold is not None:
        names = tuple(each.name for each in rules.classes[:2]) or ("background", "foreground")
        return LabelSet("object", threshold=rules.threshold, names=names)
    has_palettes = any(_is_color(file, value) for file in files for value in file.counts)
    lists_colors = any(each.color is not None for each in rules.classes)
    wanted = rules.palette == "color" or lists_colors or (rules.background or "").startswith("#")
    if _are_colored(files) or (has_palettes and wanted and rules.palette != "index") or _differ(files, rules):
        return _decide_colors(files, rules)
    return _decide_values(files, rules)


def _are_colored(files: Sequence[_File]) -> bool:
    """Return whether some file has colors that are not gray, and no palette."""
    colors = {color for file in files if file.is_color for color in file.counts}
    return any(color != (color & 255) * 0x10101 for color in colors)


def _has_voc_colors(file: _File) -> bool:
    """Return whether a palette has colors of VOC only, and black."""
    used = {file.colors[value] for value in file.counts if file.colors}
    return 0 in used and used <= {*_VOC, -1}


def _are_wide(files: Sequence[_File]) -> bool:
    """Return whether some file has ids above 255."""
    return any(value > VOID for file in files if file.is_gray for value in file.counts)


def _gray(file: _File, value: int, white: int) -> int:
    """Return the gray value of a stored value."""
    return value & 255 if file.is_color else value * white if file.is_bits else value


def _check_index_zero(files: Sequence[_File]) -> None:
    """Refuse palettes whose index 0, the background, has a color that is neither gray nor VOC's."""
    for file in (each for each in files if not _has_voc_colors(each)):
        color = file.colors[0] if file.is_palette and 0 in file.counts else 0
        if color != (color & 255) * 0x10101:
            raise DataError(
                f"index 0 of {file.path} is #{color:06x}, which is unusual for a background: pass --palette "
                "index if the indices are the labels, or --palette color if the colors are"
            )


def _check_zero(files: Sequence[_File]) -> None:
    """Refuse colors or ids without black or 0."""
    counts, is_colored = Counter[int](), not _are_wide(files)
    for file in files:
        counts.update(file.rgb() if is_colored else file.counts)
    if 0 not in counts:
        (most, _), *_ = counts.most_common(1)
        text = f"#{most:06x}" if is_colored else str(most)
        zero = "black, the color" if is_colored else "0, the id"
        raise DataError(
            f"no pixel of the masks is {zero} of the background, and most are {text}: pass "
            f"--background '{text}', or --background none if every {zero.split()[-1]} is a class"
        )


def _is_color(file: _File, value: int) -> bool:
    """Return whether a palette gives a value a color: neither black nor the gray that a gray mask has."""
    if file.kind != "palette" or value in (0, VOID) or value >= len(file.colors):
        return False
    return file.colors[value] not in (0, value * 0x10101)


def _differ(files: Sequence[_File], rules: MaskRules) -> bool:
    """Return whether palettes of a folder exchange the indices of their colors.

    Raises:
        DataError: There are more colors than indices, so either may be meant.
    """
    if rules.palette is not None:
        return rules.palette == "color"
    by_folder: dict[Path, dict[int, dict[int, Path]]] = {}
    for file in sorted(files):
        for value in file.counts:
            if _is_color(file, value):
                colors = by_folder.setdefault(file.path.parent, {}).setdefault(value, {})
                colors.setdefault(file.colors[value], file.path)
    for by_index in by_folder.values():
        if not (several := [index for index, colors in by_index.items() if len(colors) > 1]):
            continue
        distinct = {color for colors in by_index.values() for color in colors}
        if len(distinct) <= len(by_index):
            return True
        index = several[0]
        (first, a), (second, b), *_ = by_index[index].items()
        raise DataError(
            f"index {index} is #{first:06x} in {a} and #{second:06x} in {b.name}: pass --palette index if the"
            " indices are the labels, or --palette color if the colors are"
        )
    return False


def _decide_colors(files: Sequence[_File], rules: MaskRules) -> LabelSet:
    for file in files:
        if file.is_gray and (odd := [value for value in file.counts if value not in (0, VOID)]):
            raise DataError(f"the mask {file.path} is gray with the value {odd[0]}, but others are in color")
    found = {color for file in files for color in file.rgb()}
    listed = [each for each in rules.classes if each.color is not None]
    if rules.classes and len(listed) < len(rules.classes):
        names = {each.name: each for each in VOC_LIST}
        if not found <= set(_VOC) or not {each.name for each in rules.classes} <= set(names):
            missing = next(each.name for each in rules.classes if each.color is None)
            raise DataError(
                f"the masks have colors, and the class {missing!r} has none: write `{missing} #rrggbb`"
            )
        listed = [names[each.name] for each in rules.classes]
    void = {-1, *(_value_of(text, rules.classes) for text in rules.ignore)}
    background = 0 if rules.background is None else -1
    if rules.background and rules.background != "none":
        background = _value_of(rules.background, rules.classes)
    if listed:
        is_first = listed[0].color == background or listed[0].name.casefold() == "background"
        chosen = [each for each in listed if each.color not in void][is_first:]
        background = listed[0].color or 0 if is_first else background
        values = (background, *(each.color or 0 for each in chosen))
        names_of = (listed[0].name if is_first else "background", *(each.name for each in chosen))
        if rules.classes == VOC_LIST:
            values, void = tuple(_VOC[:VOID]), {*void, _VOC[VOID]}
        if unknown := found - {*values, *void, 0}:
            color = min(unknown)
            owner = next(file.path for file in sorted(files) if color in file.rgb())
            raise DataError(
                f"{owner} has the color #{color:06x}, which the classes lack: add a line `name #{color:06x}`,"
                f" or pass --ignore '#{color:06x}'"
            )
        return LabelSet("colors", values, names_of, tuple(sorted(void)))
    if rules.background is None:
        _check_zero(files)
    if found <= {*_VOC, *void} and background == 0:
        return LabelSet("colors", tuple(_VOC[:VOID]), (), tuple(sorted({*void, _VOC[VOID]})))
    rest = sorted(found - {background} - void)
    if len(rest) >= VOID:
        raise DataError(
            f"the masks have {len(rest)} colors, the first file is {files[0].path}; expected at most "
            f"{VOID - 1}. Pass --threshold 128 if they are one object with antialiased edges"
        )
    return LabelSet("colors", (background, *rest), (), tuple(sorted(void)))


def _decide_values(files: Sequence[_File], rules: MaskRules) -> LabelSet:
    white = VOID if any(not file.is_bits for file in files) else 1
    found = set[int]()
    for file in files:
        found |= {_gray(file, value, white) for value in file.counts}
    void = {_gray_of(text, rules.classes) for text in rules.ignore}
    background = 0
    if rules.background and rules.background != "none":
        background = _gray_of(rules.background, rules.classes)
        if background and 0 in found - void:
            raise DataError(
                f"--background is {rules.background}, and the masks have 0, too: pass --ignore 0 if it is "
                "void"
            )
    labels = found - void - {background}
    if negative := sorted(value for value in labels if value < 0):
        value = negative[0]
        owner = next(file.path for file in sorted(files) if value in file.counts)
        raise DataError(
            f"the mask {owner} has the value {value}: pass --background {value} or --ignore {value}"
        )
    if max(labels, default=0) <= VOID:
        highest = max(labels - {VOID}, default=0)
        names = tuple(each.name for each in rules.classes)
        if names and len(names) <= highest and rules.classes != VOC_LIST:
            raise DataError(
                f"the masks have the label {highest}, and there are {len(names)} names for labels 0 to "
                f"{len(names) - 1}: expected one for each label, the background first"
            )
        return LabelSet("labels", (), names, tuple(sorted({VOID, *void})), background, white)
    void |= {_WIDE_VOID}
    ids = sorted(labels - void)
    if len(ids) >= VOID:
        raise DataError(f"the masks have {len(ids)} ids; expected at most {VOID - 1}")
    if rules.classes:
        raise DataError("the masks have ids above 255, which --classes cannot name: save labels up to 254")
    return LabelSet("ids", (background, *ids), (), tuple(sorted(void)))


def _gray_of(text: str, classes: Sequence[NamedClass]) -> int:
    """Parse as `_value_of`; a color is a gray value."""
    value = _value_of(text, classes)
    return value & 255 if text.startswith("#") else value


def _value_of(text: str, classes: Sequence[NamedClass]) -> int:
    """Parse a color, a value or the name of a class."""
    if re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        return int(text[1:], 16)
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    for number, each in enumerate(classes):
        if each.name == text:
            return number if each.color is None else each.color
    raise DataError(f"{text!r} is no label: expected a value, #rrggbb, or the name of a class")


def read_classes(file: Path) -> tuple[NamedClass, ...]:
    """Read names of classes, one a line: `name`, `name #rrggbb`, or a line of CVAT's labelmap.txt.

    Raises:
        DataError: No name, or a repeated one.
    """
    classes = []
    for line in read_lines(file):
        if line.lstrip().startswith("#"):
            continue
        if match := re.fullmatch(r"\s*(.+?):(\d+),(\d+),(\d+):.*", line):
            red, green, blue = (int(match[place]) for place in (2, 3, 4))
            classes.append(NamedClass(match[1], red << 16 | green << 8 | blue))
        elif match := re.fullmatch(r"\s*(.+?)\s+#([0-9a-fA-F]{6})\s*", line):
            classes.append(NamedClass(match[1], int(match[2], 16)))
        else:
            classes.append(NamedClass(line.strip()))
    names = Counter(each.name for each in classes)
    if not names or max(names.values()) > 1:
        raise DataError(
            f"{file} has {names.most_common(1)[0] if names else 'no name'}; expected each name once"
        )
    return tuple(classes)


def find_classes(folder: Path, classes: tuple[NamedClass, ...]) -> tuple[NamedClass, ...]:
    """Return the classes of a folder of masks: those of a labelmap.txt of CVAT in it or beside it.

    `classes`, the user's, are then matched by name, and give the order.

    Raises:
        DataError: A class that the labelmap lacks, or one of the labelmap that the user's classes lack.
    """
    files = [each / "labelmap.txt" for each in (folder, folder.resolve().parent)]
    labelmap = next((read_classes(file) for file in files if file.is_file()), ())
    if not labelmap or any(each.color is not None for each in classes):
        return classes
    if not classes:
        return labelmap
    known = {each.name: each for each in labelmap}
    if differing := {each.name for each in classes} ^ set(known):
        raise DataError(
            f"the classes and labelmap.txt of {folder} differ in {', '.join(sorted(differing))[:200]}; "
            f"labelmap.txt has {', '.join(known)[:200]}"
        )
    return tuple(known[each.name] for each in classes)


def read_labels(path: Path) -> Labels:
    """Read one mask file, see `MaskReader`: uint8 [height, width]; raises DataError."""
    reader = MaskReader([path], scope="clip")
    return reader.read(path)
