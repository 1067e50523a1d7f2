#!/usr/bin/env bash
# Installs a build into an empty folder and uses it from there, as another project and as a user would.
# usage: run.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
build=$1 source=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

cmake --install "$build" --prefix "$stage/usr" >"$stage/log" || { cat "$stage/log"; exit 1; }

# Only what is installed: the consumer sees neither the sources nor the build folder.
cp -r "$source/examples/consumer" "$stage/consumer"
cmake -G Ninja -S "$stage/consumer" -B "$stage/consumer-build" -DCMAKE_PREFIX_PATH="$stage/usr" \
  -DCMAKE_BUILD_TYPE=Release
cmake --build "$stage/consumer-build"
output=$("$stage/consumer-build/consumer")
echo "$output"
grep -q '21 visible pairs' <<<"$output"
[ "$(grep -o 'sees [0-9]* keys' <<<"$output" | tr -dc '0-9\n' | tr '\n' ' ')" = '1 2 3 1 2 3 4 5 ' ]

# The program runs from where it was installed, outside of any checkout.
cd "$stage"
"$stage/usr/bin/longspan" --version
"$stage/usr/bin/longspan" --help | grep -q Examples

for file in share/man/man1/longspan.1 share/bash-completion/completions/longspan \
  share/zsh/site-functions/_longspan share/fish/vendor_completions.d/longspan.fish; do
  [ -s "$stage/usr/$file" ] || { echo "$file was not installed"; exit 1; }
done
