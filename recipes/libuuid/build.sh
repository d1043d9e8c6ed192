#!/bin/bash
# Of all of util-linux only its uuid library.
set -euo pipefail
./configure --prefix="$PREFIX" --disable-all-programs --enable-libuuid --disable-static --disable-nls \
  --disable-bash-completion --disable-asciidoc --disable-dependency-tracking --without-python --without-systemd \
  --without-ncurses --without-ncursesw --without-tinfo --without-readline --without-udev --without-util
make -j"$CPU_COUNT"
make install
rm -f "$PREFIX"/lib/*.la
rm -rf "$PREFIX"/share/{man,locale,bash-completion}
