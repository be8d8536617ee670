#!/bin/sh
# Installs the Debian packages that some tests need. Tests without their package are skipped and say so.
set -eu
packages='curl fonts-dejavu fonts-liberation fonts-urw-base35 haproxy openssl prometheus python3-h2 redis-server sslscan'
# shellcheck disable=SC2086 # one argument per package
if dpkg -s $packages > /dev/null 2>&1; then exit 0; fi
export DEBIAN_FRONTEND=noninteractive
timeout 60 apt-get update -qq > /dev/null 2>&1 || true
# shellcheck disable=SC2086
timeout 120 apt-get install -qq --no-install-recommends $packages > /dev/null 2>&1 || {
  echo "could not install all of $packages: tests that need them are skipped"
  exit 1
}
