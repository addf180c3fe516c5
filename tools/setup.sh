# shellcheck shell=bash
# Shared by tools/quickstart and tests/run: what the build needs, and building it.
# Sourced with `root` set to the top of the tree.  Debian 12, Ubuntu 22.04 and later.

setup_packages=() # what apt-get would install
setup_reasons=()  # "package: why", for the reader

setup_need() { # package reason
    setup_packages+=("$1")
    setup_reasons+=("  $1: $2")
}

setup_cmake_is_old() {
    local version
    version=$(cmake --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    # shellcheck disable=SC2086
    set -- ${version:-0 0}
    [ "$1" -lt 3 ] || { [ "$1" -eq 3 ] && [ "$2" -lt 22 ]; }
}

# A compiler that also finds libc's headers: `gcc` alone does not bring them.
setup_compiles() {
    echo '#include <stdio.h>' | "${CC:-cc}" -x c -fsyntax-only - 2>/dev/null
}

setup_has() { # pkg-config module, header to look for while pkg-config itself is missing
    if command -v pkg-config >/dev/null; then
        pkg-config --exists "$1"
    else
        [ -e "/usr/include/$2" ]
    fi
}

# Python with jsonschema: an apt package serves the system's Python, not one before it in PATH.
setup_python() {
    local candidate
    for candidate in python3 /usr/bin/python3; do
        if "$candidate" -c 'import jsonschema' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

setup_missing() { # product | tests
    setup_packages=()
    setup_reasons=()
    setup_compiles || {
        setup_need gcc "compiles the library"
        setup_need libc6-dev "libc's headers"
    }
    if setup_cmake_is_old; then
        setup_need cmake "at least 3.22 configures the build"
    fi
    command -v make >/dev/null || command -v ninja >/dev/null ||
        setup_need make "runs the build"
    command -v pkg-config >/dev/null || setup_need pkg-config "finds the libraries"
    setup_has jansson jansson.h ||
        setup_need libjansson-dev "writes and reads the JSON statistics"
    setup_has zlib zlib.h || setup_need zlib1g-dev "compresses profiles for pprof"
    setup_has libdw elfutils/libdwfl.h || setup_need libdw-dev "shows source lines of call sites"
    [ "$1" = tests ] || return 0
    setup_has check check.h || setup_need check "unit tests are written with it"
    command -v python3 >/dev/null || setup_need python3 "runs script tests"
    setup_python >/dev/null ||
        setup_need python3-jsonschema "tests validate the statistics against their schema"
    setup_has ncursesw curses.h || setup_need libncurses-dev "accelcache top is drawn with it"
    command -v tmux >/dev/null || setup_need tmux "tests read what a terminal shows"
    command -v valgrind >/dev/null || setup_need valgrind "a test runs it under the library"
    "${CXX:-c++}" -x c++ -fsyntax-only - </dev/null 2>/dev/null || setup_need g++ "tests compile the C++ interface"
    command -v xz >/dev/null || setup_need xz-utils "tests unpack what CPack packs"
    command -v abidiff >/dev/null || setup_need abigail-tools "a test compares the C API with its description"
}

# Installs what is missing, or says how and ends the script.
setup_install() { # product | tests
    setup_missing "$1"
    [ ${#setup_packages[@]} -gt 0 ] || return 0

    echo "Missing here:"
    printf '%s\n' "${setup_reasons[@]}"
    local install=(apt-get install -y --no-install-recommends "${setup_packages[@]}")
    local as_root=()
    if ! command -v apt-get >/dev/null; then
        echo "No apt-get on this system: install these (or their like) and start again." >&2
        exit 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! sudo -n true 2>/dev/null; then
            echo "Neither root nor passwordless sudo.  Please run:" >&2
            echo "  sudo apt-get update && sudo ${install[*]}" >&2
            echo "and start again." >&2
            exit 1
        fi
        as_root=(sudo)
    fi
    echo "Installing them: apt-get update && ${install[*]}"
    if ! { "${as_root[@]}" apt-get -q update &&
           "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive "${install[@]}"; }; then
        echo "apt-get failed.  Please run:" >&2
        echo "  sudo apt-get update && sudo ${install[*]}" >&2
        exit 1
    fi
    setup_missing "$1"
    if [ ${#setup_packages[@]} -gt 0 ]; then
        echo "Still missing after the installation: ${setup_packages[*]}" >&2
        exit 1
    fi
}

# clang with libFuzzer, as far as it is to be had: a test is left out without it.
setup_fuzzer() {
    local major as_root=()
    echo 'int LLVMFuzzerTestOneInput(void *, long); int LLVMFuzzerTestOneInput(void *p, long n)
          { return (void)p, (void)n, 0; }' |
        clang -fsanitize=fuzzer,address -x c -o /dev/null - 2>/dev/null && return 0
    command -v apt-get >/dev/null || return 0
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    major=$(apt-cache policy clang 2>/dev/null | sed -n 's/^ *Candidate: 1:\([0-9]*\)\..*/\1/p')
    # Older releases have the runtime in another package, which clang needs anyway.
    apt-cache show "libclang-rt-$major-dev" >/dev/null 2>&1 && major="libclang-rt-$major-dev" || major=
    # shellcheck disable=SC2086
    "${as_root[@]}" apt-get install -y --no-install-recommends clang $major >/dev/null 2>&1 ||
        echo "No clang with libFuzzer to be had: the allocator is not fuzzed"
}

# What a build for aarch64 and roots with an older C library need, as far as it is to be had: their tests
# are left out without it.  On Debian alone: elsewhere another architecture needs other mirrors.
setup_more() {
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    # shellcheck source=/dev/null
    (. /etc/os-release && [ "$ID" = debian ]) && command -v apt-get >/dev/null || return 0
    (setup_aarch64 && { command -v mmdebstrap || "${as_root[@]}" apt-get install -y --no-install-recommends mmdebstrap; }) \
        >/dev/null 2>&1 || echo "No cross compiler for aarch64 or no mmdebstrap to be had: their tests are left out"
}

# What a build for aarch64 needs, and qemu to run it; ends the script where it is not to be had.
setup_aarch64() {
    local packages=(g++-aarch64-linux-gnu qemu-user-static libjansson-dev:arm64 zlib1g-dev:arm64
                    libncurses-dev:arm64 check:arm64 libstdc++6:arm64)
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo)
    dpkg-query -W "${packages[@]}" >/dev/null 2>&1 && return 0
    echo "Installing what a build for aarch64 needs: ${packages[*]}"
    if ! { "${as_root[@]}" dpkg --add-architecture arm64 && "${as_root[@]}" apt-get -q update &&
           "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
               apt-get install -y --no-install-recommends "${packages[@]}"; }; then
        echo "apt-get failed: Debian has packages of arm64 beside others, Ubuntu on ports.ubuntu.com" >&2
        exit 1
    fi
}

# Passes the output of a build on; its "[12/494]" appears on one line where stderr is a terminal.
setup_progress() {
    local line
    while IFS= read -r line || [ -n "$line" ]; do
        printf '%s\n' "$line"
        if [ -t 2 ] && [[ $line == "["*"]"* ]]; then
            printf '\r\033[K%s]' "${line%%]*}" >&2
        fi
    done
    if [ -t 2 ]; then printf '\r\033[K' >&2; fi
}

# Configures and builds one preset; its output is shown only where it fails, then 1 comes back.
setup_build() { # preset, target, cmake arguments...
    # shellcheck disable=SC2154 # root: see above
    local preset=$1 target=$2 log=$root/build/$1.log
    shift 2
    mkdir -p "$root/build"
    if [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja >/dev/null; then
        export CMAKE_GENERATOR=Ninja
    fi
    echo "Building $preset in build/$preset ..."
    if ! (set -o pipefail
          (cd "$root" && cmake --preset "$preset" "$@" &&
           cmake --build "build/$preset" --target "$target" --parallel "$(nproc)") 2>&1 |
              setup_progress >"$log"); then
        tail -n 40 "$log" >&2
        echo "The build failed; all of its output is in $log" >&2
        return 1
    fi
}
