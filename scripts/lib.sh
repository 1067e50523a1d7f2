# Shared by the scripts of this folder, which source it: the package list, and how to install, configure and
# build. It changes to the root of the checkout.

cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

# Debian 12's and Ubuntu 24.04's names. The one place that lists them.
build_packages=(
  g++ cmake ninja-build pkg-config git
  libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev
  libhwy-dev libopenblas-pthread-dev libpng-dev libjs-chart.js
)
# Fast small matrix products, for x86 alone; elsewhere OpenBLAS does them.
[ "$(uname -m)" != x86_64 ] || build_packages+=(libxsmm-dev)
test_packages=(libgtest-dev libgmock-dev librapidcheck-dev libopenmpi-dev openmpi-bin python3 python3-numpy)
# A browser for the report's page. Ubuntu has it only as a snap, which a container cannot run: there that test is
# skipped, and says so.
[ "$(. /etc/os-release && echo "$ID")" != debian ] || test_packages+=(chromium chromium-driver)
format_packages=(clang-format-14)
fuzz_packages=(clang-14 libclang-rt-14-dev llvm-14)

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# require_packages NAME...: installs those that are missing, or says how and stops.
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
    # With a terminal sudo may ask for the password; without one only a sudo that does not ask is any use.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      printf 'Packages are missing and this user may not install them. Run this as root, then %s again:\n\n' "$0"
      printf '  apt-get update && apt-get install -y --no-install-recommends %s\n' "${missing[*]}"
      exit 1
    fi
  fi
  say "Installing ${missing[*]}"
  # `env` because sudo does not pass on the environment.
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get update -q ||
    fail "apt-get update failed: is the network reachable?"
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
}

# A GPU is worth building for where both its driver and the toolkit are.
have_cuda() { command -v nvcc >/dev/null && nvidia-smi -L 2>/dev/null | grep -q GPU; }

# Compilers take up to a gigabyte each: as many at once as cores and memory allow.
build_jobs() {
  local cores memory_gib
  cores=$(nproc)
  memory_gib=$(awk '/MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
  [ "$memory_gib" -ge 1 ] || memory_gib=1
  echo $((cores < memory_gib ? cores : memory_gib))
}

# build PRESET FOLDER [CMAKE ARGUMENT...]: everything, or what build_targets names.
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

# The machine's own program: with CUDA where that is of use, without it elsewhere, unless the caller says.
default_preset() { if have_cuda; then echo cuda; else echo cpu; fi; }
