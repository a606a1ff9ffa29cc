"""Fee rates, in satoshis per virtual byte, for each so many blocks.

    python fees.py ~/.bitcoin [--chain main] [--from N] [--to N] [--blocks 1000]

Only three columns are made, so that most of what transactions contain is never decoded.
"""

import argparse

import peregrine
import polars


def fees(datadir, chain="main", first=0, last=None, blocks=1000):
    """Returns a frame with a row for each group of blocks: its first height, how many transactions pay a fee,
    the 10th, 50th and 90th percentile of their fee rates, and the sum of the fees in satoshis."""
    columns = ["height", "vsize", "fee"]
    rows = polars.DataFrame(peregrine.transactions(datadir, first, last, chain=chain, columns=columns))
    rate = polars.col("fee") / polars.col("vsize")
    # A coinbase pays no fee.
    paying = rows.drop_nulls("fee").with_columns(rate=rate, group=polars.col("height") // blocks * blocks)
    percentiles = {f"p{part}": polars.col("rate").quantile(part / 100) for part in (10, 50, 90)}
    sums = paying.group_by("group").agg(transactions=polars.len(), **percentiles, fees=polars.sum("fee"))
    return sums.sort("group")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datadir")
    parser.add_argument("--chain", default="main")
    parser.add_argument("--from", dest="first", type=int, default=0)
    parser.add_argument("--to", dest="last", type=int)
    parser.add_argument("--blocks", type=int, default=1000)
    args = parser.parse_args()
    print(f"{'from':>8} {'transactions':>13} {'p10':>8} {'median':>8} {'p90':>8} {'fees, BTC':>16}")
    frame = fees(args.datadir, args.chain, args.first, args.last, args.blocks)
    for group, count, p10, p50, p90, total in frame.iter_rows():
        print(f"{group:8} {count:13,} {p10:8.2f} {p50:8.2f} {p90:8.2f} {total / 1e8:16.8f}")


if __name__ == "__main__":
    main()
