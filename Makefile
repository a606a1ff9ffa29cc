# The commands of the project. Each installs what it needs (system packages with apt-get, and sudo where needed).

CARGO ?= cargo
# Where rustup's installer puts cargo: what `make setup` installs is found without a new login.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
# Where `make demo` writes its chain; it needs about three times DEMO_SIZE of free space.
export DEMO_DIR ?= target/demo
export DEMO_SIZE ?= 1GB
TARGET = $(or $(CARGO_TARGET_DIR),target)
# For `make demo` and `make hostile`: path of Bitcoin Core's bitcoind. Without one, that of `make bitcoind`, or one on the PATH.
export BITCOIND ?= $(firstword $(wildcard $(TARGET)/bitcoind/bin/bitcoind) bitcoind)
# For `make hostile`: number of cases, and further arguments (--seed, --only, --dir, ..).
RUNS ?= 2000
HOSTILE ?=
# For `make demo`, `make cluster`, `make test-python` and `make hostile`: folder of programs that are there, so that none are built.
export PEREGRINE_PROGRAMS ?=
# For `make releases`: paths of bitcoinds, each with bitcoin-cli beside it.
BITCOINDS ?=
# For `make install`: files go below $(DESTDIR)$(PREFIX).
export PREFIX ?= /usr/local
export DESTDIR ?=
# For the verbs that build packages: further arguments for cargo, such as --no-default-features.
export FEATURES ?=
# Options of cargo for the laboratory, which is a workspace of its own.
LAB = --manifest-path lab/Cargo.toml --target-dir $(TARGET)
# What `make test-quick` leaves out: packages that compile C++, and tests that take long or wait.
UNQUICK = hostile oracle peregrine peregrine-python peregrine-script
SLOW = ::long:: node:: faults:: hints:: indexes:: ranges:: sync:: undo:: ways:: block_files client:: fuzz_smoke
# The oldest Rust that `make msrv` compiles with.
MSRV ?= $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: demo test test-quick test-long test-node bitcoind test-python check cluster fuzz hostile lab bench guard rehearsal arm mutants oracle releases msrv deny package setup release install dist deb wheel checksums reproducible release-check

demo: ## Show on generated chains how a broken chainstate is found, rebuilt, and compared: DEMO_DIR, DEMO_SIZE (1GB)
	CARGO="$(CARGO)" ./demo/run

test: setup ## Run the tests, also those against Bitcoin Core's own code (the first time, compiling it takes some minutes)
	CARGO="$(CARGO)" ./.ci/test --skip ::long:: --skip node::
	$(CARGO) test --workspace --doc

test-quick: setup ## Run in about two minutes the tests that compile no C++ and take no long: after a change, before `make test`
	$(CARGO) test --workspace $(addprefix --exclude ,$(UNQUICK)) --lib --tests -- $(addprefix --skip ,$(SLOW))

test-long: setup ## Run the tests that take long: hundreds of kills and power failures, long random walks, mutants of blocks
	CARGO="$(CARGO)" ./.ci/test ::long::

test-node: $(if $(PEREGRINE_BITCOIND),setup,bitcoind) ## Run the tests beside a real bitcoind: PEREGRINE_BITCOIND (path), or that of `make bitcoind`
	CARGO="$(CARGO)" PEREGRINE_MAY_SKIP='^$$' ./.ci/test node::

test-python: setup ## Build a wheel of the Python module and test it with pytest; installs what that needs from PyPI below target/python
	CARGO="$(CARGO)" ./crates/python/test

check: setup ## Check formatting, lints and documentation
	$(CARGO) fmt --all -- --check
	$(CARGO) fmt --all --manifest-path lab/Cargo.toml -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

cluster: ## Check a generated chain by ranges on four Dask workers, of which one is killed: CLUSTER_SIZE (30MB), CLUSTER_RANGES (16)
	CARGO="$(CARGO)" ./contrib/cluster

mutants: setup ## Change the code in MUTANTS (400) places, one at a time, and print which changes no test notices; takes a night, resumes; installs cargo-mutants
	command -v cargo-mutants >/dev/null || $(CARGO) install --locked cargo-mutants
	CARGO="$(CARGO)" ./.ci/mutants

oracle: setup ## Run only the tests against Bitcoin Core's own code
	$(CARGO) test -p oracle

fuzz: setup ## Run each fuzz target for FUZZ_SECONDS (60); installs cargo-fuzz
	./fuzz/run

hostile: setup ## Damage datadirs at random, rebuild them in place, and start a real bitcoind on them: RUNS (2000), BITCOIND (path)
	@command -v "$(BITCOIND)" >/dev/null || { echo "make hostile needs Bitcoin Core's bitcoind: run make bitcoind, or set BITCOIND=PATH"; exit 1; }
	$(if $(PEREGRINE_PROGRAMS),,$(CARGO) build --profile quick -p peregrine -p hostile)
	$(or $(PEREGRINE_PROGRAMS),$(TARGET)/quick)/hostile --runs $(RUNS) --bitcoind "$(BITCOIND)" $(HOSTILE)

bitcoind: setup ## Compile bitcoind and bitcoin-cli from the sources that the build has anyway: target/bitcoind/bin
	CARGO="$(CARGO)" ./.ci/bitcoind

releases: setup ## Let releases of bitcoind write datadirs and open what Peregrine makes of them: BITCOINDS (paths)
	@test -n "$(BITCOINDS)" || { echo "make releases needs bitcoinds: set BITCOINDS=\"PATH ..\", each with bitcoin-cli beside it"; exit 1; }
	PEREGRINE_BITCOINDS="$(BITCOINDS)" $(CARGO) test -p peregrine --test cli releases:: -- --nocapture

lab: setup ## Build and test the laboratory, which measures the program and draws its runs
	$(CARGO) build -p peregrine --no-default-features
	$(CARGO) clippy $(LAB) --workspace --all-targets -- -D warnings
	$(CARGO) test $(LAB) --workspace
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(LAB) --no-deps

bench: setup ## Run the micro benchmarks
	$(CARGO) bench $(LAB) -p bench

guard: setup ## Compare the instruction counts of each step with the recorded ones (UPDATE=1 records them); needs valgrind
	./lab/bench/guard/run

rehearsal: bitcoind ## Do every long job on a chain with mainnet's counts, which needs 60 GB; resumes: REHEARSAL_DIR, REHEARSAL_PERCENT (100)
	./lab/rehearsal/run

arm: setup ## Test all crates that need no C++ on AArch64 in QEMU (CRATES=digest tests one crate); installs what it needs
	./.ci/arm

msrv: setup ## Compile with the oldest Rust that is supported (`rust-version` in Cargo.toml); installs it
	rustup toolchain install --profile minimal $(MSRV)
	$(CARGO) +$(MSRV) check --workspace --no-default-features --exclude oracle --exclude peregrine-script

deny: setup ## Check licences, sources and security advisories of all dependencies; installs cargo-deny
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check
	$(CARGO) deny --manifest-path lab/Cargo.toml check

package: setup ## Pack all crates as for publishing, in order, without uploading anything
	$(CARGO) publish --dry-run --workspace --no-verify

release: setup ## Build the program as it is packed: stripped, with libstdc++ in it; with man pages and completions, in target/dist/package
	./packaging/build

install: ## Build the program and install it with man pages, completions and documentation: PREFIX (/usr/local), DESTDIR
	./packaging/install

dist: setup ## Build an archive of the program, and SHA256SUMS, in target/artifacts; CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu for 64-bit ARM
	./packaging/archive
	@$(MAKE) --no-print-directory checksums

deb: setup ## Build a Debian package, and SHA256SUMS, in target/artifacts; installs cargo-deb; CARGO_BUILD_TARGET as for dist
	./packaging/deb
	@$(MAKE) --no-print-directory checksums

wheel: setup ## Build a wheel of the Python module, and SHA256SUMS, in target/artifacts; installs maturin from PyPI below target
	./packaging/wheel
	@$(MAKE) --no-print-directory checksums

checksums: ## Write SHA256SUMS of all that is in target/artifacts
	cd $(TARGET)/artifacts && ls | grep -v SHA256SUMS | LC_ALL=C sort | xargs sha256sum >SHA256SUMS

reproducible: setup ## Build the archive twice, in different folders, and compare the two
	./packaging/reproducible

release-check: setup ## Make all that a release has, try it, and print what passed: STEPS (all), UPDATE=1 accepts the public interfaces
	./packaging/release-check $(STEPS)

setup: ## Install what the build needs: compiler, cmake, Boost, Rust
	@./.ci/setup
