#!/usr/bin/env python3
"""Checks a chain on the workers of a Dask cluster, and makes its chainstate here; or exports what its blocks contain.

Each task is one process of peregrine; Dask gives out the tasks, and repeats those of workers that are lost.
docs/many-machines.md says how to begin, and what is trusted.
"""
import argparse, functools, json, os, pathlib, shutil, socket, subprocess, sys, tempfile
import fsspec
from dask.distributed import Client, as_completed, get_worker

# The list of a delta directory, and what states beside an export what it has.
LIST, STATEMENT = "delta", ".dataset.json"
PREFIXES = [f"{digit:x}0-{digit:x}f" for digit in range(16)]


def peregrine(args, *words):
    """Runs peregrine, and returns its report. An error ends the task with what peregrine says."""
    done = subprocess.run([args.peregrine, *words, "--json"], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{socket.gethostname()}: peregrine {' '.join(words[:2])}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def store_of(args):
    return fsspec.core.url_to_fs(args.store)


def put(args, local, name):
    """Stores a directory. Its list, or what is beside it, comes last: without that, the directory is not stored."""
    fs, root = store_of(args)
    fs.makedirs(f"{root}/{name}", exist_ok=True)
    for path in sorted(pathlib.Path(local).iterdir(), key=lambda path: path.name == LIST):
        fs.put_file(str(path), f"{root}/{name}/{path.name}")
    if os.path.exists(local + STATEMENT):
        fs.put_file(local + STATEMENT, f"{root}/{name}{STATEMENT}")


def fetch(args, name, local, files):
    """Fetches files of a directory that is stored."""
    fs, root = store_of(args)
    os.makedirs(local, exist_ok=True)
    for file in files:
        fs.get_file(f"{root}/{name}/{file}", f"{local}/{file}")


def is_stored(args, name):
    fs, root = store_of(args)
    return fs.exists(f"{root}/{name}/{LIST}") or fs.exists(f"{root}/{name}{STATEMENT}")


def refuse_other(args, home):
    """Refuses a store whose results are of another plan: they would be taken for those of this one."""
    fs, root = store_of(args)
    stored = f"{root}/plan/plan.json"
    if fs.exists(stored) and fs.cat_file(stored) != pathlib.Path(home, "plan.json").read_bytes():
        sys.exit(f"{args.store}: its results are of another plan; pass another --store")


def fetch_plan(args, home):
    """Fetches the plan. A worker needs nothing else but its blocks."""
    fetch(args, "plan", home, ["plan.json", "plan.blocks"])
    return f"{home}/plan.json"


def fetch_blocks(args, home, plan, number):
    """Fetches the bytes of block and undo files that a range needs. Other bytes of the files are holes."""
    fs, root = fsspec.core.url_to_fs(args.blocks)
    blocks = pathlib.Path(home, "node", *args.network_dir, "blocks")
    blocks.mkdir(parents=True)
    if fs.exists(f"{root}/xor.dat"):
        fs.get_file(f"{root}/xor.dat", str(blocks / "xor.dat"))
    for file in peregrine(args, "range", "files", "--plan", plan, "--range", str(number))["files"]:
        with open(blocks / file["file"], "wb") as out:
            out.seek(file["first_byte"])
            out.write(fs.cat_file(f"{root}/{file['file']}", file["first_byte"], file["end_byte"]))
    return f"{home}/node"


def fetch_index(args, blocks):
    """Fetches the block index. All files that it names become as long as they are, with holes."""
    fs, root = fsspec.core.url_to_fs(args.blocks)
    fs.get(f"{root}/index", str(blocks / "index"), recursive=True)
    for file in fs.ls(root, detail=True):
        name = os.path.basename(file["name"].rstrip("/"))
        if name.endswith(".dat") and name != "xor.dat":
            with open(blocks / name, "ab") as out:
                out.truncate(file["size"])


def check(number, args):
    """A task: checks a range, and stores its delta."""
    name, checker = f"r{number}", args.checker or str(get_worker().name)
    if not is_stored(args, name):
        with tempfile.TemporaryDirectory(dir=args.scratch) as home:
            plan = fetch_plan(args, home)
            datadir = args.datadir or fetch_blocks(args, home, plan, number)
            where = ["--datadir", datadir, "-o", f"{home}/{name}", "--checker", checker]
            peregrine(args, "range", "check", "--plan", plan, "--range", str(number), *where, *args.check_options)
            put(args, f"{home}/{name}", name)
    return f"range {number}: {checker}"


def export(number, table, args):
    """A task: exports a table of what the blocks of a range contain, and stores it."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as home:
        plan = fetch_plan(args, home)
        blocks = json.loads(pathlib.Path(plan).read_text())
        first, last = (blocks["ranges"][number][key] for key in ("from", "to"))
        name = f"{table}/from_height={first:07}"
        if not is_stored(args, name):
            datadir = args.datadir or fetch_blocks(args, home, plan, number)
            if args.blocks:
                fetch_index(args, pathlib.Path(datadir, *args.network_dir, "blocks"))
            where = ["--datadir", datadir, "--chain", blocks["chain"], "-o", f"{home}/out"]
            heights = ["--from", str(first), "--to", str(last)]
            report = peregrine(args, "export", table, *where, *heights, *args.check_options)
            if last == blocks["height"] and report["block_hash"] != blocks["block_hash"]:
                raise RuntimeError(f"the block index has another block at height {last} than the plan; make the plan again")
            put(args, f"{home}/out", name)
    return name


def export_history(prefixes, args):
    """A task: exports the history of the scripts whose hashes begin so, from all blocks. Its report is stored last."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as home:
        fs, root = store_of(args)
        report_file = f"{root}/history/{prefixes}.json"
        if not fs.exists(report_file):
            blocks = json.loads(pathlib.Path(fetch_plan(args, home)).read_text())
            datadir, out = args.datadir or f"{home}/node", pathlib.Path(home, "out")
            if args.blocks:
                fetched = pathlib.Path(datadir, *args.network_dir, "blocks")
                fetched.parent.mkdir(parents=True)
                source, path = fsspec.core.url_to_fs(args.blocks)
                source.get(path, str(fetched), recursive=True)
            where = ["--datadir", datadir, "--chain", blocks["chain"], "-o", str(out)]
            wanted = ["--prefixes", prefixes, "--to", str(blocks["height"])]
            report = peregrine(args, "export", "history", *where, *wanted, *args.check_options)
            if report["block_hash"] != blocks["block_hash"]:
                raise RuntimeError(f"the block at height {blocks['height']} is not the plan's; make the plan again")
            for path in out.glob("*/*/**/*.*"):
                name = f"{root}/history/{path.relative_to(out)}"
                fs.makedirs(os.path.dirname(name), exist_ok=True)
                fs.put_file(str(path), name)
            fs.put_file(f"{out}{STATEMENT}", f"{root}/history/dataset-{prefixes}.json")
            fs.pipe_file(report_file, json.dumps(report).encode())
    return f"history/{prefixes}"


def sum_history(args):
    """Adds the coins that are left over in all parts of the history, and says with what they must agree."""
    fs, root = store_of(args)
    reports = [json.loads(fs.cat_file(f"{root}/history/{prefixes}.json")) for prefixes in PREFIXES]
    coins, amount = (sum(report[key] for report in reports) for key in ("coins", "total_amount_sat"))
    compared = sum(report["is_chainstate"] for report in reports)
    print(f"history: {coins} coins, {amount} satoshis; {compared} of {len(PREFIXES)} parts were compared with a chainstate")


def merge(shard, ranges, args):
    """A task: merges a shard of all ranges, and stores the result."""
    name = f"s{shard}"
    if not is_stored(args, name):
        with tempfile.TemporaryDirectory(dir=args.scratch) as home:
            inputs = [f"{home}/r{number}" for number in range(ranges)]
            for local in inputs:
                fetch(args, os.path.basename(local), local, ["delta", f"shard-{shard:03}.run"])
            output = f"{home}/{name}"
            peregrine(args, "range", "merge", "--plan", fetch_plan(args, home), "--shard", str(shard), "-o", output, *inputs)
            put(args, output, name)
    return f"shard {shard}"


def finish(plan, shards, args):
    """Fetches the merged shards, and makes the chainstate on this machine."""
    with tempfile.TemporaryDirectory(dir=args.scratch) as home:
        inputs = [f"{home}/s{shard}" for shard in range(shards)]
        for shard, local in enumerate(inputs):
            fetch(args, f"s{shard}", local, ["delta", f"shard-{shard:03}.run"])
        recheck = ["--recheck", args.recheck, "--datadir", args.datadir] if args.recheck else []
        command = ["finish", "--plan", plan, "--output", args.output, *recheck, *inputs]
        return subprocess.run([args.peregrine, "range", *command, "--progress", "none"]).returncode


def wait_for(tasks):
    for done, task in enumerate(as_completed(tasks), 1):
        print(f"{done} of {len(tasks)}: {task.result()}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", required=True, help="address of the Dask scheduler: tcp://HOST:8786")
    parser.add_argument("--plan", required=True, help="what peregrine range plan has written")
    parser.add_argument("--store", required=True, help="where results go: a folder that all see, or a URL of fsspec")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--output", help="datadir to write the chainstate to")
    what.add_argument("--export", action="append", help="instead: a table of peregrine export; can be given repeatedly")
    parser.add_argument("--datadir", help="path of a datadir with the blocks, on each worker")
    parser.add_argument("--blocks", help="instead: a URL of the directory blocks, of which workers fetch what they need")
    parser.add_argument("--peregrine", default="peregrine", help="path of the program, on each worker")
    parser.add_argument("--checker", help="name of the machines in the report [default: that of the Dask worker]")
    parser.add_argument("--recheck", help="share of the ranges to check again on this machine, in percent")
    parser.add_argument("--scratch", help="folder for temporary files, on each worker")
    parser.add_argument("--retries", type=int, default=3, help="how often a task that fails is repeated")
    parser.add_argument("check_options", nargs="*", help="after --: further options for peregrine range check, or export")
    args = parser.parse_args()
    if not (args.datadir or args.blocks):
        parser.error("pass --datadir or --blocks")
    if args.recheck and not args.datadir:
        parser.error("--recheck needs --datadir, with the blocks on this machine")
    plan = json.loads(pathlib.Path(args.plan).read_text())
    networks = {"main": [], "test": ["testnet3"]}
    args.network_dir = networks.get(plan["chain"], [plan["chain"]])
    ranges, shards = len(plan["ranges"]), plan["shards"]
    with tempfile.TemporaryDirectory() as home:
        for suffix in [".json", ".blocks"]:
            shutil.copy(pathlib.Path(args.plan).with_suffix(suffix), f"{home}/plan{suffix}")
        refuse_other(args, home)
        put(args, home, "plan")
    with Client(args.scheduler) as client:
        submit = functools.partial(client.submit, retries=args.retries, pure=False)
        if args.export:
            tables = [table for table in args.export if table != "history"]
            tasks = [submit(export, number, table, args) for table in tables for number in range(ranges)]
            if "history" in args.export:
                tasks += [submit(export_history, prefixes, args) for prefixes in PREFIXES]
            wait_for(tasks)
            if "history" in args.export:
                sum_history(args)
            return
        wait_for([submit(check, number, args) for number in range(ranges)])
        wait_for([submit(merge, shard, ranges, args) for shard in range(shards)])
    sys.exit(finish(args.plan, shards, args))


if __name__ == "__main__":
    main()
