"""Which types of scripts the outputs of blocks have: numbers of outputs for each so many blocks.

    python script_types.py ~/.bitcoin [--chain main] [--blocks 10000]
"""

import argparse

import pandas
import peregrine
import pyarrow


def script_types(datadir, chain="main", blocks=10_000):
    """Returns a table: a row for each group of blocks, a column for each type of script."""
    rows = peregrine.outputs(datadir, chain=chain, columns=["height", "script_type"])
    # Each batch is counted as it comes, so that little is in memory.
    tables = [count(batch.to_pandas(), blocks) for batch in pyarrow.RecordBatchReader.from_stream(rows)]
    return pandas.concat(tables).groupby(level="from").sum().astype(int).sort_index(axis="columns")


def count(frame, blocks):
    """Returns the same for some rows."""
    group = (frame["height"] // blocks * blocks).rename("from")
    return pandas.crosstab(group, frame["script_type"].astype(str))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("datadir")
    parser.add_argument("--chain", default="main")
    parser.add_argument("--blocks", type=int, default=10_000)
    args = parser.parse_args()
    print(script_types(args.datadir, args.chain, args.blocks).to_string())


if __name__ == "__main__":
    main()
