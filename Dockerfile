# The gateway and its dependencies only. There is no shell, no package manager, and no file that its user can write.
#
#   docker build -t work-item-gateway:0.1.0 .
#
# With SOURCE_DATE_EPOCH, each build makes the same image: `buildah build --timestamp`, or `rewrite-timestamp=true` of
# BuildKit.

# Either image can be replaced: BUILD_IMAGE by a Debian with Node.js, npm, a shell and binutils, RUNTIME_IMAGE by an image
# with CA certificates and /etc/passwd.
ARG BUILD_IMAGE=docker.io/library/node:26.10.0-bookworm@sha256:2aaae6d91f99fee84cfc92da9b52c22a185752d247746052bbc3f961e44478c6
ARG RUNTIME_IMAGE=gcr.io/distroless/static-debian12:latest@sha256:d75cdd72874d4790092fcb1b058493ecf6bb5bf2b2b897045b00ff01d91843f2

# The gateway, which is the same for every platform.
FROM --platform=$BUILDPLATFORM ${BUILD_IMAGE} AS build
WORKDIR /build
COPY package.json package-lock.json ./
COPY scripts/node scripts/node
# If packages come from another registry: --secret id=npmrc,src=$HOME/.npmrc
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc npm ci --ignore-scripts --no-audit --no-fund
COPY . .
# OpenTelemetry is an optional peer dependency of the package. The image contains it.
RUN npm run build:scanner && npm run build && \
  node scripts/keep-traces.cjs && \
  npm prune --ignore-scripts --omit=dev --omit=optional --no-audit --no-fund
RUN set -eu; umask 022; app=/image/opt/work-item-gateway; \
  mkdir -p $app; \
  cp -r dist node_modules package.json LICENSE $app/; \
  rm -rf $app/node_modules/.bin $app/node_modules/.package-lock.json $app/node_modules/work-item-gateway-node; \
  find $app/node_modules -mindepth 2 -maxdepth 3 -type d '(' -name test -o -name docs -o -name benchmarks ')' -prune -exec rm -r '{}' +; \
  find $app -name '*.d.ts' -delete; find $app -name '*.d.cts' -delete; find $app -name '*.map' -delete; \
  chmod -R u=rwX,go=rX /image

# Node.js without symbols, and the libraries that it is linked with. Vulnerability scanners read the status and copyright
# files of the libraries' Debian packages, so the image has these files too.
FROM ${BUILD_IMAGE} AS node
RUN set -eu; umask 022; packages=/image/var/lib/dpkg/status.d; \
  mkdir -p /image/usr/local/bin /image/etc $packages; \
  node=$(command -v node); strip -o /image/usr/local/bin/node "$node"; \
  ldd "$node" | grep -o '/[^ ]*' | while read -r library; do \
    cp -L --parents "$library" /image; \
    package=$(dpkg -S "*/${library##*/}" | cut -d: -f1 | head -n 1); \
    dpkg -s "$package" > "$packages/$package"; \
    cp --parents "/usr/share/doc/$package/copyright" /image; \
  done; \
  printf 'hosts: files dns\n' > /image/etc/nsswitch.conf; \
  chmod -R u=rwX,go=rX /image

FROM ${RUNTIME_IMAGE}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Work Item Gateway" \
  org.opencontainers.image.description="A JSON-over-HTTP gateway for work items" \
  org.opencontainers.image.source="https://github.com/work-item-gateway/work-item-gateway" \
  org.opencontainers.image.licenses="MIT" \
  org.opencontainers.image.version="${VERSION}"
COPY --from=node /image/ /
COPY --from=build /image/ /
# `::` is every address, IPv4 and IPv6.
ENV NODE_ENV=production HOST=::
USER 65532:65532
EXPOSE 3000
# On this signal the gateway drains.
STOPSIGNAL SIGTERM
# Each check starts a Node.js process, which takes 0.15 s of processor time.
HEALTHCHECK --interval=30s --timeout=5s --start-period=5s \
  CMD ["/usr/local/bin/node", "/opt/work-item-gateway/dist/command/main.js", "health"]
# On SIGUSR1 Node.js would open its debugger.
ENTRYPOINT ["/usr/local/bin/node", "--disable-sigusr1", "/opt/work-item-gateway/dist/command/main.js"]
CMD ["serve"]
