#!/usr/bin/env bash
# Installs a build into an empty folder and uses it from there, like another project and like a user.
# usage: run.sh BUILD_FOLDER SOURCE_FOLDER
set -euo pipefail
build=$1 source=$2
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT

cmake --install "$build" --prefix "$stage/usr" >"$stage/log" || { cat "$stage/log"; exit 1; }

# Uses installed files only: the examples see neither the sources nor the build folder.
cp -r "$source/examples" "$stage/examples"
cmake -G Ninja -S "$stage/examples" -B "$stage/build" -DCMAKE_PREFIX_PATH="$stage/usr" -DCMAKE_BUILD_TYPE=Release
cmake --build "$stage/build"
output=$("$stage/build/cpu")
echo "$output"
grep -q '21 visible pairs' <<<"$output"
[ "$(grep -o 'sees [0-9]* keys' <<<"$output" | tr -dc '0-9\n' | tr '\n' ' ')" = '1 2 3 1 2 3 4 5 ' ]
grep -q 'sums to 6.0' <<<"$output"
output=$("$stage/build/ranks")
echo "$output"
grep -q '524800 of 524800 visible pairs' <<<"$output"

# Linking the library brings in neither the benchmark's libraries nor MPI.
ldd "$stage/build/cpu"
! ldd "$stage/build/cpu" | grep -E 'png|toml|mpi|json' || { echo "the library links what only the benchmark may"; exit 1; }
[ "$(ls "$stage/usr/include/longspan" | tr '\n' ' ')" = 'attention.h base.h mask.h parallel.h ' ]

# The program runs from its installed location, outside any checkout.
cd "$stage"
"$stage/usr/bin/longspan" --version
help=$("$stage/usr/bin/longspan" --help)
grep -q Examples <<<"$help"

for file in share/man/man1/longspan.1 share/bash-completion/completions/longspan \
  share/zsh/site-functions/_longspan share/fish/vendor_completions.d/longspan.fish; do
  [ -s "$stage/usr/$file" ] || { echo "$file was not installed"; exit 1; }
done
