#!/bin/bash
set -euo pipefail

# Debian's security fixes and crash fixes: the end of its series. What comes before adapts Python to Debian's layout.
sed -n '/^shutdown-deadlock/,$p' debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done

# The fix of CVE-2026-4224 uses an internal header, which Debian's own way of building pyexpat allows.
sed -i "s/Extension('pyexpat', sources=\['pyexpat.c'\])/Extension('pyexpat', sources=['pyexpat.c'], \
                extra_compile_args=['-DPy_BUILD_CORE_MODULE'])/" setup.py
grep -q "Py_BUILD_CORE_MODULE'\])" setup.py

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
if grep -A 8 'Failed to build these modules\|built successfully but were removed' make.log; then
  grep -B 2 -A 8 'error:' make.log || true
  exit 1
fi
# -l: `make install` would compile all modules three times, with the build's paths in them; see below
make install COMPILEALL_OPTS=-l >install.log 2>&1 || { tail -n 60 install.log; exit 1; }

ln -sf python@python_series@ "$PREFIX/bin/python"
ln -sf python@python_series@-config "$PREFIX/bin/python-config"

# the build folder and the prefix maps out of sysconfig's data, its Makefile and python3-config
site=$PREFIX/lib/python@python_series@
data=("$site"/_sysconfigdata_*.py "$site"/config-@python_series@-*/Makefile "$PREFIX"/bin/python@python_series@-config
  "$PREFIX"/lib/pkgconfig/python-@python_series@*.pc)
sed -i -E -e "s#-ffile-prefix-map=[^ '\"]*##g" -e "s#$SRC_DIR#/build#g" -e "s#$BUILD_PREFIX#/build#g" "${data[@]}"
for file in "${data[@]}"; do
  if grep -nE "$SRC_DIR|$BUILD_PREFIX" "$file"; then echo "error: a path of this machine in $file"; exit 1; fi
done
# Python's own tests, and programs that need tkinter; of the tests stays what other packages' tests import
mv "$site/test" "$SRC_DIR/all-tests"
mkdir -p "$site/test"
cp -r "$SRC_DIR"/all-tests/{__init__.py,support} "$site/test/"
rm -rf "$site"/{idlelib,turtledemo,lib2to3/tests,tkinter,distutils/tests,unittest/test,ctypes/test,sqlite3/test}
rm -f "$site/turtle.py" "$PREFIX"/bin/idle3* "$site"/lib-dynload/{_test,_ctypes_test,_xxtestfuzz,xxlimited}*

# compiled modules with names relative to the prefix (Python puts the true ones in when it loads them); but not the
# files whose text an installer changes
find "$site" -name __pycache__ -prune -exec rm -rf {} +
PYTHONDONTWRITEBYTECODE=1 "$PREFIX/bin/python@python_series@" -m compileall -q -f -j "$CPU_COUNT" \
  --invalidation-mode timestamp -s "$PREFIX" -x 'site-packages|_sysconfigdata|config-@python_pattern@-' "$site"
