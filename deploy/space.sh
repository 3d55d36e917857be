#!/bin/sh
# Put what a Hugging Face Space needs into an empty folder, ready to be committed and pushed there.
set -eu
[ $# -eq 1 ] || { echo "usage: deploy/space.sh FOLDER" >&2; exit 2; }
[ ! -e "$1" ] || [ -z "$(ls -A "$1")" ] || { echo "error: $1 is not empty: name an empty folder" >&2; exit 1; }
root="$(cd "$(dirname "$0")/.." && pwd)"
mkdir -p "$1"
for part in pyproject.toml LICENSE constraints.txt deploy app dino_model segmentation training; do
    cp -R "$root/$part" "$1/"
done
cp "$root"/requirements*.txt "$1/"
cp "$root/deploy/space/README.md" "$root/deploy/space/space.py" "$1/"
find "$1" -name __pycache__ -type d -prune -exec rm -rf {} +
