"""The examples answer their questions: each result is compared with the rows themselves, and each script runs."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import peregrine
import pyarrow
import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
sys.path.insert(0, str(EXAMPLES))

import ages
import balance
import fees
import graph
import script_types


def rows(function, node, **options):
    return pyarrow.table(function(node, chain="regtest", **options)).to_pylist()


def script(name, *words):
    """Runs an example as its page says, and returns what it prints."""
    command = [sys.executable, EXAMPLES / name, *words, "--chain", "regtest"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def test_balances_are_what_the_address_got_and_spent(node):
    outputs, inputs = (rows(function, node, addresses=True) for function in (peregrine.outputs, peregrine.inputs))
    address, _ = Counter(row["address"] for row in inputs if row["address"]).most_common(1)[0]
    changes = Counter()
    for sign, table in ((1, outputs), (-1, inputs)):
        for row in table:
            if row["address"] == address:
                changes[row["height"]] += sign * row["value"]
    found = balance.balance(node, address, "regtest")
    assert [(height, change) for height, _, change, _ in found] == sorted(changes.items())
    unspent = [row["value"] for row in rows(peregrine.utxo, node, addresses=True) if row["address"] == address]
    assert found[-1][3] == sum(unspent)
    assert len(script("balance.py", node, address).splitlines()) == len(found) + 1


def test_ages_cover_all_coins(node, chain):
    found = ages.ages(node, "regtest")
    assert (found["coins"].sum(), found["value"].sum()) == (chain["txouts"], chain["total_amount_sat"])
    # The generator's blocks are ten minutes apart.
    coins = rows(peregrine.utxo, node)
    of_day = sum(row["value"] for row in coins if row["height"] >= chain["height"] - 144)
    assert abs(found.filter(found["age"] == "up to 1 day")["value"][0] - of_day) <= of_day * 0.05
    assert "up to 1 day" in script("ages.py", node)
    assert ages.ages(node, "regtest", chain["height"])["value"].to_list() == found["value"].to_list()


def test_fee_rates_are_between_the_least_and_the_greatest(node):
    found = fees.fees(node, "regtest", blocks=40)
    paying = [row for row in rows(peregrine.transactions, node) if row["fee"] is not None]
    assert found["transactions"].sum() == len(paying)
    assert found["fees"].sum() == sum(row["fee"] for row in paying)
    for group, _, p10, p50, p90, _ in found.iter_rows():
        rates = [row["fee"] / row["vsize"] for row in paying if row["height"] // 40 * 40 == group]
        assert min(rates) <= p10 <= p50 <= p90 <= max(rates)
    assert len(script("fees.py", node, "--blocks", "40").splitlines()) == found.height + 1


def test_script_types_count_each_output_once(node, chain):
    found = script_types.script_types(node, "regtest", 50)
    assert found.to_numpy().sum() == chain["outputs"]
    types = Counter(row["script_type"] for row in rows(peregrine.outputs, node))
    assert {name: int(found[name].sum()) for name in found.columns} == dict(types)
    assert "p2wpkh" in script("script_types.py", node)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_graph_has_what_can_be_reached(node, steps):
    edges = {(row["prev_txid"], row["txid"], row["prev_vout"], row["value"]) for row in rows(peregrine.inputs, node)}
    creators = Counter(edge[0] for edge in edges)
    start = next(edge[1] for edge in sorted(edges) if edge[1] in creators)
    reached, above, below = set(), {start}, {start}
    for _ in range(steps):
        up = {edge for edge in edges if edge[1] in above}
        down = {edge for edge in edges if edge[0] in below}
        reached |= up | down
        above, below = {edge[0] for edge in up}, {edge[1] for edge in down}
    txid = start[::-1].hex()
    found = graph.graph(node, txid, "regtest", steps)
    assert found == sorted((a[::-1].hex(), b[::-1].hex(), vout, value) for a, b, vout, value in reached)
    text = script("graph.py", node, txid, "--steps", str(steps))
    assert len(re.findall(" -> ", text)) == len(found)
