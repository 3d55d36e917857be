"""One set of labels for the masks of a command: all of them decide what their values mean."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from dino_model.data.tables import read_lines
from dino_model.runtime.ahead import load_ahead
from dino_model.runtime.errors import pluralize
from segmentation.labels import VOID, DataError, Labels, palette
from segmentation.mask_files import NO_COLOR, NO_VALUE, Space, StoredMask, is_gray, read_mask

Scope = Literal["set", "image"]
"""Masks that share labels: all of them, as of a folder or a video, or those of one image."""

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable"),
    *("dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
"""Names of labels 1 to 20."""
_VOC = (palette().astype(np.int64) @ [1 << 16, 1 << 8, 1]).tolist()  # color of each label
_WIDE_VOID = 65535  # of ids above 255
_PALETTE = "pass --palette index if the indices are the labels, or --palette color if the colors are"
_CVAT_LINE = re.compile(r"\s*(.+?):(\d+),(\d+),(\d+):.*")
_KEPT_BYTES = 200_000_000  # of decoded masks of a clip


class NamedClass(NamedTuple):
    """A class of a list: its name, and the color of its masks if the list has it."""

    name: str
    color: int | None = None


VOC_LIST = tuple(map(NamedClass, ("background", *VOC_CLASSES), _VOC))


@dataclass(frozen=True)
class MaskRules:
    """Options of the user about masks, those of `MaskOptions`.

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
    """Mapping of the values of masks to labels. By default the values are the labels.

    Attributes:
        space: Whether labels are given to values (also ids) or to colors.
        values: The value or color of each label from 0 on; None for none.
        names: Of the labels from 0 on, as far as they are known.
        void: Values or colors that are void.
        white: Value of the 1 of one-bit masks.
        threshold: Least value of the object, if masks have one.
    """

    space: Space = "value"
    values: tuple[int | None, ...] = tuple(range(VOID))
    names: tuple[str, ...] = ()
    void: tuple[int, ...] = (VOID,)
    white: int = 1
    threshold: int | None = None

    @cached_property
    def _labels(self) -> dict[int, int]:
        pairs = reversed([*enumerate(self.values)])  # of equal values the first label counts
        return {value: label for label, value in pairs if value is not None} | dict.fromkeys(self.void, VOID)

    def find(self, mask: StoredMask) -> dict[int, int]:
        """Return the label of each stored value of a mask; raises DataError for one that has no label."""
        labels = dict[int, int]()
        for value, key in sorted(mask.keys(self.space, self.white).items()):
            if value == mask.no_data and key != self.values[0]:
                labels[value] = VOID
                continue
            if key not in self._labels:
                text = f"#{key:06x}" if self.space == "color" else str(key)
                shown = "a color, but others are not" if key == NO_VALUE else f"{text}, which has no label"
                raise DataError(
                    f"the mask {mask.path} has {shown}: add it to --classes, or pass --ignore '{text}' or "
                    f"--background '{text}', for voc --palette index; {self.describe()[:200]}"
                )
            labels[value] = self._labels[key]
        return labels

    def apply(self, mask: StoredMask) -> Labels:
        """Convert a mask to labels [height, width]; raises DataError for a value that has no label."""
        labels = self.find(mask)
        if all(value == label for value, label in labels.items()) and mask.values.dtype == np.uint8:
            return mask.values
        stored, numbers = [*labels], np.array([*labels.values()], np.uint8)
        if mask.values.dtype == np.uint8:
            table = np.zeros(VOID + 1, np.uint8)
            table[stored] = numbers
            return np.asarray(cv2.LUT(mask.values, table), np.uint8)
        return numbers[np.searchsorted(stored, mask.values)]

    @property
    def _numbered(self) -> dict[int, int]:
        """Values by label, of labels that are not their values; -1 is a background without a value."""
        pairs = enumerate(self.values)
        return {label: value for label, value in pairs if value is not None and value not in (label, -1)}

    @property
    def is_numbered(self) -> bool:
        """Whether some label is not the value."""
        return bool(self._numbered)

    def show(self, value: int) -> str:
        """Return a color or id in words: `#ff0000`, or `id 900`."""
        return f"#{value:06x}" if self.space == "color" else f"id {value}"

    def name(self, label: int) -> str:
        """Return the name of a label."""
        if label < len(self.names):
            return self.names[label]
        if self.is_numbered and 0 < label < len(self.values) and (value := self.values[label]) is not None:
            return self.show(value)
        return "background" if label == 0 else f"class {label}"

    def describe(self) -> str:
        """Describe in one sentence how masks are read."""
        if self.threshold is not None:
            return f"masks: values from {self.threshold} on are one object"
        if not self.is_numbered:
            return "masks: values are labels"
        pairs = (f"{label} = {self.show(value)}" for label, value in self._numbered.items())
        return f"labels of masks: {', '.join(pairs)}"


class MaskReader:
    """Reads the masks of one command: all are looked at first, then one rule holds for them.

    0 is background, 255 void, others are objects or classes. Palette indices, gray values and ids of 16 bits
    are the labels. Colors, and ids above 255, are numbered in ascending order; black or 0 is the background.
    Colors that are all of PASCAL VOC's palette keep its labels. The order of the files has no influence.

    Attributes:
        label_set: How values become labels, for all masks; None if each image has its own.
        damaged: Files that cannot be read, with the reasons.
    """

    def __init__(
        self,
        files: Iterable[Path] = (),
        rules: MaskRules | None = None,
        *,
        scope: Scope = "set",
        label_set: LabelSet | None = None,
        load: Callable[[Path], StoredMask] | None = None,
        keep: bool = False,
    ) -> None:
        """Look at `files`.

        Args:
            files: Mask files, or images for `load`.
            rules: What the user said.
            scope: Masks that share labels.
            label_set: An earlier decision, which is repeated.
            load: Reads a mask; default: a mask file.
            keep: Keep decoded masks in memory, as far as they fit, and look at one after the other: for a
                caller in a thread.

        Raises:
            DataError: Values that have no certain meaning; the message names the option that gives it.
        """
        self.rules, self.label_set = rules or MaskRules(), label_set
        if self.rules.threshold is not None and (
            self.rules.ignore or self.rules.background or self.rules.palette or len(self.rules.classes) > 2
        ):
            raise DataError(
                "--binary and --threshold make one object of all values: leave out --ignore, --background, "
                "--palette and --classes of more than two, or leave out --binary and --threshold"
            )
        threshold = label_set.threshold if label_set else self.rules.threshold
        if threshold is not None and not 1 <= threshold <= 65535:
            raise DataError(f"--threshold is {threshold}; expected a value of masks from 1 on, such as 128")
        self._load = load or (lambda file: read_mask(file, threshold))
        self._kept: dict[Path, StoredMask] | None = {} if keep else None
        looked = (map if keep else load_ahead)(self._look, dict.fromkeys(files))
        looks = sorted(looked, key=lambda mask: mask.path)
        self._white, self._own = _white([mask for mask in looks if not mask.error]), dict[Path, LabelSet]()
        if label_set or scope == "image":
            looks = [self._check(mask) for mask in looks]
        self.masks = {mask.path: mask for mask in looks if not mask.error}
        self.damaged = {mask.path: mask.error for mask in looks if mask.error}
        if self.damaged and not self.masks:
            raise DataError(next(iter(self.damaged.values())))
        if not label_set:
            masks = [*self.masks.values()]
            _check_values(masks, self.rules, "value" if scope == "image" else _space(masks, self.rules))
            self.label_set = decide(masks, self.rules) if scope == "set" else None

    def read(self, file: Path) -> Labels:
        """Read a mask: uint8 [height, width]; raises DataError for a file that cannot be used."""
        mask = (self._kept or {}).get(file) or self._load(file)
        return self._set_of(mask).apply(mask)

    def labels(self, file: Path) -> set[int]:
        """Return the labels in a mask, background and void included; its pixels are not read again."""
        mask = self.masks[file] if file in self.masks else self._load(file)
        return {*self._set_of(mask).find(mask).values()}

    def palette(self) -> NDArray[np.uint8]:
        """Return colors of labels 0 to 255, those of the files if they have some: [256, 3]."""
        colors, own = palette(), dict[int, int | None]()
        if self.label_set and self.label_set.space == "color":
            own = dict(enumerate(self.label_set.values))
        elif not self.label_set or not self.label_set.is_numbered:
            for mask in self.masks.values():
                if any(color != index * 0x10101 for index, color in enumerate(mask.colors[:VOID])):
                    own = {**{index: color for index, color in enumerate(mask.colors) if color > 0}, **own}
        for label, value in own.items():
            if value is not None:
                colors[label] = [value >> 16, value >> 8 & 255, value & 255]
        return colors

    def describe(self) -> str:
        """Describe in one sentence how the masks are read."""
        return self.label_set.describe() if self.label_set else "masks: labels of each image by itself"

    def table(self) -> str:
        """Format class, color or id, files and pixels of each label, and what is dropped."""
        files, pixels = Counter[tuple[int, str, str]](), Counter[tuple[int, str, str]]()
        missing = Counter[int]()
        for mask in self.masks.values():
            rows = Counter[tuple[int, str, str]]()
            for value, label in self._set_of(mask).find(mask).items():
                rows[self._row(mask, value, label)] += mask.counts[value]
                missing[value] += label == VOID and value == mask.no_data
            files.update(rows.keys())
            pixels.update(rows)
        lines = [f"{self.describe()[:300]}; {pluralize(len(self.masks) + len(self.damaged), 'file')}"]
        if files:
            lines.append(f"{'label':>5}  {'class':<24}{'value':<10}{'files':>7}{'pixels':>14}")
        lines += [
            f"{row[0]:>5}  {row[1]:<24}{row[2]:<10}{files[row]:>7}{pixels[row]:>14,}" for row in sorted(files)
        ]
        lines += [
            f"void: {value}, declared as missing data by {pluralize(count, 'file')}"
            for value, count in sorted((+missing).items())
        ]
        lines += [f"dropped: {reason}" for reason in list(self.damaged.values())[:5]]
        lines += [f"dropped: {len(self.damaged) - 5} more"] * (len(self.damaged) > 5)
        return "\n".join(lines)

    def _row(self, mask: StoredMask, value: int, label: int) -> tuple[int, str, str]:
        """Return label, class, and color or id of a value of a mask."""
        if not (label_set := self.label_set):
            return (
                (label, "void" if label else "background", "") if label in (0, VOID) else (1, "objects", "")
            )
        shown, key = "", mask.keys(label_set.space, label_set.white)[value]
        if label_set.space == "color" or label_set.is_numbered:
            shown = label_set.show(key) if key >= 0 else ""
        elif mask.kind == "palette" and mask.colors[value] not in (NO_COLOR, value * 0x10101):
            shown = f"#{mask.colors[value]:06x}"
        return label, "void" if label == VOID else label_set.name(label), shown

    def _look(self, file: Path) -> StoredMask:
        try:
            mask = self._load(file)
        except DataError as error:
            return StoredMask(file, error=str(error))
        if self._kept is not None and mask.values.size * len(self._kept) < _KEPT_BYTES:
            self._kept[file] = mask
        return replace(mask, values=np.zeros((0, 0), np.uint8))

    def _check(self, mask: StoredMask) -> StoredMask:
        """Add the error of a mask whose values have no labels."""
        try:
            self._set_of(mask).find(mask)
        except DataError as error:
            return replace(mask, error=mask.error or str(error))
        return mask

    def _set_of(self, mask: StoredMask) -> LabelSet:
        """Return the labels of a mask; of a palette mask alone by index, unless its colors are VOC's."""
        if self.label_set:
            return self.label_set
        if mask.path not in self._own:
            by = self.rules.palette or ("color" if _has_voc_colors(mask) else "index")
            rules = replace(self.rules, palette=by, background=self.rules.background or "0")
            self._own[mask.path] = replace(decide([mask], rules), white=self._white)
        return self._own[mask.path]


def decide(masks: Sequence[StoredMask], rules: MaskRules) -> LabelSet:
    """Decide what the values of masks mean, from a look at all of them.

    Raises:
        DataError: See `MaskReader`.
    """
    classes = rules.classes
    names = tuple(each.name for each in classes)
    if rules.threshold is not None:
        return LabelSet(names=names or ("background", "foreground"), threshold=rules.threshold)
    space = _space(masks, rules)
    found, void = {*_count_keys(masks, space)}, {_parse(text, space, classes) for text in rules.ignore}
    background: int | None = None
    if rules.background != "none" or space == "value":
        background = _parse((rules.background or "0").replace("none", "0"), space, classes)
    if space == "value":
        if classes and classes[0].color not in (None, 0):
            raise DataError(
                f"the masks have values, and the first class {names[0]!r} has the color "
                f"#{classes[0].color:06x}, not black: pass --classes with names in the order of the values"
            )
        if classes and not rules.background and names[0].casefold() != "background":
            raise DataError(
                f"the first class {names[0]!r} would be label 0, the background: begin --classes with "
                "`background`, or pass --background none if 0 is a class"
            )
        is_byte = max(found - void - {background}, default=0) <= VOID
        void |= {VOID if is_byte else _WIDE_VOID} - {background}
    else:
        _check_colors(masks, classes)
        listed = {each.color for each in classes}
        is_voc = (listed or found - void) <= {*_VOC}
        void |= {NO_COLOR} | ({_VOC[VOID]} - listed - {background} if is_voc else set())
    rest = sorted(found - void - {background})
    if space == "value" and max(rest, default=0) <= VOID and 0 not in rest:
        values: tuple[int | None, ...] = (background, *range(1, len(names) or VOID))
    elif space == "color" and classes:  # the first may be the background
        if classes[0].color != background and names[0].casefold() != "background":
            first = next((each for each in classes if each.color == background), None)
            first = first or NamedClass("background", background)
            classes = (first, *(each for each in classes if each is not first))
        classes = tuple(each for each in classes if each.color not in void)
        values, names = tuple(each.color for each in classes), tuple(each.name for each in classes)
    elif names:
        raise DataError(
            "--classes cannot name ids above 255, or an id 0: save labels up to 254, background 0"
        )
    elif space == "color" and background == 0 and {*rest} <= {*_VOC}:
        values = tuple(_VOC[:VOID])
    else:
        values = (background, *rest)
    if len(values) > VOID:
        raise DataError(
            f"the masks have {len(rest)} {'colors' if space == 'color' else 'ids'}, the first file is "
            f"{masks[0].path}; expected at most {VOID - 1}. Pass --threshold 128 if they are one object"
        )
    label_set = LabelSet(space, values, names, tuple(sorted(void)), _white(masks))
    for mask in masks:
        label_set.find(mask)
    return label_set


def _space(masks: Sequence[StoredMask], rules: MaskRules) -> Space:
    """Return whether colors or values are meant; of palettes the indices, unless options name colors.

    Raises:
        DataError: An index has several colors in the palettes.
    """
    if any(mask.is_colored for mask in masks):
        return "color"
    texts = (rules.background or "", *rules.ignore)
    has_colors = any(each.color is not None for each in rules.classes)
    is_named = has_colors or any("#" in text for text in texts)
    used = {color for mask in masks if mask.kind == "palette" for color in mask.keys("color").values()}
    first: dict[int, StoredMask] = {}
    for mask in masks:
        for index, color in mask.own_colors().items():
            for text in texts if not (rules.palette or has_colors) else ():
                if "#" in text and _parse(text, "color", ()) not in used:
                    raise DataError(f"no mask has the color {text}: {_PALETTE}")
            if rules.palette or is_named:
                return "value" if rules.palette == "index" else "color"
            other = first.setdefault(index, mask)
            if other.colors[index] != color:
                raise DataError(
                    f"index {index} is #{other.colors[index]:06x} in {other.path} and #{color:06x} in "
                    f"{mask.path}: {_PALETTE}"
                )
    return "value"


def _white(masks: Sequence[StoredMask]) -> int:
    """Return the value of the 1 of one-bit masks: 255 beside masks of bytes."""
    return VOID if any(mask.kind != "bits" for mask in masks) else 1


def _has_voc_colors(mask: StoredMask) -> bool:
    """Return whether a palette has colors of VOC only, and black."""
    used = {*mask.keys("color").values()} if mask.kind == "palette" else set()
    return 0 in used and used <= {*_VOC, NO_COLOR}


def _count_keys(masks: Sequence[StoredMask], space: Space) -> Counter[int]:
    """Count the pixels of each color or value over all masks, without missing data."""
    counts, white = Counter[int](), _white(masks)
    for mask in masks:
        for value, key in mask.keys(space, white).items():
            if value != mask.no_data:
                counts[key] += mask.counts[value]
    return counts


def _check_values(masks: Sequence[StoredMask], rules: MaskRules, space: Space) -> None:
    """Refuse colors and ids without a background, palettes with another one, and masks of 0 and 255 only."""
    if not masks or rules.threshold is not None or rules.background:
        return
    space = "color" if any(mask.is_colored for mask in masks) else space
    counts = _count_keys(masks, space)
    void = {_parse(text, space, rules.classes) for text in rules.ignore}
    if 0 in void:
        raise DataError(
            "--ignore has 0, the background: pass --background with the value or color that it has in these "
            "masks, such as --background 3, or --background none if every label is a class"
        )
    top = max(counts, default=0)
    bits = next((mask for mask in masks if mask.kind == "bits" and 1 in mask.counts), None)
    bytewise = [mask for mask in masks if mask.kind != "bits"]
    if space == "value" and bits and bytewise and not void and not _count_keys(bytewise, space)[VOID]:
        raise DataError(
            f"the mask {bits.path} has one bit, whose white is 255 beside masks of bytes, and no other has "
            "255: pass --ignore 255 if it is void, --binary if all masks have one object, or save it as bytes"
        )
    for mask in masks:
        if mask.no_data == 0 and 0 in mask.counts and 0 not in void:
            raise DataError(
                f"the mask {mask.path} declares 0 as missing data: pass --background 0 or --ignore 0"
            )
    if space == "value" and top in (VOID, _WIDE_VOID) and not void and {*counts} <= {0, top}:
        raise DataError(
            f"the masks have 0 and {top} only, the first is {masks[0].path}, and {top} is void: pass "
            f"--binary if it marks an object, or --ignore {top} if it is void"
        )
    binary = next((mask for mask in masks if {*mask.keys("value")} == {0, VOID}), None)
    if space == "value" and binary and not void and top == VOID:
        raise DataError(
            f"the mask {binary.path} has 0 and 255 only, others have labels, and 255 is void: pass "
            "--ignore 255 if it is void, --binary if all masks have one object, or save it with its label"
        )
    is_one = space == "value" and len(counts.keys() - {VOID}) < 2 and top <= VOID
    if 0 not in counts and not rules.classes and not is_one:
        ((most, _),) = counts.most_common(1)
        text, zero = (f"#{most:06x}", "black, the color") if space == "color" else (most, "0, the value")
        raise DataError(
            f"no pixel of the masks is {zero} of the background: pass --background '{text}', which most "
            f"pixels are, or --background none if every {zero.split()[-1]} is a class"
        )
    if space == "color" or top > VOID:
        return
    if void:
        return
    for mask in masks:
        color = mask.colors[0] if mask.kind == "palette" and 0 in mask.counts and not rules.palette else 0
        if not is_gray(color) and not _has_voc_colors(mask):
            raise DataError(f"index 0 of {mask.path} is #{color:06x}, unusual for a background: {_PALETTE}")


def _check_colors(masks: Sequence[StoredMask], classes: Sequence[NamedClass]) -> None:
    """Refuse gray values beside colors, and classes without colors."""
    for mask in masks:
        if mask.kind == "gray" and (odd := sorted(mask.counts.keys() - {0, VOID})):
            raise DataError(f"the mask {mask.path} is gray with the value {odd[0]}, but others are in color")
    for each in classes:
        if each.color is None:
            raise DataError(
                f"the masks have colors, and the class {each.name!r} has none: write `{each.name} #rrggbb`"
            )


def _parse(text: str, space: Space, classes: Sequence[NamedClass]) -> int:
    """Parse a color, a value, which is also a gray color, or the name of a class."""
    if re.fullmatch(r"#[0-9a-fA-F]{6}", text):
        color = int(text[1:], 16)
        if space == "value" and not is_gray(color):
            raise DataError(f"{text} is a color, and the masks have values; pass a value, such as 3")
        return color if space == "color" else color & 255
    if re.fullmatch(r"-?\d+", text):
        return int(text) * 0x10101 if space == "color" else int(text)
    for number, each in enumerate(classes):
        if each.name == text:
            return number if space == "value" or each.color is None else each.color
    raise DataError(f"{text!r} is no label: expected a value, #rrggbb, or the name of a class")


def read_classes(file: Path) -> tuple[NamedClass, ...]:
    """Read names of classes, one a line: `name`, `name #rrggbb`, or a line of CVAT's labelmap.txt.

    The file `voc` stands for the names and colors of PASCAL VOC.

    Raises:
        DataError: No name, a repeated one, or a line that may have numbers of classes or other columns.
    """
    if file == Path("voc"):
        return VOC_LIST
    classes = []
    for line in read_lines(file):
        if line.lstrip().startswith("#"):
            continue
        if match := _CVAT_LINE.fullmatch(line):
            red, green, blue = (int(match[place]) for place in (2, 3, 4))
            classes.append(NamedClass(match[1], red << 16 | green << 8 | blue))
        elif match := re.fullmatch(r"\s*(.+?)\s+#([0-9a-fA-F]{6})\s*", line):
            classes.append(NamedClass(match[1], int(match[2], 16)))
        elif re.fullmatch(r"\s*\d+([\s:=;].*)?|.*[\s:=;]\d+\s*|.*,.*", line):
            raise DataError(
                f"{file} has the line {line.strip()!r}; expected `name` or `name #rrggbb`, without numbers "
                "and commas, in the order of the labels from 0 on"
            )
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
        DataError: A class that the labelmap lacks, or one of the labelmap that the user's classes lack; or a
            labelmap of another form.
    """
    files = (each / "labelmap.txt" for each in (folder, folder.resolve().parent))
    file = next((file for file in files if file.is_file()), None)
    if file is None or any(each.color is not None for each in classes):
        return classes
    if not all(line.startswith("#") or _CVAT_LINE.fullmatch(line) for line in read_lines(file)):
        if classes:
            return classes
        raise DataError(f"{file} is not CVAT's, with lines `name:red,green,blue::`: pass --classes FILE")
    return match_names(file, read_classes(file), classes) if classes else read_classes(file)


def match_names(
    file: Path, known: Sequence[NamedClass], classes: Sequence[NamedClass]
) -> tuple[NamedClass, ...]:
    """Return the known classes of a file in the order of the user's; raises DataError if names differ."""
    by_name = {each.name: each for each in known}
    if differing := {each.name for each in classes} ^ by_name.keys():
        raise DataError(
            f"--classes and {file} differ in {', '.join(sorted(differing))[:200]}; the file has "
            f"{', '.join(by_name)[:200]}"
        )
    return tuple(by_name[each.name] for each in classes)


def read_labels(path: Path) -> Labels:
    """Read one mask file, see `MaskReader`: uint8 [height, width]; raises DataError."""
    return MaskReader([path]).read(path)
