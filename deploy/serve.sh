#!/bin/sh
# Serve the page to other machines, as the environment says:
#   DINO_LAB_HOSTS    names that visitors type, separated by blanks (on a Hugging Face Space: SPACE_HOST)
#   DINO_LAB_FRAMES   origins that may show the page in a frame, separated by blanks
#   DINO_LAB_PROXIES  addresses or networks of proxies in front, separated by blanks (default: Docker's own networks,
#                     and on a Hugging Face Space its proxies)
#   DINO_LAB_AUTH     USER:PASSWORD lines, where a password is to be asked
set -eu
hosts="${DINO_LAB_HOSTS:-${SPACE_HOST:-localhost}}"
frames="${DINO_LAB_FRAMES:-}"
proxies="${DINO_LAB_PROXIES:-172.16.0.0/12 ${SPACE_HOST:+10.0.0.0/8}}"
# These are lists: they are meant to be split.
# shellcheck disable=SC2086
exec dino-lab --host 0.0.0.0 --port 7860 --no-downloads --allowed-hosts $hosts \
    --proxies $proxies ${frames:+--frame-ancestors $frames} "$@"
