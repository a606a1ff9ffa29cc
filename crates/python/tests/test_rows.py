"""Coins and blocks: the rows are those of the chain, in any library, in order."""

import sys
import threading
from pathlib import Path

import duckdb
import pandas
import peregrine
import polars
import pyarrow
import pytest
from conftest import generate, hash_serialized_3

BLOCK_TABLES = [peregrine.blocks, peregrine.transactions, peregrine.inputs, peregrine.outputs]


def table(function, datadir, *heights, **options):
    return pyarrow.table(function(datadir, *heights, chain="regtest", **options))


def test_coins_have_the_hash_that_the_program_reports(node, chain, run):
    # The datadir has only one chain.
    rows = peregrine.utxo(node)
    coins = pyarrow.table(rows)
    stats = run("utxo", "stats", "--muhash")
    assert hash_serialized_3(coins) == stats["hash_serialized_3"] == chain["hash_serialized_3"]
    assert coins.num_rows == stats["coins"] == chain["txouts"] > 3_000
    assert sum(coins["value"].to_pylist()) == stats["total_amount_sat"]
    report = rows.report()
    assert {name: stats[name] for name in report} == report


def test_coins_after_a_block_are_the_outputs_up_to_it_that_no_input_spends(node, chain):
    height = chain["height"] - 20
    rows = peregrine.utxo(node, height, chain="regtest")
    coins = pyarrow.table(rows).to_pylist()
    outputs = table(peregrine.outputs, node, 1, height).to_pylist()
    inputs = table(peregrine.inputs, node, 0, height).to_pylist()
    medians = table(peregrine.blocks, node, columns=["mediantime"])["mediantime"].to_pylist()
    for row in outputs:
        row["mediantime"] = medians[row["height"]]
    created = {(row["txid"], row["vout"]): row for row in outputs if row["script_type"] != "nulldata"}
    for row in inputs:
        del created[row["prev_txid"], row["prev_vout"]]
    assert [(row["txid"], row["vout"]) for row in coins] == sorted(created)
    for row in coins:
        assert row == {name: created[row["txid"], row["vout"]][name] for name in row}
    assert (rows.report()["height"], rows.report()["coins"]) == (height, len(created))


def test_spends_of_outputs_are_their_join_with_inputs(node, chain, run, tmp_path):
    rows = peregrine.outputs(node, chain="regtest", spent=True)
    outputs = pyarrow.table(rows)
    inputs = pyarrow.table(peregrine.inputs(node, chain="regtest"))
    joined = duckdb.sql(
        "select o.* exclude (spent_height, spent_tx_index, spent_txid, spent_index, spent_mediantime),"
        " i.height as spent_height, i.tx_index as spent_tx_index, i.txid as spent_txid,"
        " i.input_index as spent_index, i.mediantime as spent_mediantime"
        " from outputs o left join inputs i on o.txid = i.prev_txid and o.vout = i.prev_vout"
        " order by o.height, o.tx_index, o.vout"
    ).to_arrow_table()
    assert outputs.to_pylist() == joined.to_pylist()
    assert 0 < outputs["spent_height"].null_count < outputs.num_rows
    spent_to = rows.report()["spent_to"]
    assert (spent_to["height"], spent_to["block_hash"]) == (rows.report()["to_height"], rows.report()["block_hash"])
    stats = run("utxo", "stats", "--muhash")
    assert spent_to["unspent"] == {name: stats[name] for name in ("coins", "total_amount_sat", "muhash")}
    # Of some blocks, and named: the same rows, in files too.
    some = table(peregrine.outputs, node, 50, 99, columns=["height", "spent_txid"], threads=3, memory=1 << 28)
    assert some.num_rows > 50 and some.to_pylist() == [
        {name: row[name] for name in ("height", "spent_txid")}
        for row in outputs.to_pylist()
        if 50 <= row["height"] <= 99
    ]
    run("export", "outputs", "--spent", "--output", tmp_path / "outputs")
    files = duckdb.sql(f"select * from '{tmp_path}/outputs/*.parquet' order by height, tx_index, vout")
    assert files.to_arrow_table().to_pylist() == outputs.to_pylist()
    with pytest.raises(peregrine.Error, match="spent_height and the like instead of spent=True"):
        peregrine.outputs(node, chain="regtest", columns=["value"], spent=True)


def test_inputs_less_outputs_are_fees(node, chain):
    transactions = polars.DataFrame(peregrine.transactions(node, chain="regtest"))
    inputs = polars.DataFrame(peregrine.inputs(node, chain="regtest"))
    outputs = polars.DataFrame(peregrine.outputs(node, chain="regtest"))
    blocks = polars.DataFrame(peregrine.blocks(node, chain="regtest"))
    sums = [rows.group_by("txid").agg(polars.col("value").sum()) for rows in (inputs, outputs)]
    joined = sums[0].join(sums[1], on="txid", suffix="_out").join(transactions, on="txid")
    assert (joined["value"] - joined["value_out"] == joined["fee"]).all()
    assert joined.height == transactions.height - blocks.height
    assert joined["fee"].sum() == blocks["totalfee"].sum() > 0
    counts = [rows.height for rows in (transactions, inputs, outputs, blocks)]
    assert counts == [chain[name] for name in ("transactions", "inputs", "outputs", "blocks")]


@pytest.mark.parametrize("function", BLOCK_TABLES)
def test_rows_are_in_order_with_any_number_of_threads(node, chain, function):
    one = table(function, node, threads=1)
    assert one["height"].to_pylist() == sorted(one["height"].to_pylist())
    assert one.equals(table(function, node, threads=8, memory=1 << 30))
    assert one.equals(table(function, node, scan=True))
    first, last = 60, chain["height"] - 3
    some = [row for row in one.to_pylist() if first <= row["height"] <= last]
    rows = function(node, first, last, chain="regtest")
    assert pyarrow.table(rows).to_pylist() == some
    assert (rows.report()["from_height"], rows.report()["to_height"]) == (first, last)


def test_libraries_take_the_rows(node, chain):
    count, total = chain["txouts"], chain["total_amount_sat"]
    frame = pandas.DataFrame.from_arrow(peregrine.utxo(node, chain="regtest"))
    assert (len(frame), frame["value"].sum()) == (count, total)
    frame = polars.DataFrame(peregrine.utxo(node, chain="regtest"))
    assert (frame.height, frame["value"].sum()) == (count, total)
    coins = peregrine.utxo(node, chain="regtest")
    assert duckdb.sql("select count(*), sum(value) from coins").fetchall() == [(count, total)]
    batches = pyarrow.RecordBatchReader.from_stream(peregrine.utxo(node, chain="regtest"))
    assert sum(batch.num_rows for batch in batches) == count


@pytest.mark.parametrize("option", [{"scan": True}, {"work_dir": "."}])
def test_an_option_without_effect_is_refused(node, option):
    with pytest.raises(peregrine.Error, match="only with height"):
        peregrine.utxo(node, chain="regtest", **option)


def test_addresses_are_a_column_of_their_own(node):
    for function in (peregrine.utxo, peregrine.inputs, peregrine.outputs):
        assert "address" not in table(function, node).column_names
        rows = table(function, node, addresses=True).to_pylist()
        with_address = [row for row in rows if row["script_type"] == "p2wpkh"]
        assert with_address and all(row["address"].startswith("bcrt1q") for row in with_address)


def test_columns_are_those_that_are_named(node):
    for function in (peregrine.utxo, peregrine.inputs, peregrine.outputs, peregrine.transactions, peregrine.blocks):
        whole = table(function, node)
        names = [whole.column_names[at] for at in (0, 2, -1)]
        some = table(function, node, columns=names[::-1])
        assert some.equals(whole.select(names))
        with pytest.raises(peregrine.Error, match="has no column nothing; it has"):
            function(node, chain="regtest", columns=["nothing"])
    with pytest.raises(peregrine.Error, match="name address among them"):
        peregrine.utxo(node, chain="regtest", columns=["value"], addresses=True)
    assert table(peregrine.utxo, node, columns=["address"]).num_rows > 0


def test_numbers_can_be_subtracted_and_times_are_timestamps(node):
    inputs = polars.DataFrame(peregrine.inputs(node, chain="regtest"))
    assert (inputs["prev_height"] - inputs["height"]).max() <= 0
    assert (inputs["mediantime"] - inputs["prev_mediantime"]).min().total_seconds() >= 0
    rows = peregrine.inputs(node, chain="regtest")
    query = "select min(height - prev_height), max(block_time) from rows"
    (least, time), = duckdb.sql(query).fetchall()
    assert least >= 0 and time.tzinfo is not None


def test_macros_of_the_page_translate_txids():
    page = (Path(__file__).parents[3] / "docs" / "export.md").read_text()
    macros = [line for line in page.splitlines() if line.startswith("create macro")]
    assert len(macros) == 2
    connection = duckdb.connect()
    for macro in macros:
        connection.execute(macro)
    txid = bytes(range(32))
    text = txid[::-1].hex()
    query = "select txid_text($txid), txid_bytes($text)"
    assert connection.execute(query, {"txid": txid, "text": text}).fetchall() == [(text, txid)]


def test_rows_can_be_taken_again(node, chain):
    rows = peregrine.utxo(node, chain="regtest")
    schema = pyarrow.schema(rows)
    with pytest.raises(peregrine.Error, match="not been read to their end"):
        rows.report()
    first = pyarrow.table(rows)
    assert first.schema == schema
    report = rows.report()
    assert report["coins"] == chain["txouts"]
    assert pyarrow.table(rows).equals(first)
    assert rows.report() == report
    relation = duckdb.sql("select count(*) from rows")
    assert relation.fetchall() == relation.fetchall() == [(chain["txouts"],)]


def test_rows_that_nobody_takes_leave_no_work(copy):
    for function in BLOCK_TABLES:
        rows = function(copy, chain="regtest")
        del rows
    batches = pyarrow.RecordBatchReader.from_stream(peregrine.inputs(copy, chain="regtest"))
    batches.read_next_batch()
    del batches
    # The datadir is free: a rebuild needs it alone.
    assert peregrine.reindex(copy, chain="regtest")["height"] > 0


def test_a_rebuild_beside_rows_that_nobody_takes_says_what_helps(tmp_path):
    """Once, it said to wait until this very process has ended."""
    # More rows than wait for a library.
    generate(tmp_path, "--size", "1MB", "--empty-tail", "600")
    rows = peregrine.outputs(tmp_path, chain="regtest")
    with pytest.raises(peregrine.Error, match="this process itself: take or drop all rows") as raised:
        peregrine.reindex(tmp_path, chain="regtest")
    assert raised.value.remedies == ["end-own-job"]
    pyarrow.table(rows)
    assert peregrine.reindex(tmp_path, chain="regtest")["height"] > 600


def test_other_threads_run_while_rows_are_dropped(node):
    """Once, they stood still until the work had ended."""
    before = sys.getswitchinterval()
    # A thread then runs only while the others wait without Python's lock.
    sys.setswitchinterval(100)
    try:
        # The work may end before the other thread wakes.
        assert any(runs_while_rows_are_dropped(node) for _ in range(20))
    finally:
        sys.setswitchinterval(before)


def runs_while_rows_are_dropped(node):
    gate, ran = threading.Lock(), []
    gate.acquire()
    thread = threading.Thread(target=lambda: ran.append(gate.acquire()))
    thread.start()
    rows = peregrine.inputs(node, chain="regtest")
    gate.release()
    del rows
    has_run = bool(ran)
    thread.join()
    return has_run
