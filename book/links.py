"""Whether a site holds together on a disk: links inside lead somewhere, and nothing comes from elsewhere."""

from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {
    ("img", "src"),
    ("script", "src"),
    ("source", "src"),
    ("video", "src"),
    ("iframe", "src"),
    ("link", "href"),
}
"""Attributes whose address a browser loads by itself."""
NOT_LOADED = {"canonical", "alternate", "license"}


@dataclass
class Page(HTMLParser):
    """What a page can be led to by, and where it leads."""

    ids: set[str] = field(default_factory=set)
    leads: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what an element is called and where it leads."""
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        for name in ("href", "src"):
            if name in given and not given[name].startswith(("data:", "mailto:", "javascript:")):
                loaded = (tag, name) in LOADED and given.get("rel") not in NOT_LOADED
                (self.loads if loaded else self.leads).append(given[name])


def read(file: Path) -> Page:
    """A page of the site."""
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def wrong(site: Path) -> list[str]:
    """What does not hold: links inside that lead nowhere, and what is loaded from another machine."""
    pages = {file: read(file) for file in sorted(site.rglob("*.html"))}
    found = []
    for file, page in pages.items():
        where = file.relative_to(site)
        found += [f"{where} loads {address}" for address in page.loads if urlsplit(address).netloc]
        for address in (*page.leads, *page.loads):
            if said := _astray(address, file, pages):
                found.append(f"{where} leads to {address}: {said}")
    return found


def _astray(address: str, file: Path, pages: dict[Path, Page]) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return None
    target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
    if not target.is_file():
        return "no such file"
    known = pages.get(target)
    if parts.fragment and known and unquote(parts.fragment) not in known.ids:
        return "no such place on that page"
    return None
