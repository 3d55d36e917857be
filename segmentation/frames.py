"""Order of the frames of a video: the one rule that reads numbers in file names."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from dino_model.data.images import SUFFIXES
from segmentation.labels import DataError

_MONTHS = [
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
]
_MONTH = re.compile(
    rf"(?<![a-z])(?:{'|'.join(f'{name}|{name[:3]}' for name in _MONTHS)})(?=[\W_]*\d)", re.IGNORECASE
)
_CLOCK = re.compile(r"(?<!\d)(\d{1,2})((?:[.:_-]\d\d){1,2}[\s_-]*)([ap])\.?m(?![a-z])", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_DECIMAL = re.compile(r"(\d+)[.,](\d+)")
_DATE = re.compile(r"(?<!\d)(\d{1,2})\D{0,2}(\d{1,2})\D{0,2}((?:19|20)\d\d)(?!\d)")


class Name(NamedTuple):
    """A file name, divided into numbers and the texts around them."""

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    parts: tuple[tuple[int, ...], ...]
    """The numbers, with 1.2 as two numbers."""
    decimals: tuple[tuple[Fraction | int, ...], ...]
    """The numbers, with 1.2 as a decimal and 1.2.3 as three numbers."""


def frame_files(folder: Path) -> tuple[Path, ...]:
    """List the images of a folder in the order of the numbers in their names, see `order_names`.

    Raises:
        DataError: No such folder, no image, or names without one sensible order.
    """
    if not folder.is_dir():
        raise DataError(f"{folder} is no folder; pass a folder of frames such as 00000.jpg, 00001.jpg")
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    files = {entry.name: entry for entry in entries if entry.suffix.lower() in SUFFIXES}
    if not files:
        inside = ", ".join(entry.name for entry in entries if entry.is_dir())
        hint = f"; it has folders: {inside[:200]}. Pass one of them" if inside else ""
        raise DataError(f"{folder} holds no image{hint}")
    try:
        return tuple(files[name] for name in order_names(list(files)))
    except DataError as error:
        raise DataError(f"the frames of {folder} {error}") from None


def order_names(names: Sequence[str]) -> list[str]:
    """Order file names by all their numbers, compared from the left; without numbers, alphabetically.

    0.5 is a decimal. The name of a month and an hour with am or pm are numbers. A minus sign counts where it
    distinguishes names. Suffixes of files do not count.

    Raises:
        DataError: Two sensible orders differ, two names have the same numbers, or some names have none.
    """
    stems = [_spell_out(Path(name).stem) for name in names]
    numbered = [bool(re.search(r"\d", stem)) for stem in stems]
    if not any(numbered):
        return sorted(names)
    if not all(numbered):
        found = f"are {sum(numbered)} numbered files and {names[numbered.index(False)]} without a number"
        raise DataError(f"{found}; remove or number what is no frame")
    parsed = dict(zip(names, _parse(stems), strict=True))
    keys: dict[str, Any] = {name: (each.decimals, each.texts) for name, each in parsed.items()}
    parts = {name: (each.parts, each.texts) for name, each in parsed.items()}
    rivals: dict[str, Mapping[str, Any]] = {}
    if len(set(keys.values())) < len(names):
        keys = parts  # 1.1 and 1.10 are two numbers each
    elif not _are_decimals([parsed[name] for name in sorted(names, key=keys.__getitem__)]):
        rivals["with 1.2 as two numbers"] = parts
    rivals["by the text before the numbers"] = {
        name: [*zip(each.texts, (*keys[name][0], ()), strict=True)] for name, each in parsed.items()
    }
    by_stem = dict(zip(names, stems, strict=True))
    is_hexadecimal = _are_hexadecimal(stems)
    if is_hexadecimal:
        rivals["as hexadecimal numbers"] = {name: stem.casefold() for name, stem in by_stem.items()}
    order = sorted(names, key=keys.__getitem__)
    for title, rival in (rivals | _date_keys(by_stem, keys)).items():
        _check_rival(order, sorted(names, key=rival.__getitem__), title)
    for first, second in pairwise(order):
        if keys[first][0] == keys[second][0] and not is_hexadecimal:
            raise DataError(f"include {first} and {second}, two frames of one number; remove one")
    return order


def _check_rival(order: Sequence[str], rival: Sequence[str], title: str) -> None:
    """Raise DataError if another sensible order of names differs."""
    differing = (place for place, pair in enumerate(zip(order, rival, strict=True)) if len({*pair}) > 1)
    if (start := next(differing, None)) is not None:
        ours, theirs = (", ".join(each[start : start + 3]) for each in (order, rival))
        raise DataError(
            f"have two sensible orders: {ours} by the numbers from the left, or {theirs} {title}; rename them"
            " with one number, such as 00000.png"
        )


def _are_hexadecimal(stems: Sequence[str]) -> bool:
    """Return whether all names end with hexadecimal digits of one width, some of them letters."""
    matches = [re.fullmatch(r"(.*?)([0-9a-f]{2,})", stem.casefold()) for stem in stems]
    parts = [match.groups() for match in matches if match]
    digits = [digits for _, digits in parts]
    is_one_series = len(parts) == len(stems) and len({start for start, _ in parts}) == 1
    return is_one_series and len({*map(len, digits)}) == 1 and not all(text.isdecimal() for text in digits)


def _spell_out(stem: str) -> str:
    """Replace names of months by numbers, and hours with am or pm by those of 24 hours."""
    names = [name[:3] for name in _MONTHS]
    stem = _MONTH.sub(lambda match: f" {names.index(match[0][:3].lower()) + 1} ", stem)

    def hour(match: re.Match[str]) -> str:
        return f"{int(match[1]) % 12 + 12 * (match[3].lower() == 'p')}{match[2]}"

    return _CLOCK.sub(hour, stem)


def _parse(stems: Sequence[str]) -> Iterator[Name]:
    texts = [[text.casefold() for text in _NUMBER.split(stem)] for stem in stems]
    signed = set()
    for place in range(max(map(len, texts)) - 1):
        before = {each[place] for each in texts if place < len(each) - 1}
        if len(before) > 1 and len({text.rstrip("+-") for text in before}) == 1:
            signed.add(place)
    for stem, own_texts in zip(stems, texts, strict=True):
        plain = tuple(re.sub(r"[\W_]+", " ", text).strip() for text in own_texts)
        numbers = _NUMBER.findall(stem)
        is_minus = [place in signed and text.endswith("-") for place, text in enumerate(own_texts[:-1])]
        pairs = [(-1 if minus else 1, text) for minus, text in zip(is_minus, numbers, strict=True)]
        parts = tuple(tuple(sign * int(part) for part in re.split("[.,]", text)) for sign, text in pairs)
        values = [sign * _fraction(text) if _DECIMAL.fullmatch(text) else None for sign, text in pairs]
        decimals = (whole if value is None else (value,) for value, whole in zip(values, parts, strict=True))
        yield Name(plain, tuple(numbers), parts, tuple(decimals))


def _fraction(text: str) -> Fraction:
    return Fraction(text.replace(",", "."))


def _are_decimals(names: Sequence[Name]) -> bool:
    """Return whether numbers with a point must be decimals, given all names in the order of decimals.

    No computer writes 2.10 next to 2.9, but 0.04 next to 0.2, and evenly spaced times.
    """
    matches = [match for name in names for match in map(_DECIMAL.fullmatch, name.numbers) if match]
    digits = [match[2] for match in matches]
    if any(len(each) > 1 and each.endswith("0") for each in digits):
        return False
    if any(len(each) > 1 and each.startswith("0") for each in digits):
        return True
    values = [_fraction(match[0]) for match in matches]
    steps = [after - before for before, after in pairwise(values)]
    rounding = Fraction(2, 10 ** max(map(len, digits), default=0))
    return len(values) == len(names) > 2 and max(steps) - min(steps) <= rounding


def _date_keys(stems: Mapping[str, str], keys: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return keys that begin with a date whose year is last, by their title, if all names have one."""
    dates = {name: match for name, stem in stems.items() if (match := _DATE.search(stem))}
    found: dict[str, Mapping[str, Any]] = {}
    for title, day, month in (("as day, month, year", 1, 2), ("as month, day, year", 2, 1)):
        numbers = {name: [int(date[place]) for place in (3, month, day)] for name, date in dates.items()}
        if len(numbers) == len(stems) and all(0 < m <= 12 and 0 < d <= 31 for _, m, d in numbers.values()):
            found[title] = {name: (date, keys[name]) for name, date in numbers.items()}
    return found
