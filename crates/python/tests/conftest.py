"""Chains of testkit, whose chainstates the module rebuilds, and the hash of coins."""

import hashlib
import json
import os
import shutil
import struct
import subprocess
from pathlib import Path

import peregrine
import pytest

PROGRAMS = Path(os.environ["PEREGRINE_PROGRAMS"])


def generate(path, *options):
    """Writes a datadir without a chainstate, and returns what testkit says of it."""
    command = [PROGRAMS / "testkit", "chain", "--out", path, *options]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def hash_serialized_3(coins):
    """Hashes coins as Bitcoin Core does (`HASH_SERIALIZED`)."""
    hasher = hashlib.sha256()
    for coin in coins.to_pylist():
        code = coin["height"] * 2 + coin["coinbase"]
        length = len(coin["script"])
        size = bytes([length]) if length < 253 else b"\xfd" + struct.pack("<H", length)
        fixed = struct.pack("<IIq", coin["vout"], code, coin["value"])
        hasher.update(coin["txid"] + fixed + size + coin["script"])
    return hashlib.sha256(hasher.digest()).digest()[::-1].hex()


@pytest.fixture(scope="session")
def original(tmp_path_factory):
    """A datadir that no test changes, with its chainstate, and what testkit says of it."""
    path = tmp_path_factory.mktemp("chain") / "node"
    chain = generate(path, "--size", "5MB")
    peregrine.reindex(path, chain="regtest")
    return path, chain


@pytest.fixture
def node(original):
    return original[0]


@pytest.fixture
def chain(original):
    return original[1]


@pytest.fixture
def copy(node, tmp_path):
    """A copy of the datadir that a test may change."""
    return Path(shutil.copytree(node, tmp_path / "node"))


@pytest.fixture
def run(node):
    """Runs the program on the datadir, and returns its report."""

    def run(*words):
        command = [PROGRAMS / "peregrine", *words, "--datadir", node, "--chain", "regtest", "--json"]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    return run
