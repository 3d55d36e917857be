"""The tabs of the page, one module each, in the order of `TABS`.

Contract of a tab
- app/tabs/NAME.py has `TITLE`, `USES` and `build(page)`, called once inside `gr.Tab(TITLE, id=NAME)`. `USES`
  names what the tab takes of "image", "model" and "size"; the others are disabled while it is open.
- `build` fills two columns: `with work():` its views, and `with inspector():` its controls.
- A view that shows the image of the header is appended to `page.views`: the page sends it the value of
  every new image, model and resolution. A handler that depends on that image listens to the view's `shown`
  event, which fires only while the view is visible. A tab that encodes the image by a model of its own
  listens to `page.image_signal(ELEM_ID).shown`. `page.link(NAME, dropdown)` keeps a choice in the address.
- An output has one event, so that the newest request is shown last: another choice that it depends on calls
  `viewOf(ELEM_ID).showAgain()`, which emits "shown" again.
- `page.encode(image, model, size)` checks the values of `page.image`, `page.model` and `page.size`.
- Every handler can be called by anybody with any JSON: check each argument, raise `LabError` with one
  sentence. No path, model or address is taken from a value; images and encodings are looked up by name or
  token.
- Handlers that run a model are wrapped: `page.in_turn(handler)`, with `**HEAVY`; others have `**LIGHT`.
- What needs no Python has `fn=None, js=…`: `viewOf("ELEM_ID")` in such a script is the view's instance.
"""

from types import ModuleType

from app.tabs import class_map, compare, explore, learn, match, segment, training, video

TABS: dict[str, ModuleType] = {
    "explore": explore,
    "segment": segment,
    "compare": compare,
    "match": match,
    "class-map": class_map,
    "video": video,
    "training": training,
    "learn": learn,
}
"""Tabs by the name in the address of the page."""
