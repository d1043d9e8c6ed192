#!/bin/bash
set -euo pipefail
# Debian's security fixes; left out is what only adapts OpenSSL to Debian's own build and policy
grep -vE '^(#|$|debian-targets|man-section|no-symbolic|pic\.|c_rehash-compat|Configure-allow|Remove-the-provider)' \
  debian/patches/series | while read -r name; do
  patch -p1 --no-backup-if-mismatch <"debian/patches/$name"
done
# The flags are shown by `openssl version -f` and must hold no path of this machine. No prefix map is needed: OpenSSL
# names its sources relative to the build folder.
CFLAGS="-O2 -pipe -fPIC -fstack-protector-strong" CPPFLAGS="" \
  LDFLAGS="-Wl,-O1 -Wl,--as-needed -Wl,--disable-new-dtags -Wl,-rpath,$PREFIX/lib" \
  ./Configure linux-@machine@ --prefix="$PREFIX" --openssldir="$PREFIX/ssl" --libdir=lib shared no-tests no-ssl3 no-zlib
# without the static libraries, for which every file would be compiled a second time
libraries=(LIBS= INSTALL_LIBS=)
make -j"$CPU_COUNT" "${libraries[@]}" build_sw >make.log 2>&1 || { tail -n 50 make.log; exit 1; }
make "${libraries[@]}" install_sw install_ssldirs >install.log 2>&1 || { tail -n 50 install.log; exit 1; }
# the package ca-certificates brings the certificates
rm -rf "$PREFIX/ssl/certs" "$PREFIX/ssl/cert.pem"
