#!/bin/sh
# Write a static Hugging Face Space to an empty folder, ready to be committed and pushed there. Needs `npm ci`.
set -eu
[ $# -eq 1 ] || { echo "usage: deploy/static_space.sh FOLDER" >&2; exit 2; }
root="$(cd "$(dirname "$0")/.." && pwd)"
cd "$root"
case $1 in /*) folder=$1 ;; *) folder="$OLDPWD/$1" ;; esac
"${PYTHON:-python}" -m app.static_site "$folder"
cp "$root/deploy/static_space/README.md" "$folder/"
