# The commands of this project. uv runs every Python command, inside .venv and nowhere else.
export VIRTUAL_ENV := justfile_directory() / ".venv"

run := "uv run --no-project --quiet"
pinned := "requirements/dev.txt"
frameworks := "requirements/frameworks.txt"
linted := "dataset_rt tests scripts examples benches"

# list the recipes
@default:
    just --list --unsorted

# install the pinned Python tools into .venv
@sync:
    [ -f .venv/pyvenv.cfg ] || uv venv --quiet --python '>=3.11' --allow-existing .venv
    cmp -s {{ pinned }} .venv/.synced || { uv pip sync --quiet --require-hashes {{ pinned }} && rm -f .venv/.frameworks && cp {{ pinned }} .venv/.synced; }

# build the Rust extension and install the package in editable mode
@develop: _rust sync
    unset CONDA_PREFIX; {{ run }} maturin develop --release --locked --uv

# format Python and Rust
fmt: _rust sync
    cargo fmt
    {{ run }} ruff check --quiet --select I --fix {{ linted }}
    {{ run }} ruff format {{ linted }}

# check the formatting of Python and Rust
fmt-check: _rust sync
    cargo fmt --check
    {{ run }} ruff format --check {{ linted }}

# run ruff
lint: sync
    {{ run }} ruff check {{ linted }}

# run pyrefly
typecheck: develop
    {{ run }} pyrefly check

# run the Rust tests (no Python needed)
test-rust: _rust
    cargo test --locked

# run clippy with warnings denied, with and without the Python bindings
clippy: _rust sync
    cargo clippy --locked --all-targets -- -D warnings
    {{ run }} cargo clippy --locked --all-targets --features python -- -D warnings

# rebuild the extension, then run the Python tests; with JAX, Grain and, where a wheel lies in $DATASET_RT_WHEELS, PyTorch
test-python *args: develop _frameworks _torch
    {{ run }} pytest {{ args }}

# run all tests
test: test-rust test-python

# let dataset-rt 0.2.0 and 0.4.8 read caches written here
interop: develop
    {{ run }} python scripts/interop.py

# everything to pass before a commit
check: fmt-check lint typecheck clippy test

# the main job on real input: handwritten digits, cached, weighted, learned
demo: develop
    {{ run }} python examples/digits.py

# synthetic write and read benchmark, a few seconds
smoke *args: develop
    {{ run }} python scripts/smoke.py {{ args }}

# our own figures: Criterion on the Rust core (without arguments), then ratios against the published releases and SciPy
bench *args: develop
    {{ if args == "" { "cargo bench --locked --benches" } else { "" } }}
    {{ run }} python -m benches.releases {{ args }}

# ratios against other stores and loaders, in one run of about 20 minutes
bench-peers *args: develop
    {{ run }} python -m benches.peers {{ args }}

# build the source distribution and this platform's wheel into dist/
build-all: _rust sync
    rm -rf dist
    {{ run }} maturin build --release --locked --sdist --out dist

# pin the Python tools again after a change to pyproject.toml
lock *args:
    uv pip compile --quiet pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --custom-compile-command "just lock" {{ args }} -o {{ pinned }}
    uv pip compile --quiet pyproject.toml --group frameworks --universal --python-version 3.11 --generate-hashes \
        --no-emit-index-url --custom-compile-command "just lock" {{ args }} --constraints {{ pinned }} -o {{ frameworks }}

# What a platform has no wheels of is skipped, in CI nothing is.
[private]
@_frameworks: sync
    cmp -s {{ frameworks }} .venv/.frameworks \
        || { uv pip install --quiet --require-hashes --requirement {{ frameworks }} && cp {{ frameworks }} .venv/.frameworks; } \
        || { echo "tests that need JAX or Grain are skipped: they cannot be installed here" >&2; [ -z "${CI:-}" ]; }

# Pins that change take PyTorch away again (see sync), so this looks every time.
[private]
@_torch: sync
    {{ run }} python scripts/torch_for_tests.py "${DATASET_RT_WHEELS:-../shared/wheels}"

[no-exit-message]
[private]
@_rust:
    command -v cargo >/dev/null 2>&1 && cargo --version >/dev/null || { echo "DatasetRT needs Rust 1.95 or newer to build: install it from https://rustup.rs, open a new shell and run this again." >&2; exit 1; }
