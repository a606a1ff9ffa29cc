"""The transactions around one: where its coins come from, and where they go, some steps in both directions.

    python graph.py ~/.bitcoin TXID [--chain main] [--steps 2] > graph.dot

The output is a graph for Graphviz (`dot -Tsvg`). Each step reads all inputs once.
"""

import argparse

import duckdb
import peregrine


def graph(datadir, txid, chain="main", steps=2):
    """Returns the edges: the transaction that created a coin, the one that spends it, and the value in satoshis.
    Transactions are named as Bitcoin Core prints them."""
    inputs = peregrine.inputs(datadir, chain=chain, columns=["txid", "prev_txid", "prev_vout", "value"])
    start = bytes.fromhex(txid)[::-1]
    edges, above, below = set(), {start}, {start}
    for _ in range(steps):
        query = """
            select prev_txid, txid, prev_vout, value from inputs
            where list_contains($spending, txid) or list_contains($created, prev_txid)
        """
        rows = duckdb.execute(query, {"spending": list(above), "created": list(below)}).fetchall()
        found = {tuple(row) for row in rows}
        # What created the coins, and what spends them, is looked for in the next step.
        above = {creator for creator, spender, _, _ in found if spender in above}
        below = {spender for creator, spender, _, _ in found if creator in below}
        edges |= found
    return sorted((creator[::-1].hex(), spender[::-1].hex(), vout, value) for creator, spender, vout, value in edges)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datadir")
    parser.add_argument("txid")
    parser.add_argument("--chain", default="main")
    parser.add_argument("--steps", type=int, default=2)
    args = parser.parse_args()
    print("digraph transactions {\n  rankdir = LR;\n  node [shape = box];")
    print(f'  "{args.txid[:12]}" [style = filled];')
    for creator, spender, vout, value in graph(args.datadir, args.txid, args.chain, args.steps):
        print(f'  "{creator[:12]}" -> "{spender[:12]}" [label = "{vout}: {value / 1e8:.8f}"];')
    print("}")


if __name__ == "__main__":
    main()
