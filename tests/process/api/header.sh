#!/usr/bin/env bash
# usage: header.sh HEADER CC [CXX]     the header alone, by every standard that it is said to suit, and those
#                                      in C++ beside it
set -eu
header=$1 cc=$2 cxx=${3-}
flags=(-Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -include "$header")
for standard in c11 c17 gnu17; do
    "$cc" -std=$standard "${flags[@]}" -Wstrict-prototypes -x c /dev/null
done
[ -n "$cxx" ] || exit 0
for standard in c++11 c++14 c++17 c++20; do
    "$cxx" -std=$standard "${flags[@]}" -x c++ /dev/null
done
for standard in c++11 c++14 c++17 c++20; do
    "$cxx" -std=$standard "${flags[@]}" -include "${header%.h}.hpp" -x c++ /dev/null
done
for standard in c++17 c++20; do
    "$cxx" -std=$standard "${flags[@]}" -include "${header%.h}_rmm.hpp" -x c++ /dev/null
done
