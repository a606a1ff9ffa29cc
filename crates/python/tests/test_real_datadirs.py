"""Datadirs that Bitcoin Core has written, if there are any: the rows have the hashes that Core reports."""

import json
import os
import tarfile
from pathlib import Path

import peregrine
import pyarrow
import pytest
from conftest import hash_serialized_3

BESIDE = Path(__file__).parents[4] / "shared/data"
DATADIRS = Path(os.environ.get("PEREGRINE_DATA", BESIDE)) / "core-datadirs"


@pytest.mark.parametrize(
    ("name", "chain"),
    [("main", "main"), ("testnet3", "test"), ("signet", "signet"), ("regtest", "regtest")],
)
def test_coins_have_the_hashes_that_core_reports(name, chain, tmp_path):
    packed = DATADIRS / f"{name}.tar.xz"
    if not packed.exists():
        pytest.skip(f"{packed} does not exist")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path / "node", filter="data")
    known = [json.loads(line) for line in (DATADIRS / f"{name}.known.jsonl").read_text().splitlines()]
    tip = max(stats["height"] for stats in known)
    for stats in known:
        height = stats["height"]
        rows = [peregrine.utxo(tmp_path / "node", height, chain=chain, work_dir=tmp_path)]
        if height == tip:
            rows.append(peregrine.utxo(tmp_path / "node", chain=chain))
        for each in rows:
            coins = pyarrow.table(each)
            assert (hash_serialized_3(coins), coins.num_rows) == (stats["hash_serialized_3"], stats["txouts"])
            report = each.report()
            assert (report["height"], report["muhash"]) == (height, stats["muhash"])
