"""Bitcoin's UTXO set and blocks as Arrow record batches, from the files of a Bitcoin Core node.

Amounts are in satoshis. Columns with hashes have 32 bytes in the order of the hash function, which
Bitcoin Core prints reversed; reports have hashes as Core prints them. Times are in UTC. The functions
give a `RowStream`, which any library takes that takes Arrow data.

All functions raise `Error`, or `OverflowError` or `ValueError` for a number out of range, and can be
interrupted with Ctrl-C.
"""

from collections.abc import Callable
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
    columns: list[str] | tuple[str, ...] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    work_dir: _Path | None = None,
) -> RowStream:
    """Reads the coins of the chainstate, in the order of txids and of `vout`, or those after a block.

    Arguments:

    - `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read
    - `height`: read the coins after the block at this height. All blocks up to it are checked as in a
      rebuild, and no chainstate is needed
    - `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain
      that the datadir has, or `main`
    - `blocksdir`: the directory that `bitcoind -blocksdir` names
    - `addresses`: also make the column `address`
    - `columns`: the names of the columns that are made; if it is None, all but `address` and
      those that begin with `spent_`
    - `scan`: with `height`, find blocks and undo data by reading their files, without the block index
    - `threads`: the number of worker threads; if it is None, one for each core
    - `memory`: the limit in bytes for the whole process, with what it has already, and at least
      128 MiB; if it is None, a quarter of the machine's memory
    - `work_dir`: the directory for temporary files; if it is None, the system's

    Columns:

    - `txid` (32 bytes): The transaction that created it.
    - `vout` (int32): Index of the output in that transaction.
    - `height` (int32): Height of the block that created it.
    - `coinbase` (bool): Whether a coinbase created it.
    - `value` (int64): Its amount, in satoshis.
    - `script_type` (string): Name of the type of its script.
    - `script` (bytes): The output script.
    - `address` (string or null): The address of the script, if it has one and addresses are written.
    - `block_time` (timestamp or null): Time of the block that created it; none if there is no block index with all blocks.
    - `mediantime` (timestamp or null): The median of the times of that block and the ten blocks below.
    """

def blocks(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    columns: list[str] | tuple[str, ...] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> RowStream:
    """Reads blocks, in order of height: what `getblockstats` returns, and the header.

    Undo files are needed. A coin's age is the difference of the `mediantime` of two blocks.

    Arguments:

    - `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read
    - `from_height`: the first block
    - `to_height`: the last block; if it is None, the chainstate's best block, or without a
      chainstate the last block of the chain with the most work
    - `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain
      that the datadir has, or `main`
    - `blocksdir`: the directory that `bitcoind -blocksdir` names
    - `columns`: the names of the columns that are made; if it is None, all but `address` and
      those that begin with `spent_`
    - `scan`: find blocks and undo data by reading their files, without the block index
    - `threads`: the number of worker threads; if it is None, one for each core
    - `memory`: the limit in bytes for the whole process, with what it has already, and at least
      128 MiB; if it is None, a quarter of the machine's memory

    Columns:

    - `height` (int32): Its height.
    - `blockhash` (32 bytes): Its hash.
    - `time` (timestamp): Its time.
    - `mediantime` (timestamp): The median of its time and those of the ten blocks below.
    - `version` (int64): Version.
    - `bits` (int64): Target of the proof of work, in its compact form.
    - `nonce` (int64): Nonce.
    - `size` (int64): Size of the block in bytes.
    - `weight` (int64): Weight of the block.
    - `txs` (int64): Number of transactions.
    - `ins` (int64): Number of inputs, without the coinbase's.
    - `outs` (int64): Number of outputs.
    - `subsidy` (int64): Subsidy, in satoshis.
    - `totalfee` (int64): Sum of all fees, in satoshis.
    - `total_out` (int64): Sum of all outputs but the coinbase's, in satoshis.
    - `total_size` (int64): Size of all transactions but the coinbase, in bytes.
    - `total_weight` (int64): Weight of all transactions but the coinbase.
    - `avgfee` (int64): Mean fee, rounded down.
    - `avgfeerate` (int64): Fees by weight, in satoshis per virtual byte, rounded down.
    - `avgtxsize` (int64): Mean size, rounded down.
    - `feerate_percentile_10` (int64): Fee rate at the 10th percentile of the weight.
    - `feerate_percentile_25` (int64): Fee rate at the 25th percentile of the weight.
    - `feerate_percentile_50` (int64): Fee rate at the 50th percentile of the weight.
    - `feerate_percentile_75` (int64): Fee rate at the 75th percentile of the weight.
    - `feerate_percentile_90` (int64): Fee rate at the 90th percentile of the weight.
    - `maxfee` (int64): Greatest fee.
    - `maxfeerate` (int64): Greatest fee rate.
    - `maxtxsize` (int64): Greatest size of a transaction.
    - `medianfee` (int64): Median fee, rounded down.
    - `mediantxsize` (int64): Median size of a transaction, rounded down.
    - `minfee` (int64): Least fee.
    - `minfeerate` (int64): Least fee rate.
    - `mintxsize` (int64): Least size of a transaction.
    - `swtxs` (int64): Number of transactions with witnesses.
    - `swtotal_size` (int64): Their size.
    - `swtotal_weight` (int64): Their weight.
    - `utxo_increase` (int64): Number of outputs less number of inputs.
    - `utxo_size_inc` (int64): By how much the UTXO set grows, in bytes by Core's measure.
    - `utxo_increase_actual` (int64): Like `utxo_increase`, without outputs that cannot be spent.
    - `utxo_size_inc_actual` (int64): Like `utxo_size_inc`, without outputs that cannot be spent.
    - `coin_days_destroyed` (int64): Sum over the spent coins of amount times age, in satoshis times days, rounded down.
    - `median_spent_age` (int64 or null): The median of the ages of the spent coins, in seconds, or none: the lower of two.
    - `max_spent_age` (int64 or null): The age of the oldest coin that is spent, in seconds.
    """

def transactions(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    columns: list[str] | tuple[str, ...] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> RowStream:
    """Reads the transactions of blocks with their fees, in the order of the chain. Undo files are
    needed.

    Arguments:

    - `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read
    - `from_height`: the first block
    - `to_height`: the last block; if it is None, the chainstate's best block, or without a
      chainstate the last block of the chain with the most work
    - `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain
      that the datadir has, or `main`
    - `blocksdir`: the directory that `bitcoind -blocksdir` names
    - `columns`: the names of the columns that are made; if it is None, all but `address` and
      those that begin with `spent_`
    - `scan`: find blocks and undo data by reading their files, without the block index
    - `threads`: the number of worker threads; if it is None, one for each core
    - `memory`: the limit in bytes for the whole process, with what it has already, and at least
      128 MiB; if it is None, a quarter of the machine's memory

    Columns:

    - `height` (int32): Height of its block.
    - `tx_index` (int32): Its index in the block.
    - `block_time` (timestamp): Time of its block.
    - `txid` (32 bytes): Its id.
    - `wtxid` (32 bytes): Its id with witnesses.
    - `coinbase` (bool): Whether it is the coinbase.
    - `version` (int64): Version.
    - `lock_time` (int64): Lock time.
    - `inputs` (int32): Number of inputs.
    - `outputs` (int32): Number of outputs.
    - `size` (int32): Size in bytes.
    - `weight` (int32): Weight.
    - `vsize` (int32): Virtual size in bytes: a quarter of the weight, rounded up.
    - `value_in` (int64 or null): Sum of the coins that it spends, in satoshis; none for the coinbase.
    - `value_out` (int64): Sum of its outputs, in satoshis.
    - `fee` (int64 or null): Its fee, in satoshis; none for the coinbase.
    """

def inputs(
    datadir: _Path,
    from_height: int = 0,
    to_height: int | None = None,
    *,
    chain: _Chain | None = None,
    blocksdir: _Path | None = None,
    addresses: bool = False,
    columns: list[str] | tuple[str, ...] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
) -> RowStream:
    """Reads the inputs of blocks with the coins that they spend, in the order of the chain.

    Coinbases have none. Undo files are needed.

    Arguments:

    - `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read
    - `from_height`: the first block
    - `to_height`: the last block; if it is None, the chainstate's best block, or without a
      chainstate the last block of the chain with the most work
    - `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain
      that the datadir has, or `main`
    - `blocksdir`: the directory that `bitcoind -blocksdir` names
    - `addresses`: also make the column `address`
    - `columns`: the names of the columns that are made; if it is None, all but `address` and
      those that begin with `spent_`
    - `scan`: find blocks and undo data by reading their files, without the block index
    - `threads`: the number of worker threads; if it is None, one for each core
    - `memory`: the limit in bytes for the whole process, with what it has already, and at least
      128 MiB; if it is None, a quarter of the machine's memory

    Columns:

    - `height` (int32): Height of its block.
    - `tx_index` (int32): Index of its transaction in the block.
    - `input_index` (int32): Its index in the transaction.
    - `block_time` (timestamp): Time of its block.
    - `mediantime` (timestamp): The median of the times of its block and the ten blocks below: it grows from block to block.
    - `txid` (32 bytes): The id of its transaction.
    - `sequence` (int64): Sequence number.
    - `script_sig_bytes` (int32): Length of its script, in bytes.
    - `witness_bytes` (int32): Length of its witness, in bytes as serialised; 0 if its transaction has no witnesses.
    - `sighash` (string or null): Hash types of its signatures in order, such as `ALL`, separated by spaces; none if it has none. They are found by their form, and no script is run.
    - `prev_txid` (32 bytes): The transaction that created the coin.
    - `prev_vout` (int32): Index of the output in that transaction.
    - `prev_height` (int32): Height of the block that created the coin.
    - `prev_mediantime` (timestamp): The same median of that block.
    - `prev_coinbase` (bool): Whether a coinbase created the coin.
    - `value` (int64): Amount of the coin, in satoshis.
    - `script_type` (string): Name of the type of the coin's script.
    - `script` (bytes): The coin's script.
    - `address` (string or null): The address of the script, if it has one and addresses are written.
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
    columns: list[str] | tuple[str, ...] | None = None,
    scan: bool = False,
    threads: int | None = None,
    memory: int | None = None,
    work_dir: _Path | None = None,
) -> RowStream:
    """Reads the outputs of blocks, spent or not, in the order of the chain.

    With `spent`, or with columns that begin with `spent_`, also the inputs that spend them: all blocks from
    `from_height` on are read first, and undo files are needed. What does not fit into half of the memory
    goes to temporary files.

    Arguments:

    - `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read
    - `from_height`: the first block
    - `to_height`: the last block; if it is None, the chainstate's best block, or without a
      chainstate the last block of the chain with the most work
    - `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain
      that the datadir has, or `main`
    - `blocksdir`: the directory that `bitcoind -blocksdir` names
    - `addresses`: also make the column `address`
    - `spent`: also make the columns that begin with `spent_`
    - `columns`: the names of the columns that are made; if it is None, all but `address` and
      those that begin with `spent_`
    - `scan`: find blocks and undo data by reading their files, without the block index
    - `threads`: the number of worker threads; if it is None, one for each core
    - `memory`: the limit in bytes for the whole process, with what it has already, and at least
      128 MiB; if it is None, a quarter of the machine's memory
    - `work_dir`: the directory for temporary files; if it is None, the system's

    Columns:

    - `height` (int32): Height of its block.
    - `tx_index` (int32): Index of its transaction in the block.
    - `vout` (int32): Its index in the transaction.
    - `block_time` (timestamp): Time of its block.
    - `txid` (32 bytes): The id of its transaction.
    - `coinbase` (bool): Whether its transaction is a coinbase.
    - `value` (int64): Its amount, in satoshis.
    - `script_type` (string): Name of the type of its script.
    - `script` (bytes): The output script.
    - `address` (string or null): The address of the script, if it has one and addresses are written.
    - `spent_height` (int32 or null): Height of the block whose input spends it; none if no block that was read does.
    - `spent_tx_index` (int32 or null): Index of that input's transaction in the block.
    - `spent_txid` (32 bytes or null): The id of that transaction.
    - `spent_index` (int32 or null): Index of the input in the transaction.
    - `spent_mediantime` (timestamp or null): The median of the times of that block and the ten blocks below.
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

    The result is the report of the command `peregrine reindex`, whose options the arguments are. An exception
    of `progress`, or Ctrl-C, interrupts a rebuild that has not finished: the datadir is unchanged, and the
    same call resumes it. The cause of that exception is an `Error` that names what was saved, or says that
    the rebuild had finished. An exception with a cause of its own has this as a note, from Python 3.11 on.

    Arguments:

    - `datadir`: the directory that `bitcoind -datadir` names; `bitcoin.conf` is not read
    - `chain`: `main`, `test`, `testnet4`, `signet` or `regtest`; if it is None, the only chain
      that the datadir has, or `main`
    - `blocksdir`: the directory that `bitcoind -blocksdir` names
    - `output`: write the new chainstate, and with `scan` a new block index, to this datadir; leave `datadir`
      as it is
    - `stop_at_height`: the last block; if it is None, that of the chain with the most work
    - `scan`: find blocks and undo data by reading their files, without the block index
    - `engine`: how coins that are spent are found: `join` reads blocks in any order, on all cores, `cache`
      connects them in order, with the same result
    - `undo`: undo data: `auto` uses what is sound and makes the rest, `trust` reports what is missing or
      damaged as an error, `make` uses none
    - `assumevalid`: the hash of a block; its scripts and those of its ancestors are not run. `0`: all scripts
      are run. If it is None, the block is that of the Bitcoin Core release that this version follows.
      `checked`: the same, and above it, scripts that the block index marks as checked are not run
    - `accept_lower_tip`: proceed even if the new databases cover fewer blocks than those that they replace
    - `until_damage`: rebuild up to the block below the lowest one that is damaged or missing
    - `set_aside_indexes`: rename indexes of bitcoind whose rows would become wrong, so that it builds them
      again; otherwise such a rebuild is refused
    - `keep_old`: keep the replaced databases, with the suffix `.old`
    - `restart`: start over, even if an interrupted rebuild can be resumed
    - `threads`: the number of worker threads; if it is None, one for each core
    - `memory`: the limit in bytes for the whole process, with what it has already, and at least
      128 MiB; if it is None, a quarter of the machine's memory
    - `work_dir`: the directory for temporary files; if it is None, they are beside the new chainstate
    - `progress`: called with each event, a few times a second
    """
