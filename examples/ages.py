"""How old the coins are: the amounts and numbers of coins by age.

    python ages.py ~/.bitcoin [--chain main] [--height N]

The age of a coin is the time from its block to the last one. Without a height, the coins are those of the
chainstate; with one, those after the block at that height, from the blocks.
"""

import argparse

import peregrine
import polars

DAY = 24 * 60 * 60
BANDS = [("1 day", 1), ("1 week", 7), ("1 month", 30), ("6 months", 182), ("1 year", 365), ("2 years", 730),
         ("5 years", 1826)]


def ages(datadir, chain="main", height=None):
    """Returns a frame with a row for each age band: its name, the number of coins, and their value in satoshis."""
    coins = peregrine.utxo(datadir, height, chain=chain, columns=["mediantime", "value"])
    frame = polars.DataFrame(coins)
    last = coins.report()["height"]
    block = polars.DataFrame(peregrine.blocks(datadir, last, last, chain=chain, columns=["mediantime"]))
    age = polars.lit(block["mediantime"][0]) - polars.col("mediantime")
    aged = frame.with_columns(days=age.dt.total_seconds() / DAY)
    band = polars.sum_horizontal((polars.col("days") > days).cast(polars.Int32) for _, days in BANDS)
    sums = aged.group_by(band=band).agg(coins=polars.len(), value=polars.sum("value"))
    labels = ["up to " + name for name, _ in BANDS] + ["older"]
    order = polars.DataFrame({"band": range(len(labels)), "age": labels}, schema_overrides={"band": polars.Int32})
    return order.join(sums, on="band", how="left").sort("band").drop("band").fill_null(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datadir")
    parser.add_argument("--chain", default="main")
    parser.add_argument("--height", type=int)
    args = parser.parse_args()
    for age, coins, value in ages(args.datadir, args.chain, args.height).iter_rows():
        print(f"{age:15} {coins:>12,} coins {value / 1e8:20,.8f} BTC")


if __name__ == "__main__":
    main()
