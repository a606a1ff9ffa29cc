//! Settings, indexes and logs with which bitcoind does not start, or discards what it has.

use super::{Situation, break_file, reported, row};
use std::{fs, os::unix::fs::symlink};

pub(super) const SETTINGS: &[Situation] = &[
    row("prune=300 in bitcoin.conf", |at| at.conf("prune=300\n")),
    row("prune=-5 in bitcoin.conf", |at| at.conf("[regtest]\nprune=-5\n")),
    row("prune=550 and txindex=1", |at| at.conf("prune=550\ntxindex=1\n")),
    row("prune=550 and txospenderindex=1", |at| at.conf("prune=550\n[regtest]\ntxospenderindex=1\n")),
    row("prune=550 and reindex-chainstate=1", |at| at.conf("prune=550\nreindex-chainstate=1\n")),
    row("blockfilterindex=foo", |at| at.conf("blockfilterindex=foo\n")),
    row("peerblockfilters=1 alone", |at| at.conf("peerblockfilters=1\n")),
    row("forcednsseed=1 and dnsseed=0", |at| at.conf("dnsseed=0\nforcednsseed=1\n")),
    row("listenonion=1 and listen=0", |at| at.conf("listen=0\nlistenonion=1\n")),
    row("listen: bind= and listen=0", |at| at.conf("listen=0\n[regtest]\nbind=127.0.0.1\n")),
    row("maxmempool=1", |at| at.conf("maxmempool=1\n")),
    row("minimumchainwork=zz", |at| at.conf("minimumchainwork=zz\n")),
    row("listenonion=1 and a proxy", |at| at.conf("proxy=127.0.0.1:1\nlistenonion=1\n")),
    row("onlynet=tor", |at| at.conf("onlynet=tor\n")),
    row("onlynet=Onion", |at| at.conf("onlynet=Onion\nproxy=127.0.0.1:1\n")),
    row("peertimeout=0", |at| at.conf("peertimeout=0\n")),
    row("port=18555 for all chains", |at| at.conf("port=18555\n")),
    row("port=99999", |at| at.conf("[regtest]\nport=99999\n")),
    row("blocksxor=0 though the block files have a key", |at| at.conf("blocksxor=0\n")),
    row("testnet=1 beside regtest=1", |at| at.conf("regtest=1\ntestnet=1\n")),
    row("stopatheight=5 left in bitcoin.conf", |at| at.conf("stopatheight=5\n")),
    row("a # behind rpcpassword", |at| at.conf("rpcuser=a\nrpcpassword=b#c\n")),
    row("conf= in bitcoin.conf", |at| at.conf("conf=other.conf\n")),
    row("reindex=1 left in bitcoin.conf", |at| at.conf("# once\nreindex=1\n")),
    row("reindex-chainstate=1 left in bitcoin.conf", |at| at.conf("reindex-chainstate=1\n")),
    row("an unknown section in bitcoin.conf", |at| at.conf("[regtestnet]\nblocksdir=Y\n")),
    reported("settings.json: empty", "Start9Labs/bitcoin-core-startos#66", |at| {
        at.write("settings.json", "")
    }),
    reported("settings.json: cut", "Start9Labs/bitcoin-core-startos#66", |at| {
        at.write("settings.json", "{\"prune\"")
    }),
    row("settings.json: a list", |at| at.write("settings.json", "[]")),
    row("settings.json: another file, cut", |at| {
        at.conf("settings=mine.json\n")?;
        at.write("mine.json", "{")
    }),
    row("settings.json: a name twice", |at| at.write("settings.json", r#"{"a": 1, "a": 2}"#)),
    row("settings.json: a folder", |at| at.put_folder("settings.json")),
    row(".lock: a folder", |at| at.put_folder(".lock")),
    row("debug.log: a folder", |at| at.put_folder("debug.log")),
    row("chainstate: its lock is a folder", |at| at.put_folder("chainstate/LOCK")),
    reported("peers.dat: cut", "bitcoin#26599", |at| at.write("peers.dat", "a few bytes")),
    row("log: a start that ended with an error", |at| {
        at.log("[error] Could not find asmap file \"/x\"\n2026 Shutdown in progress...\n2026 Shutdown done")
    }),
    row("settings.json: reindex", |at| at.write("settings.json", "{\"reindex\": true}")),
    reported("blocks: in a directory that settings.json names", "bitcoin#12828", |at| {
        at.move_block_files()?;
        let dir = at.other_blocksdir();
        at.write("settings.json", &format!("{{\"blocksdir\": \"{}\"}}", dir.display()))
    }),
    reported("blocks: in a directory that a section names", "bitcoin#13777", |at| {
        at.move_block_files()?;
        at.conf(&format!("[regtest]\nblocksdir={}\n", at.other_blocksdir().display()))
    }),
    row("blocks: in a directory that a file elsewhere names", |at| {
        at.move_block_files()?;
        let dir = at.other_blocksdir();
        at.log(&format!("Config file arg: [regtest] blocksdir=\"{}\"", dir.display()))
    }),
    row("pruned, by settings.json", |at| at.prune()?.write("settings.json", "{\"prune\": \"1000\"}")),
    row("pruned by hand, and the chainstate is broken", |at| {
        at.prune_with("[regtest]\nprune=1\n")?.remove("chainstate/CURRENT")
    }),
    row("pruned, and all block and undo files are missing", |at| {
        at.prune_with("prune=600\n")?.remove_all("blk")?;
        at.remove_all("rev")
    }),
    row("pruned, and blocks are gone", |at| at.prune_with("prune=600\n")?.remove("blocks")),
    reported("pruned, and then blockfilterindex=1", "bitcoinknots/bitcoin#87", |at| {
        at.prune()?.conf("prune=550\nblockfilterindex=1\n")
    }),
    row("pruned, and then coinstatsindex=1", |at| at.prune()?.conf("prune=550\ncoinstatsindex=1\n")),
    row("pruned, and then blockfilterindex=1 is damaged", |at| {
        at.prune_with("prune=550\nblockfilterindex=1\n")?.damage_filters()
    }),
    row("pruned, and filters that no setting wants are damaged", |at| {
        at.prune_with("prune=550\n")?.damage_filters()
    }),
    reported("network: a link to nothing", "raspibolt/raspibolt#479", |at| {
        fs::rename(&at.net, at.away())?;
        symlink("unmounted", &at.net)
    }),
    row("datadir: a link to nothing", |at| {
        fs::rename(&at.root, at.away())?;
        symlink("unmounted", &at.root)
    }),
    row("log: a broken table of the chainstate", |at| {
        let table = at.largest("chainstate")?;
        break_file(&table)?;
        let name = table.file_name().unwrap_or_default().display();
        at.log(&format!("Fatal LevelDB error: Corruption: block checksum mismatch: /x/chainstate/{name}"))
    }),
    row("log: an error of a database that it does not name", |at| {
        at.log("Error reading from database: Corruption: corrupted key")
    }),
    reported("indexes: a txindex without its tables", "raspiblitz#425", |at| {
        at.conf("txindex=1\n")?;
        fs::create_dir_all(at.path("indexes/txindex"))?;
        at.write("indexes/txindex/CURRENT", "MANIFEST-000007\n")
    }),
    row("indexes: a file where filters must be", |at| {
        fs::create_dir_all(at.path("indexes/blockfilter"))?;
        at.write("indexes/blockfilter/basic", "a file")
    }),
];
