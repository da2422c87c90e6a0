#!/usr/bin/env bash
# Installs what the tests use besides Python packages, where it is missing: PostgreSQL and Chromium, from Debian's or Ubuntu's own
# packages, as root. Starts nothing: tests start their own, on loopback. Without them those tests are skipped and say so.
set -euo pipefail

wanted=()
command -v initdb >/dev/null || compgen -G "/usr/lib/postgresql/*/bin/initdb" >/dev/null || wanted+=(postgresql)
command -v chromium >/dev/null || wanted+=(chromium)
if [ ${#wanted[@]} -eq 0 ]; then exit 0; fi
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
  echo "not here, so what needs it is skipped: ${wanted[*]} (on Debian: apt-get install ${wanted[*]})" >&2
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
