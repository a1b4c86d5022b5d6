#!/bin/sh
# Makes a store with the newest DuckDB and opens it with each; then writes to it again and opens it again.
# Usage: run.sh PYTHON_NEW PYTHON_155 PYTHON_132. Each is a Python with duckdb of that version; the first has the
# dependencies of sqlrag as well.
set -eu
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for step in "" --upsert; do
    "$1" "$here/make_store.py" "$folder" $step
    for python in "$@"; do
        "$python" "$here/open_store.py" "$folder"
    done
done
