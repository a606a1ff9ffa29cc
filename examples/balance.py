"""The balance of an address after each block in which it changed.

    python balance.py ~/.bitcoin ADDRESS [--chain main]

All outputs and inputs are read once. DuckDB keeps only the rows of the address.
"""

import argparse

import duckdb
import peregrine


def balance(datadir, address, chain="main"):
    """Returns rows of height, time, change and balance; amounts are in satoshis."""
    columns = ["height", "block_time", "value", "address"]
    credits = peregrine.outputs(datadir, chain=chain, columns=columns)
    debits = peregrine.inputs(datadir, chain=chain, columns=columns)
    query = """
        with changes as (
            select height, block_time, value from credits where address = $address
            union all
            select height, block_time, -value from debits where address = $address
        )
        select height, max(block_time) as block_time, sum(value)::bigint as change,
            (sum(sum(value)) over (order by height))::bigint as balance
        from changes group by height order by height
    """
    duckdb.sql("set timezone = 'UTC'")
    return duckdb.execute(query, {"address": address}).fetchall()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datadir")
    parser.add_argument("address")
    parser.add_argument("--chain", default="main")
    args = parser.parse_args()
    print(f"{'height':>8}  {'time':19}  {'change, BTC':>18}  {'balance, BTC':>18}")
    for height, time, change, total in balance(args.datadir, args.address, args.chain):
        print(f"{height:8}  {time:%Y-%m-%d %H:%M:%S}  {change / 1e8:18.8f}  {total / 1e8:18.8f}")


if __name__ == "__main__":
    main()
