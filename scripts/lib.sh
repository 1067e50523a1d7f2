# Shared by the scripts of this folder, which source it: the package list, and how to install, configure and
# build. It changes to the root of the checkout.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# The package names of Debian 12 and Ubuntu 24.04. Apart from the list of licences in python/CMakeLists.txt, they are listed only here.
build_packages=(
  g++ cmake ninja-build pkg-config git
  libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev
  libhwy-dev libopenblas-pthread-dev libsodium-dev libpng-dev zlib1g-dev libjs-chart.js
)
# Fast small matrix products, x86 only; elsewhere OpenBLAS computes them.
[ "$(uname -m)" != x86_64 ] || build_packages+=(libxsmm-dev)
test_packages=(libgtest-dev libgmock-dev librapidcheck-dev libboost-context-dev libopenmpi-dev openmpi-bin python3 python3-numpy python3-venv python3-dev)
# A browser to test the report's page. Ubuntu has it only as a snap, which a container cannot run; there the test is
# skipped with a message.
[ "$(. /etc/os-release && echo "$ID")" != debian ] || test_packages+=(chromium chromium-driver)
format_packages=(clang-format-14)
tidy_packages=(clang-tidy-14)
fuzz_packages=(clang-14 libclang-rt-14-dev llvm-14)

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# require_packages NAME...: installs missing packages, or prints how to do so and stops.
require_packages() {
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this machine has no apt; install the equivalents of: $*"
  local missing=() name
  for name in "$@"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    # On a terminal, sudo may ask for the password; otherwise it must work without one.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      printf 'Packages are missing and this user may not install them. Run this as root, then %s again:\n\n' "$0"
      printf '  apt-get update && apt-get install -y --no-install-recommends %s\n' "${missing[*]}"
      exit 1
    fi
  fi
  say "Installing ${missing[*]}"
  # `env` because sudo does not keep the environment.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q ||
    fail "apt-get update failed: is the network reachable?"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
}

# Building for a GPU makes sense only with both its driver and the toolkit.
# The list is not piped into grep -q, which leaves at the first of several GPUs and may so end nvidia-smi with an error.
have_cuda() { command -v nvcc >/dev/null && [[ $(nvidia-smi -L 2>/dev/null) == *GPU* ]]; }

# Each compiler needs up to a gigabyte, so the number of jobs is limited by cores and memory.
build_jobs() {
  local cores memory_gib
  cores=$(nproc)
  memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  [ "$memory_gib" -ge 1 ] || memory_gib=1
  echo $((cores < memory_gib ? cores : memory_gib))
}

# build PRESET FOLDER [CMAKE ARGUMENT...]: builds everything, or the targets in build_targets.
build_targets=()
build() {
  local preset=$1 folder=$2
  shift 2
  if command -v ccache >/dev/null; then
    export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
    export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}
  fi
  say "Building in $folder (preset $preset)"
  local log
  log=$(cmake --preset "$preset" -B "$folder" "$@" 2>&1) || { echo "$log"; fail "cmake could not configure"; }
  cmake --build "$folder" -j "$(build_jobs)" ${build_targets:+--target "${build_targets[@]}"} || fail "the build failed"
}

# python_environment NAME PIP_ARGUMENT...: a virtual environment in the user's cache folder, for all checkouts, in which pip was
# given these arguments once. Its file `complete` lists them, a call in a line; calls with others add to it. Prints the
# interpreter, or fails; what pip says goes to stderr.
python_environment() (
  folder=${XDG_CACHE_HOME:-$HOME/.cache}/longspan/$1
  shift
  mkdir -p "${folder%/*}" && exec {lock}>"$folder.lock" && flock "$lock"  # another checkout may be installing it
  [ -e "$folder/complete" ] || rm -rf "$folder"
  if ! grep -qxFs -e "$*" "$folder/complete"; then
    say "Installing $* into $folder" >&2
    { { [ -e "$folder/complete" ] || python3 -m venv "$folder"; } &&
      "$folder/bin/pip" install -q --disable-pip-version-check "$@" && echo "$*" >>"$folder/complete"; } >&2 || exit 1
  fi
  echo "$folder/bin/python"
)

python_version() { python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# An interpreter with PyTorch and pytest, some 5 GB, for the tests of the Python package. Prints its path, or nothing and the
# reason on stderr where it cannot be made; the tests then report `skipped`.
torch_python() {
  local name=torch-2.11-transformers-5-python-$(python_version)
  python_environment "$name" 'torch==2.11.*' 'transformers==5.*' accelerate numpy pytest ||
    { echo "PyTorch could not be installed; the tests of the Python package are skipped" >&2 && return; }
  # Its attention needs little of what it depends on for training.
  python_environment "$name" --no-deps torchtitan==0.3.0 spmd_types==0.2.3 'tyro==1.*' docstring_parser 'typeguard==4.*' >/dev/null ||
    echo "torchtitan could not be installed; its test is skipped" >&2
}

# The default preset of this machine: with CUDA if it can be used.
default_preset() { if have_cuda; then echo cuda; else echo cpu; fi; }
