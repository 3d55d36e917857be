"""Pictures on their way into the page: any file gives a right result or one clear sentence."""

import base64

import numpy as np
import pytest
from PIL import Image

from dino_model import photographs


def _pixels_of_screen(page) -> np.ndarray:
    """The picture on the stage, as the browser decoded it, at most 60 pixels wide: [height, width, 3]."""
    data, width, height = page.evaluate(
        """async () => {
          const photo = document.querySelector(".lab-stage img");
          await photo.decode();
          const canvas = document.createElement("canvas");
          const scale = Math.min(1, 60 / photo.naturalWidth);
          canvas.width = Math.round(photo.naturalWidth * scale);
          canvas.height = Math.round(photo.naturalHeight * scale);
          const context = canvas.getContext("2d");
          context.drawImage(photo, 0, 0, canvas.width, canvas.height);
          const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
          return [[...data], canvas.width, canvas.height];
        }"""
    )
    return np.array(data, np.uint8).reshape(height, width, 4)[..., :3]


def _alert(page) -> str:
    alert = page.locator("#messages")
    return alert.inner_text() if alert.is_visible() else ""


def _is_one_sentence(text: str) -> bool:
    return text.endswith(".") and "/" not in text and "Traceback" not in text


def test_uploaded_picture_shows_its_heads_at_its_own_shape(page, lab, picture):
    lab.send(page, picture("tall.png", 160, 480))
    state = lab.state(page)
    assert (state["rows"], state["columns"]) == (42, 14)
    box = page.locator(".lab-stage").bounding_box()
    assert box["height"] / box["width"] == pytest.approx(3, rel=0.02)
    assert page.locator(".lab-tile").count() == 6
    lab.screenshot(page, "portrait")


def test_second_picture_replaces_the_first_and_its_pins(page, lab, picture):
    lab.send(page, picture("first.png", seed=1))
    page.locator(".lab-stage").click(position=lab.centre(page, 2, 2))
    first = lab.maps(page)
    lab.send(page, picture("second.png", seed=2))
    assert lab.state(page)["pins"] == []
    assert lab.state(page)["name"] == "second.png"
    assert not np.allclose(first, lab.maps(page))


def test_examples_are_one_click_away(page, lab):
    page.get_by_role("button", name="Sheep").click()
    page.wait_for_function("() => document.querySelector('.explore').tab.encoding.name === 'sheep'")
    height, width = photographs.picture("sheep").shape[:2]
    assert (lab.state(page)["width"], lab.state(page)["height"]) == (width, height)


@pytest.mark.parametrize("way", ["drop", "paste"])
def test_picture_can_be_dropped_and_pasted(page, lab, picture, way):
    content = base64.b64encode(picture("by_hand.png").read_bytes()).decode()
    page.evaluate(
        """([content, way]) => {
          const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
          const data = new DataTransfer();
          data.items.add(new File([bytes], "by_hand.png", { type: "image/png" }));
          const event = way === "drop"
            ? new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true })
            : new ClipboardEvent("paste", { clipboardData: data, bubbles: true, cancelable: true });
          document.querySelector(".lab-stage").dispatchEvent(event);
        }""",
        [content, way],
    )
    page.wait_for_function("() => document.querySelector('.explore').tab.encoding.name === 'by_hand.png'")


def test_every_kind_of_picture_file_looks_right(page, lab, tmp_path):
    ramp = np.repeat(np.linspace(0, 255, 60).astype(np.uint8)[None], 40, axis=0)  # dark left, light right
    files = {
        "grey.png": Image.fromarray(ramp),
        "sixteen_bit.png": Image.fromarray(ramp.astype(np.uint16) * 257),
        "cmyk.jpg": Image.fromarray(ramp).convert("CMYK"),
        "palette.gif": Image.fromarray(ramp).convert("P"),
        "huge.jpg": Image.fromarray(ramp).resize((6000, 4000)),
    }
    for name, image in files.items():
        image.save(tmp_path / name)
        lab.send(page, tmp_path / name)
        assert _alert(page) == ""
        assert lab.state(page)["name"] == name
        pixels = _pixels_of_screen(page).astype(int)
        assert pixels[:, :3].mean() < 25, name
        assert pixels[:, -3:].mean() > 230, name
        assert np.abs(pixels - pixels.mean(axis=2, keepdims=True)).mean() < 3, f"{name} is not grey"
    assert (lab.state(page)["width"], lab.state(page)["height"]) == (6000, 4000)


def test_transparency_lies_on_white_and_rotation_is_applied(page, lab, tmp_path):
    clear = np.zeros((40, 60, 4), np.uint8)
    Image.fromarray(clear).save(tmp_path / "clear.png")
    lab.send(page, tmp_path / "clear.png")
    assert _pixels_of_screen(page).min() == 255

    lying = Image.fromarray(np.zeros((40, 60, 3), np.uint8))
    exif = lying.getexif()
    exif[0x0112] = 6
    lying.save(tmp_path / "rotated.jpg", exif=exif)
    lab.send(page, tmp_path / "rotated.jpg")
    assert (lab.state(page)["width"], lab.state(page)["height"]) == (40, 60)


def test_animation_shows_its_first_frame(page, lab, tmp_path):
    frames = [Image.new("RGB", (50, 50), color) for color in ("red", "lime", "blue")]
    frames[0].save(tmp_path / "moving.gif", save_all=True, append_images=frames[1:], duration=50)
    lab.send(page, tmp_path / "moving.gif")
    red, green, blue = _pixels_of_screen(page).reshape(-1, 3).mean(axis=0)
    assert red > 200
    assert green < 60
    assert blue < 60


def test_blank_and_single_pixel_pictures_have_maps(page, lab, tmp_path):
    for name, size in (("blank.png", (64, 64)), ("dot.png", (1, 1))):
        Image.new("RGB", size, "white").save(tmp_path / name)
        lab.send(page, tmp_path / name)
        assert _alert(page) == ""
        assert lab.state(page)["name"] == name
        assert np.isfinite(lab.maps(page)).all()


def test_bad_files_get_one_sentence_and_the_server_lives_on(page, lab, picture, tmp_path):
    whole = picture("whole.jpg", 400, 300).read_bytes()
    files = {
        "cut_short.jpg": whole[: len(whole) // 3],
        "text.png": b"this is no picture",
        "empty.png": b"",
        "script.svg": b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        lab.send(page, tmp_path / name)
        assert _is_one_sentence(_alert(page)), (name, _alert(page))
        assert lab.state(page)["name"] == "kitten"  # what was there stays
    lab.screenshot(page, "bad_file")
    lab.send(page, picture("good.png"))
    assert _alert(page) == ""
    assert lab.state(page)["name"] == "good.png"


def test_pixel_bomb_and_ribbon_are_refused_in_words(page, lab, tmp_path):
    Image.new("1", (9000, 9000)).save(tmp_path / "bomb.png")
    lab.send(page, tmp_path / "bomb.png")
    assert _is_one_sentence(_alert(page))
    assert "too large" in _alert(page)
    Image.new("RGB", (5000, 20)).save(tmp_path / "ribbon.png")
    lab.send(page, tmp_path / "ribbon.png")
    assert _is_one_sentence(_alert(page))
    assert "choose a lower resolution or crop it" in _alert(page)


@pytest.mark.parametrize("title", ["Explore", "Video"])
def test_too_large_a_file_is_refused_in_words_before_it_is_sent(page, tmp_path, title):
    page.get_by_role("tab", name=title).click()
    sent = []
    page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    (tmp_path / "heavy.png").write_bytes(bytes(27_000_000))
    page.set_input_files("#header .lab-choose input", tmp_path / "heavy.png")
    alert = page.locator("#messages")
    alert.wait_for()
    assert alert.inner_text() == "heavy.png has 27 MB, more than the 25 MB allowed: choose a smaller file."
    assert not [url for url in sent if "api/photos" in url or "api/clips" in url]
    assert page.locator("#header .lab-choose input").evaluate("({ files }) => files.length") == 0


def test_markup_in_a_file_name_stays_text(page, lab, picture):
    lab.send(page, picture("<img src=x onerror=boom()>.png"))
    assert page.locator("img[src=x]").count() == 0
    with page.expect_download() as waiting:
        page.locator("[data-download='mask.png']").click()
    assert waiting.value.suggested_filename.replace("-", "").replace("_", "").replace(".", "").isalnum()


def test_two_visitors_do_not_see_each_others_pictures(open_page, lab, picture):
    one, other = open_page(), open_page()
    lab.send(one, picture("of_one.png", seed=3))
    lab.send(other, picture("of_other.png", seed=4))
    assert lab.state(one)["name"] == "of_one.png"
    assert lab.state(other)["name"] == "of_other.png"
    assert lab.state(one)["token"] != lab.state(other)["token"]
    assert not np.allclose(lab.maps(one), lab.maps(other))
    for page in (one, other):  # going on with one's own picture
        lab.pick(page, "Resolution, short side", "336")
    assert lab.state(one)["name"] == "of_one.png"
    assert lab.state(other)["name"] == "of_other.png"
