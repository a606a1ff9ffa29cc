# The verbs of the project. Each does its own set-up (system packages by apt-get, with sudo where needed).

CARGO ?= cargo
# Where `make demo` puts its chain; about three times DEMO_SIZE is needed.
DEMO_DIR ?= target/demo
DEMO_SIZE ?= 200MB
# What `make hostile` takes: so many cases, Bitcoin Core's node, and further words for the loop (--seed, --only, --dir, ..).
RUNS ?= 2000
BITCOIND ?= bitcoind
HOSTILE ?=
# The oldest Rust that `make msrv` compiles with.
MSRV ?= $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

.PHONY: demo test check fuzz hostile bench guard arm oracle msrv deny setup

demo: setup ## Generate a realistic regtest chain and rebuild its chainstate
	$(CARGO) build --release -p cli -p testkit
	rm -rf $(DEMO_DIR)
	target/release/testkit chain --out $(DEMO_DIR)/datadir --seed 1 --size $(DEMO_SIZE)
	target/release/peregrine reindex --datadir $(DEMO_DIR)/datadir --chain regtest
	target/release/peregrine utxo stats --datadir $(DEMO_DIR)/datadir --chain regtest

test: setup ## Run all tests, those against Bitcoin Core's own code included (compiles its kernel: minutes the first time)
	$(CARGO) test --workspace

check: setup ## Formatting, lints and docs
	$(CARGO) fmt --all -- --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --no-deps

oracle: setup ## Only the tests against Bitcoin Core's own code
	$(CARGO) test -p oracle

fuzz: setup ## Run each fuzz target for FUZZ_SECONDS (60); installs cargo-fuzz
	./fuzz/run

hostile: setup ## Damage datadirs at random, rebuild them in place, start a real bitcoind on them: RUNS (2000), BITCOIND (a path)
	@command -v "$(BITCOIND)" >/dev/null || { echo "make hostile needs Bitcoin Core's node: BITCOIND=PATH, or bitcoind on the PATH"; exit 1; }
	$(CARGO) build --release -p cli -p hostile
	target/release/hostile --runs $(RUNS) --bitcoind "$(BITCOIND)" $(HOSTILE)

bench: setup ## Micro benchmarks
	$(CARGO) bench -p bench

guard: setup ## Compare instruction counts of each step with the recorded ones (UPDATE=1 records); needs valgrind
	./bench/guard/run

arm: setup ## Tests of all rooms that need no C++, on AArch64 in QEMU (ROOMS=digest: of one); installs what that takes
	./.ci/arm

msrv: setup ## Compile with the oldest Rust that is supported (`rust-version` in Cargo.toml); installs it
	rustup toolchain install --profile minimal $(MSRV)
	$(CARGO) +$(MSRV) check --workspace --no-default-features --exclude oracle --exclude bench --exclude script

deny: setup ## Check licences, sources and security advisories of all dependencies; installs cargo-deny
	command -v cargo-deny >/dev/null || $(CARGO) install --locked cargo-deny
	$(CARGO) deny check

setup:
	@./.ci/setup
