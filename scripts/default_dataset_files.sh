#!/usr/bin/env bash
# Prints the files of the default data set, one a line, sorted: the C and C++ headers of a fixed
# list of packages that the build needs, and the licences that came with them. Which other
# packages are installed makes no difference; another version of one of these does.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/lib.sh"

# Kernel headers (linux-libc-dev) are left out: they change with every security update.
data_packages() {
  local gcc
  gcc=$(g++ -dumpversion | cut -d. -f1)
  printf '%s\n' "libstdc++-$gcc-dev" "libgcc-$gcc-dev" libc6-dev zlib1g-dev libyaml-cpp-dev \
    libspdlog-dev libfmt-dev libcli11-dev nlohmann-json3-dev catch2 libopenblas-pthread-dev \
    libopenmpi-dev libhwloc-dev libevent-dev base-files
}

# Regular files only: a link would put a document in twice.
existing_files() {
  local file
  while IFS= read -r file; do
    if [[ -f $file && ! -L $file ]]; then
      printf '%s\n' "$file"
    fi
  done
}

main() {
  local packages installed package
  packages=$(data_packages)
  # shellcheck disable=SC2086 # one package a word
  installed=$(dpkg-query -W -f='${Package} ${db:Status-Status}\n' $packages 2>/dev/null || true)
  for package in $packages; do
    grep -qxF "$package installed" <<<"$installed" ||
      die "the default data set needs the package $package, which is not installed" "Run scripts/setup.sh"
  done
  # Headers of C++ have names without a suffix (<vector>), so below include/ everything counts
  # but what is not text.
  # shellcheck disable=SC2086
  dpkg -L $packages |
    grep -E '/include/|^/usr/share/common-licenses/|^/usr/share/doc/[^/]*/copyright$' |
    grep -Ev '\.(mod|o|a|so|gch|cmake|pc|py|f90)$|/openmpi/lib/' |
    LC_ALL=C sort -u | existing_files
}

main
