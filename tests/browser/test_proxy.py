"""Downloads and clients' addresses behind the nginx configuration of deploy/, with TLS."""

import os
import re
import shutil
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.browser import actions
from tests.ports import free_port

CONFIGURATION = Path(__file__).parents[2] / "deploy" / "nginx.conf"
NGINX = shutil.which("nginx") or "/usr/sbin/nginx"


@pytest.fixture(scope="module")
def proxy(address: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of nginx with the shipped server block in front of the page; only names and ports differ."""
    if not Path(NGINX).is_file():
        (pytest.fail if os.environ.get("DINO_REQUIRE_BROWSER") == "1" else pytest.skip)(
            "no nginx: make browser"
        )
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    names = ["-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "chain.pem"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run(command, check=True, capture_output=True)
    server = CONFIGURATION.read_text()
    for pattern, text in {
        r"listen 443": f"listen 127.0.0.1:{port}",
        r"/etc/\S+/fullchain\.pem": str(folder / "chain.pem"),
        r"/etc/\S+/privkey\.pem": str(folder / "key.pem"),
        r"http://127\.0\.0\.1:7860": address.rstrip("/"),
    }.items():
        server, count = re.subn(pattern, text, server)
        assert count == 1
    temporary = "".join(
        f"{kind}_temp_path {folder};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    user = "user root;\n" if os.getuid() == 0 else ""  # who may read the folder
    (folder / "nginx.conf").write_text(
        f"{user}events {{}}\nhttp {{\naccess_log off;\n{temporary}{server}}}\n"
    )
    started = ["-p", folder, "-c", folder / "nginx.conf", "-e", folder / "log", "-g", "daemon off; pid pid;"]
    process = subprocess.Popen([NGINX, *started])
    yield f"https://localhost:{port}/"
    process.terminate()
    process.wait(10)
    assert "[emerg]" not in (folder / "log").read_text()


def test_download_behind_the_shipped_proxy_is_saved(proxy, open_page):
    page = open_page(address=proxy, ignore_https_errors=True)
    name, content = actions.export(page, "explore", "figure.png")
    assert name == "sheep-figure.png"
    assert actions.image(content).shape[1] == 2100
    assert urlsplit(page.url).scheme == "https"  # the page did not navigate away


def test_page_behind_the_shipped_proxy_has_links_of_the_proxy(proxy):
    context = ssl._create_unverified_context()
    with urllib.request.urlopen(f"{proxy}config", context=context) as response:
        assert f'"root":"{proxy.rstrip("/")}"' in response.read().decode().replace(" ", "")
