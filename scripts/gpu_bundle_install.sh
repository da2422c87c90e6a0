#!/usr/bin/env bash
# Installs StitchCUDA from the folder it lies in, on a host without a network, and ends with what doctor says. Of the folder it
# takes what manifest.json lists and nothing else, so a newer bundle may be copied over an older one.
#   PYTHON=python3   the Python to install into: of the manifest's version, with pip and torch
#   LIBRARIES=DIR    where the shared libraries for nsys go. As root by default /opt/stitchcuda/lib, which the loader is told of;
#                    else ~/.local/share/stitchcuda/lib, for LD_LIBRARY_PATH. What the host has already is not touched.
# The exit code is doctor's; 2 also where the bundle cannot be installed, or the libraries for nsys cannot.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
code=0
refuse() { echo "install.sh: $1" >&2; exit 2; }
lack() { echo "install.sh: $1" >&2; code=2; }

command -v "$python" > /dev/null || refuse "there is no $python: say which Python with PYTHON=/path/to/python"
scratch=$(mktemp -d 2> /dev/null) ||
  refuse "no temporary folder can be made in ${TMPDIR:-/tmp}: set TMPDIR to a folder that can be written to"
trap 'rm -rf "$scratch"' EXIT

# Checks, and links in the scratch folder to what the manifest lists.
"$python" - "$here" "$scratch" << 'CHECK'
import hashlib, importlib.util, json, pathlib, sys

def refuse(why):
    print(f"install.sh: {why}", file=sys.stderr)
    sys.exit(2)

def is_whole(path, digest):
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == digest
    except OSError:
        return False

here, scratch = map(pathlib.Path, sys.argv[1:])
try:
    manifest = json.loads((here / "manifest.json").read_text())
    bundled, files = manifest["python"], {file["path"]: file["sha256"] for file in manifest["files"]}
except (OSError, ValueError, KeyError, TypeError):
    refuse("manifest.json is missing or is not what was bundled: carry the folder over again")
version = ".".join(map(str, sys.version_info[:2]))
if version != bundled:
    refuse(f"this bundle is for Python {bundled} and {sys.executable} is {version}: "
           f"set PYTHON, or make the bundle with BUNDLE_PYTHON={version}")
for path, digest in files.items():
    if not is_whole(here / path, digest):
        refuse(f"{path} is missing or is not what was bundled: carry the folder over again")
    link = scratch / path
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(here / path)
if importlib.util.find_spec("torch") is None and not any(path.startswith("wheels/torch-") for path in files):
    refuse(f"{sys.executable} has no torch and the bundle brings none: set PYTHON to one that has, "
           "or make the bundle with BUNDLE_TORCH=1")
if importlib.util.find_spec("pip") is None:
    refuse(f"{sys.executable} has no pip: try {sys.executable} -m ensurepip")
CHECK

wheels=$scratch/wheels
pip() {
  "$python" -m pip install --disable-pip-version-check --quiet --no-index --find-links "$wheels" "$@" ||
    refuse "pip did not install $(basename "${!#}"), for the reason above"
}
# Ours first, whatever is there: two bundles may hold different code, with other needs, under one version. Then what it needs.
pip --no-deps --force-reinstall "$wheels"/stitchcuda-*.whl
what=stitchcuda
! compgen -G "$wheels/cuda_toolkit-*.whl" > /dev/null || what='stitchcuda[toolkit]'
pip "$what"
for wheel in "$wheels"/ncu_report-*.whl; do
  [[ ! -e $wheel ]] || pip "$wheel"
done

# The shared libraries that nsys' importer links to, and what those need in turn: only what this host's loader does not know.
loader=$(command -v ldconfig || echo /sbin/ldconfig)
known=$("$loader" -p 2> /dev/null || true)
if [[ $known == *"libdw.so.1 ("* && $known == *"libelf.so.1 ("* ]]; then
  echo "this host has libdw and libelf, which nsys needs"
elif ! compgen -G "$scratch/debs/*.deb" > /dev/null; then
  echo "no Debian packages in this bundle: doctor says whether nsys lacks a library"
elif ! command -v dpkg > /dev/null; then
  echo "no dpkg here, so libraries for nsys were not unpacked: doctor says whether any is lacking"
else
  mkdir "$scratch/unpacked" "$scratch/lib"
  for deb in "$scratch"/debs/*.deb; do
    dpkg -x "$deb" "$scratch/unpacked" ||
      lack "dpkg cannot unpack $(basename "$deb"): make the bundle on a machine of this host's release, or install the package"
  done
  unread=
  wanted=(libdw.so.1 libelf.so.1)
  while (( ${#wanted[@]} )); do
    next=()
    for name in "${wanted[@]}"; do
      file=$(find "$scratch/unpacked" -name "$name" -print -quit)
      [[ -n $file && ! -e $scratch/lib/$name && $known != *"$name ("* ]] || continue
      cp -L "$file" "$scratch/lib/$name"
      linked=$(ldd "$scratch/lib/$name" 2> /dev/null) || unread+=" $name"
      mapfile -t -O "${#next[@]}" next < <(awk '/=> not found/ { print $1 }' <<< "$linked")
    done
    wanted=("${next[@]}")
  done
  [[ -z $unread ]] ||
    lack "ldd does not say what these link to, so that was not looked for:$unread; see that ldd runs, and run this again"
  if [[ -n $(ls "$scratch/lib") ]]; then
    system=
    folder=${LIBRARIES:-${HOME:+$HOME/.local/share/stitchcuda/lib}}
    [[ -n ${LIBRARIES:-} || $(id -u) -ne 0 ]] || { system=yes; folder=/opt/stitchcuda/lib; }
    if [[ -z $folder ]]; then
      lack "HOME is not set, so libraries for nsys were put nowhere: run this again with LIBRARIES=DIR"
    elif ! said=$({ mkdir -p "$folder" && cp "$scratch"/lib/* "$folder"; } 2>&1); then
      lack "libraries for nsys cannot be put into $folder (${said%%$'\n'*}): run this again with LIBRARIES=DIR"
    else
      folder=$(cd "$folder" && pwd)
      echo "libraries for nsys in $folder: $(ls "$scratch/lib" | xargs)"
      if [[ ! $system ]] || ! { echo "$folder" > /etc/ld.so.conf.d/stitchcuda.conf && "$loader"; } 2> /dev/null; then
        export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        echo "add to your shell's profile: export LD_LIBRARY_PATH=$folder\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}"
      fi
    fi
  fi
fi

"$python" -P -m stitchcuda doctor || exit
exit "$code"
