# system: the runtime's Debian, on a base from a registry or of the user. Built by images/build, which makes the same from
# Debian packages if there is no such base.
#
# The second stage starts from scratch. The certificate authorities that only the build may trust, package lists and caches
# are therefore in no layer of the image, instead of only hidden by a later layer.
ARG BASE
FROM ${BASE} AS tools
LABEL dev.cogni.sandbox.image=tools
COPY extra-ca/ /extra-ca/
COPY packages finish /build/
RUN set -eu; \
    export DEBIAN_FRONTEND=noninteractive; \
    apt() { apt-get -qq -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-unsafe-io $ca "$@"; }; \
    ca=; if cat /extra-ca/*.crt >/extra-ca/bundle.pem 2>/dev/null; then ca='-o Acquire::https::CAInfo=/extra-ca/bundle.pem'; fi; \
    apt update; \
    apt install -y --no-install-recommends $(cat /build/packages); \
    apt clean; \
    sh /build/finish; \
    rm -rf /extra-ca /build

FROM scratch
COPY --from=tools / /
LABEL dev.cogni.sandbox.image=system
