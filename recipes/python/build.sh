#!/bin/bash
set -euo pipefail

# Debian's security fixes and crash fixes: the end of its series. What comes before adapts Python to Debian's layout.
sed -n '/^shutdown-deadlock/,$p' debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done

# Modules whose libraries are not in the channel; without this they would be built against the machine's.
cat >Modules/Setup.local <<'SETUP'
*disabled*
_crypt
_dbm
_gdbm
_tkinter
nis
ossaudiodev
spwd
SETUP

# What sysconfig tells builders of extensions names no path but the prefix, so the prefix maps go to the flags that
# only Python's own files are compiled with.
maps=$(tr ' ' '\n' <<<"$CFLAGS" | grep '^-ffile-prefix-map=' | tr '\n' ' ')
export CFLAGS="-O2 -pipe -fPIC -fstack-protector-strong"
export CFLAGS_NODIST="-fno-semantic-interposition $maps"
export CPPFLAGS="-I$PREFIX/include"
export LDFLAGS="-Wl,-O1 -Wl,--as-needed -Wl,--disable-new-dtags -Wl,-rpath,$PREFIX/lib -L$PREFIX/lib"
export LDFLAGS_NODIST="-Wl,-rpath-link,$PREFIX/lib"
export PKG_CONFIG_LIBDIR="$PREFIX/lib/pkgconfig:$PREFIX/share/pkgconfig"
./configure --prefix="$PREFIX" --enable-shared --enable-ipv6 --with-system-expat --with-system-ffi \
  --with-openssl="$PREFIX" --with-ensurepip=no --with-tzpath="$PREFIX/share/zoneinfo" --with-computed-gotos \
  --enable-loadable-sqlite-extensions --without-static-libpython --with-dbmliborder= \
  >configure.log || { tail -n 30 configure.log; exit 1; }
make -j"$CPU_COUNT" >make.log 2>&1 || { tail -n 60 make.log; exit 1; }
make install >install.log 2>&1 || { tail -n 60 install.log; exit 1; }

ln -sf python3.11 "$PREFIX/bin/python"
ln -sf python3.11-config "$PREFIX/bin/python-config"

# the build folder and the prefix maps out of sysconfig's data, its Makefile and python3-config
site=$PREFIX/lib/python3.11
data=("$site"/_sysconfigdata_*.py "$site"/config-3.11-*/Makefile "$PREFIX"/bin/python3.11-config "$PREFIX"/lib/pkgconfig/python-3.11*.pc)
sed -i -E -e "s#-ffile-prefix-map=[^ '\"]*##g" -e "s#$SRC_DIR#/build#g" -e "s#$BUILD_PREFIX#/build#g" "${data[@]}"
for file in "${data[@]}"; do
  if grep -nE "$SRC_DIR|$BUILD_PREFIX" "$file"; then echo "error: a path of this machine in $file"; exit 1; fi
done
# the data is a module: its compiled form must follow
rm -f "$site"/__pycache__/_sysconfigdata_*.pyc
"$PREFIX/bin/python3.11" -m compileall -q "$site"/_sysconfigdata_*.py

# tests of Python itself: only what the package's own test runs
mv "$site/test" "$SRC_DIR/all-tests"
mkdir -p "$site/test"
(
  cd "$SRC_DIR/all-tests"
  cp -r __init__.py __main__.py libregrtest support regrtest.py "$site/test/"
)
rm -rf "$site"/{idlelib,turtledemo,lib2to3/tests,tkinter/test,distutils/tests,unittest/test,ctypes/test}
rm -f "$PREFIX"/bin/idle3*
