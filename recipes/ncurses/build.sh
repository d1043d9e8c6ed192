#!/bin/bash
set -euo pipefail
patch -p1 --no-backup-if-mismatch <debian/patches/fix_crash_on_very_long_tc-use_clause.diff
# CVE-2023-29491: programs with raised rights ignore the user's terminal descriptions
patch -p1 --no-backup-if-mismatch <debian/patches/fix-configure-root-args-option.diff
patch -p1 --no-backup-if-mismatch <debian/patches/debian-env-access.diff
# a few terminals are compiled in, so that a program works even where the database is not found
./configure --prefix="$PREFIX" --with-shared --without-normal --without-debug --without-ada --without-manpages \
  --without-tests --without-cxx-binding --with-termlib --with-ticlib --enable-widec --enable-overwrite \
  --enable-symlinks --enable-pc-files --with-pkg-config-libdir="$PREFIX/lib/pkgconfig" --disable-root-environ \
  --with-terminfo-dirs="$PREFIX/share/terminfo:/etc/terminfo:/lib/terminfo:/usr/share/terminfo" \
  --with-fallbacks=linux,vt100,xterm,xterm-256color,screen,tmux-256color
make -j"$CPU_COUNT"
make install >install.log 2>&1 || { tail -n 30 install.log; exit 1; }
# programs ask for the library without its "wide" suffix too
for name in ncurses form panel menu tinfo tic; do
  for suffix in so so.6; do
    ln -sf "lib${name}w.$suffix" "$PREFIX/lib/lib$name.$suffix"
  done
  [ ! -f "$PREFIX/lib/pkgconfig/${name}w.pc" ] || ln -sf "${name}w.pc" "$PREFIX/lib/pkgconfig/$name.pc"
done
ln -sf libncursesw.so "$PREFIX/lib/libcurses.so"
