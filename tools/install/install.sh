#!/bin/sh
# Puts library, header, command line and the package descriptions under $DESTDIR$PREFIX, or removes them.
# Called by `make install` and `make uninstall`, which set the variables.
set -eu
root="${DESTDIR:-}${PREFIX:?}"
so="libflashptx.so.${SOVERSION:?}"
case "${1:?install or uninstall}" in
  install)
    here=$(dirname "$0")
    install -d "$root/bin" "$root/include" "$root/lib/pkgconfig" "$root/lib/cmake/flashptx"
    install -m 755 "$BUILD/flashptx" "$root/bin/flashptx"
    install -m 644 host/flashptx.h "$root/include/flashptx.h"
    install -m 644 "$BUILD/libflashptx.a" "$root/lib/libflashptx.a"
    install -m 755 "$BUILD/libflashptx.so" "$root/lib/$so.$VERSION"
    ln -sf "$so.$VERSION" "$root/lib/$so"
    ln -sf "$so" "$root/lib/libflashptx.so"
    fill() { sed -e "s|@PREFIX@|$PREFIX|" -e "s|@VERSION@|$VERSION|" -e "s|@SOVERSION@|$SOVERSION|" "$here/$1.in" > "$2/$1"; }
    fill flashptx.pc "$root/lib/pkgconfig"
    fill flashptx-config.cmake "$root/lib/cmake/flashptx"
    fill flashptx-config-version.cmake "$root/lib/cmake/flashptx"
    echo "installed under $root" ;;
  uninstall)
    rm -f "$root/bin/flashptx" "$root/include/flashptx.h" "$root/lib/libflashptx.a" \
      "$root/lib/libflashptx.so" "$root/lib/$so" "$root/lib/$so".* "$root/lib/pkgconfig/flashptx.pc"
    rm -rf "$root/lib/cmake/flashptx"
    echo "removed from $root" ;;
  *) echo "install.sh: install or uninstall, not '$1'" >&2; exit 2 ;;
esac
