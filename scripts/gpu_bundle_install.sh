#!/usr/bin/env bash
# Installs StitchCUDA from the folder it lies in, on a host without a network, and ends with what doctor says (and its exit code).
#   PYTHON=python3   the Python to install into: of the manifest's version, with pip and torch
#   LIBRARIES=DIR    where the shared libraries for nsys go. As root by default /opt/stitchcuda/lib, which the loader is told of;
#                    else ~/.local/share/stitchcuda/lib, for LD_LIBRARY_PATH. What the host has already is not touched.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
wheels=$here/wheels

command -v "$python" > /dev/null || { echo "install.sh: there is no $python: say which Python with PYTHON=/path/to/python" >&2; exit 2; }

"$python" - "$here" << 'CHECK'
import hashlib, importlib.util, json, pathlib, sys

here = pathlib.Path(sys.argv[1])
manifest = json.loads((here / "manifest.json").read_text())
version = ".".join(map(str, sys.version_info[:2]))
if version != manifest["python"]:
    sys.exit(f"install.sh: this bundle is for Python {manifest['python']} and {sys.executable} is {version}: "
             f"set PYTHON, or make the bundle with BUNDLE_PYTHON={version}")
for file in manifest["files"]:
    path = here / file["path"]
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
        sys.exit(f"install.sh: {file['path']} is missing or is not what was bundled: carry the folder over again")
if importlib.util.find_spec("torch") is None and not any(file["name"] == "torch" for file in manifest["files"]):
    sys.exit(f"install.sh: {sys.executable} has no torch and the bundle brings none: set PYTHON to one that has, "
             "or make the bundle with BUNDLE_TORCH=1")
if importlib.util.find_spec("pip") is None:
    sys.exit(f"install.sh: {sys.executable} has no pip: try {sys.executable} -m ensurepip")
CHECK

pip() { "$python" -m pip install --disable-pip-version-check --quiet --no-index --find-links "$wheels" "$@"; }
what=stitchcuda
! compgen -G "$wheels/cuda_toolkit-*.whl" > /dev/null || what='stitchcuda[toolkit]'
pip "$what"
# Two bundles may hold different code under one version.
pip --no-deps --force-reinstall "$wheels"/stitchcuda-*.whl
for wheel in "$wheels"/ncu_report-*.whl; do
  [[ ! -e $wheel ]] || pip "$wheel"
done

# The shared libraries that nsys' importer links to, and what those need in turn: only what this host's loader does not know.
if ! compgen -G "$here/debs/*.deb" > /dev/null; then
  echo "no Debian packages in this bundle: doctor says whether nsys lacks a library"
elif ! command -v dpkg > /dev/null; then
  echo "no dpkg here, so libraries for nsys were not unpacked: doctor says whether any is lacking"
else
  loader=$(command -v ldconfig || echo /sbin/ldconfig)
  known=$("$loader" -p 2> /dev/null || true)
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir "$scratch/debs" "$scratch/lib"
  for deb in "$here"/debs/*.deb; do dpkg -x "$deb" "$scratch/debs"; done
  wanted=(libdw.so.1 libelf.so.1)
  while (( ${#wanted[@]} )); do
    next=()
    for name in "${wanted[@]}"; do
      file=$(find "$scratch/debs" -name "$name" -print -quit)
      [[ -n $file && ! -e $scratch/lib/$name && $known != *"$name ("* ]] || continue
      cp -L "$file" "$scratch/lib/$name"
      mapfile -t -O "${#next[@]}" next < <(ldd "$scratch/lib/$name" | awk '/=> not found/ { print $1 }')
    done
    wanted=("${next[@]}")
  done
  if [[ -n $(ls "$scratch/lib") ]]; then
    system=
    [[ -n ${LIBRARIES:-} || $(id -u) -ne 0 ]] || system=yes
    folder=${LIBRARIES:-$([[ $system ]] && echo /opt/stitchcuda/lib || echo "$HOME/.local/share/stitchcuda/lib")}
    mkdir -p "$folder"
    folder=$(cd "$folder" && pwd)
    cp "$scratch"/lib/* "$folder"
    echo "libraries for nsys in $folder: $(ls "$scratch/lib" | xargs)"
    if [[ $system ]]; then
      echo "$folder" > /etc/ld.so.conf.d/stitchcuda.conf
      "$loader"
    else
      export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
      echo "add to your shell's profile: export LD_LIBRARY_PATH=$folder\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
    fi
  fi
fi

"$python" -P -m stitchcuda doctor
