"""Bitcoin's UTXO set and blocks as Arrow record batches, from the files of a Bitcoin Core node.

`datadir` is the directory that `bitcoind -datadir` names, and `blocksdir` the one of `-blocksdir`; `bitcoin.conf`
is not read. `chain` is `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain that the
datadir has, or `main`. Amounts are in satoshis. Columns with hashes have 32 bytes in the order of the hash
function, which Bitcoin Core prints reversed; reports have hashes as Core prints them. `threads` is the number of
worker threads, one for each core if it is None; `columns` names the columns that are made, all but `address` and
those of spends if it is None; `memory` is the limit in bytes for the whole process, without the rows that the
caller keeps, a quarter of the machine's memory if it is None.

All functions raise `Error`, and can be interrupted with Ctrl-C.
"""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict, final, type_check_only

__all__ = [
    "Error",
    "RowStream",
    "__version__",
    "blocks",
    "inputs",
    "outputs",
    "reindex",
    "transactions",
    "utxo",
]

__version__: str

_Path = str | PathLike[str]
_Chain = Literal["main", "test", "testnet4", "signet", "regtest"]

class Error(Exception):
    """What went wrong, and where. An attribute is None where it is not known."""

    kind: Literal[
        "usage", "consensus", "damaged", "missing", "hints", "environment", "interrupted", "internal"
    ]
    detail: str
    """What is wrong, without the place."""
    text: str
    """What is wrong, with the place, and without what helps."""
    height: int | None
    """Height of the affected block."""
    block_hash: str | None
    txid: str | None
    input: int | None
    """Index of the input of that transaction."""
    rule: str | None
    """The consensus rule that is broken."""
    requirement: str | None
    """What that rule requires."""
    core: str | None
    """Bitcoin Core's reject string."""
    file: Path | None
    offset: int | None
    """Byte in the file."""
    remedies: list[str]
    """What helps, as names; the message has it as text."""

@type_check_only
class UnspentOutputs(TypedDict):
    """The outputs that no input spends: the UTXO set."""

    coins: int
    total_amount_sat: int
    muhash: str

@type_check_only
class SpentTo(TypedDict):
    """Up to which block inputs were looked at."""

    height: int
    block_hash: str
    unspent: UnspentOutputs | None
    """None unless all outputs up to that block were read."""

@type_check_only
class RowsReport(TypedDict):
    """What was read. The fields of coins come after `block_hash`, and then those of blocks."""

    chain: str
    block_hash: str
    """The block after which the coins are unspent, or the last block that was read."""
    height: NotRequired[int | None]
    coins: NotRequired[int]
    transactions: NotRequired[int]
    """Number of transactions with coins."""
    bogosize: NotRequired[int]
    total_amount_sat: NotRequired[int]
    hash_serialized_3: NotRequired[str]
    muhash: NotRequired[str | None]
    matches_core_assumeutxo_hash: NotRequired[bool | None]
    """None if Bitcoin Core's source has no hash for this block; never False, which is an error."""
    from_height: NotRequired[int]
    to_height: NotRequired[int]
    spent_to: NotRequired[SpentTo]
    """Of outputs with `spent`: the last block whose inputs were looked at."""

@final
class RowStream:
    """Rows that are read while a library consumes them, and again each time that one takes them.

    At most a few batches are in memory. If reading fails after the first batch, the library raises its own
    exception with the text of the error; `report` then raises the `Error`.
    """

    def __arrow_c_schema__(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any: ...
    def report(self) -> RowsReport:
        """Returns what was read, when all rows were taken."""

@type_check_only
class RebuildReport(TypedDict):
    """What a rebuild did: the fields of the command line's JSON, which docs/json.md describes, and `warnings`."""

    chain: str
    height: int
    block_hash: str
    blocks: int
    transactions: int
    inputs: int
    outputs_created: int
    block_bytes: int
    script_inputs: int | None
    """Number of inputs whose scripts were run; None if this build cannot run them."""
    coins: int
    total_amount_sat: int
    hash_serialized_3: str
    matches_core_assumeutxo_hash: bool | None
    scripts: dict[str, Any]
    matching: str
    hints: dict[str, Any] | None
    resumed_blocks: int
    memory_budget_bytes: int
    temporary_runs: int
    temporary_bytes_written: int
    temporary_bytes_peak: int
    spend_ages: list[int]
    threads: int
    seconds: float
    stages: list[dict[str, Any]]
    bound_by: str
    sha256: str
    sha256_limit: dict[str, Any]
    peak_memory_bytes: int | None
    chainstate: Path
    kept: list[Path]
    undo: dict[str, Any] | None
    lost_blocks: int
    damaged_blocks: int
    unconnected_blocks: int
    notes: list[dict[str, Any]]
    """What the operator must know, as codes with fields and text."""
    warnings: list[str]
    """The texts of `notes`."""

@type_check_only
class Event(TypedDict):
    """Something that happens in a rebuild. Progress has either the fields of blocks or those of coins."""

    event: Literal["stage", "progress", "message"]
    stage: str | None
    blocks: NotRequired[int]
    blocks_total: NotRequired[int]
    bytes: NotRequired[int]
    bytes_total: NotRequired[int]
    coins: NotRequired[int]
    coins_total: NotRequired[int]
    text: NotRequired[str]

def utxo(
    datadir: _Path,
    height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    addresses: bool = False,
    columns: Sequence[str] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    work_dir: _Path | None = None,
) -> RowStream:
    """Reads the coins of the chainstate, in the order of txids and of `vout`.

    With `height`, those after the block there: all blocks up to it are checked as in a rebuild, and no
    chainstate is needed; temporary files go to `work_dir`, or to the system's folder for them. `scan` then finds
    blocks without the block index.
    """

def blocks(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    columns: Sequence[str] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> RowStream:
    """Reads blocks, in order of height: what `getblockstats` returns, and the header.

    The last block is the chainstate's best block if `to_height` is None. Undo files are needed.
    """

def transactions(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    columns: Sequence[str] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> RowStream:
    """Reads the transactions of blocks with their fees, in the order of the chain. Undo files are needed."""

def inputs(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    addresses: bool = False,
    columns: Sequence[str] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> RowStream:
    """Reads the inputs of blocks with the coins that they spend, in the order of the chain.

    Coinbases have none. Undo files are needed.
    """

def outputs(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    addresses: bool = False,
    spent: bool = False,
    columns: Sequence[str] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    work_dir: _Path | None = None,
) -> RowStream:
    """Reads the outputs of blocks, spent or not, in the order of the chain.

    With `spent`, or with columns that begin with `spent_`, also the inputs that spend them: all blocks from
    `from_height` on are read first, and undo files are needed. What does not fit into half of the memory goes to
    temporary files in `work_dir`, or in the system's folder for them.
    """

def reindex(
    datadir: _Path,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    output: _Path | None = None,
    stop_at_height: int | None = None,
    scan: bool = False,
    engine: Literal["join", "cache"] = "join",
    undo: Literal["auto", "trust", "make"] = "auto",
    assumevalid: str | None = None,
    accept_lower_tip: bool = False,
    until_damage: bool = False,
    set_aside_indexes: bool = False,
    keep_old: bool = False,
    restart: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    work_dir: _Path | None = None,
    progress: Callable[[Event], object] | None = None,
) -> RebuildReport:
    """Rebuilds the chainstate from block and undo files, and replaces the old one.

    The arguments are those of the command `peregrine reindex`. `progress` is called with each event, a few times
    a second. An exception of it, or Ctrl-C, interrupts the rebuild: the datadir is unchanged, and the same call
    resumes it. The cause of that exception is an `Error` that names what was saved.
    """
