"""The history of scripts, which the program writes: DuckDB finds one address in it, and its balance is that of its coins."""

from pathlib import Path

import duckdb
import peregrine
import polars
import pyarrow
import pytest


@pytest.fixture(scope="module")
def coins(original):
    rows = peregrine.utxo(original[0], chain="regtest", addresses=True)
    return pyarrow.table(rows).to_pylist()


@pytest.fixture
def history(run, tmp_path):
    report = run("export", "history", "-o", tmp_path / "history", "--prefix-digits", "2", "--file-blocks", "100")
    return tmp_path, report


def statements(script):
    """The statements of the page that find one address, for this script."""
    page = (Path(__file__).parents[3] / "docs" / "export.md").read_text()
    block = page[page.index("set variable script_hash") :].split("```")[0]
    return block.replace("76a91462e907b15cbf27d5425399ebf6f0fb50ebb88f1888ac", script.hex()).strip().split(";\n")


def test_the_history_of_an_address_ends_with_its_coins(history, coins, chain, monkeypatch):
    folder, report = history
    monkeypatch.chdir(folder)
    assert (report["coins"], report["total_amount_sat"]) == (chain["txouts"], chain["total_amount_sat"])
    assert report["is_chainstate"]
    # Scripts with many coins, and with one.
    scripts = {coin["script"] for coin in coins[::97]}
    assert len(scripts) > 20
    for script in scripts:
        connection = duckdb.connect()
        *before, query = statements(script)
        for statement in before:
            connection.execute(statement)
        rows = connection.sql(query.rstrip(";"))
        assert rows.columns[:9] == ["script_hash", "height", "tx_index", "block_time", "txid", "input", "index", "amount", "balance"]
        rows = rows.fetchall()
        balance = sum(coin["value"] for coin in coins if coin["script"] == script)
        assert rows[-1][8] == balance == sum(row[7] for row in rows)
        plan = connection.sql("explain " + query.rstrip(";")).fetchall()
        assert "Scanning Files: " in str(plan), plan
    found = duckdb.sql("select address, balance from 'history/scripts/**/*.parquet' where address is not null").fetchall()
    balances = {}
    for coin in coins:
        if coin["address"]:
            balances[coin["address"]] = balances.get(coin["address"], 0) + coin["value"]
    assert {address: balance for address, balance in found if balance} == {a: b for a, b in balances.items() if b}


def test_polars_reads_all_folders(history):
    folder, report = history
    frame = polars.scan_parquet(folder / "history" / "history", hive_partitioning=True)
    count, total = frame.select(polars.len(), polars.col("amount").sum()).collect().row(0)
    assert (count, total) == (report["rows"], report["total_amount_sat"])
    scripts = polars.scan_parquet(folder / "history" / "scripts", hive_partitioning=True).select("rows", "balance").sum()
    assert scripts.collect().row(0) == (report["rows"], report["total_amount_sat"])
