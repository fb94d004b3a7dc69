#!/bin/bash
# `make install` into an empty folder: a C and a CMake program build against it, and uninstall leaves nothing.
cd "$(dirname "$0")/../.." && . tests/lib.sh
root="$scratch/root"
cat > "$scratch/client.c" << 'END'
#include <flashptx.h>
#include <stdio.h>
#include <string.h>
int main(void) { puts(flashptx_version()); return strcmp(flashptx_version(), VERSION); }
END
version=$(sed -n 's/^VERSION := //p' Makefile)
case_is 'make install' make --no-print-directory -s BUILD="$BUILD" DESTDIR="$root" PREFIX=/opt/f install
export PKG_CONFIG_PATH="$root/opt/f/lib/pkgconfig" PKG_CONFIG_SYSROOT_DIR="$root" LD_LIBRARY_PATH="$root/opt/f/lib"
case_is 'the installed program runs' "$root/opt/f/bin/flashptx" list
case_is 'the shared library shows only the C API' sh -c '
  nm -D --defined-only "$0" | awk "{print \$3}" | grep -v "^flashptx_" && exit 1; exit 0' "$root/opt/f/lib/libflashptx.so"
if command -v pkg-config > /dev/null; then
  case_is 'a C99 program builds by pkg-config and runs' sh -c '
    gcc -std=c99 -Wall -Werror -DVERSION="\"$2\"" "$0/client.c" -o "$0/client" $(pkg-config --cflags --libs flashptx) && "$0/client"' \
    "$scratch" - "$version"
  case_is 'a static program builds by pkg-config --static' sh -c '
    gcc -DVERSION="\"$2\"" "$0/client.c" -o "$0/static" -I"$1/include" "$1/lib/libflashptx.a" \
      $(pkg-config --static --libs-only-l flashptx | sed "s/-lflashptx//") && "$0/static"' "$scratch" "$root/opt/f" "$version"
else
  skip_case 'a C99 program builds by pkg-config' 'no pkg-config here'
fi
if command -v cmake > /dev/null; then
  mkdir "$scratch/cmake"
  cat > "$scratch/cmake/CMakeLists.txt" << 'END'
cmake_minimum_required(VERSION 3.16)
project(client C CXX)
find_package(flashptx 0.1 REQUIRED)
foreach(kind flashptx static)
  add_executable(client_${kind} ../client.c)
  target_link_libraries(client_${kind} flashptx::${kind})
  target_compile_definitions(client_${kind} PRIVATE VERSION="${flashptx_VERSION}")
endforeach()
END
  case_is 'a CMake program finds the package, shared and static' sh -c '
    cmake -S "$0/cmake" -B "$0/cmake/build" -DCMAKE_PREFIX_PATH="$1" && cmake --build "$0/cmake/build" &&
    "$0/cmake/build/client_flashptx" && "$0/cmake/build/client_static"' "$scratch" "$root/opt/f"
else
  skip_case 'a CMake program finds the package' 'no cmake here'
fi
case_is 'make uninstall leaves no file' sh -c '
  make --no-print-directory -s DESTDIR="$0" PREFIX=/opt/f uninstall && test -z "$(find "$0" -type f -o -type l)"' "$root"
finish
