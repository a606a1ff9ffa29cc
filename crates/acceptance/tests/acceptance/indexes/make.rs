//! Indexes that are made are those that the blocks give, by another library, and the same with any number of
//! threads and any memory.

use acceptance::indexes::{assert_sound, contents, database, make, of_case, of_datadir, rows, with_indexes};
use acceptance::prelude::*;
use bitcoin::hashes::Hash as _;
use bitcoin::{
    Block, OutPoint, ScriptBuf,
    bip158::BlockFilter,
    consensus::{deserialize, encode::serialize},
};
use disk::node_indexes::NodeIndex;

#[test]
fn threads_and_memory_do_not_change_a_row() {
    for tx_form in [TxForm::ByTxid, TxForm::ByBlock] {
        let mut first = None;
        for (threads, memory) in [(1, MIN_MEMORY), (2, 1 << 30), (8, MIN_MEMORY)] {
            let case = Case::at_tip();
            let mut options = of_case(&case, tx_form);
            options.chain.threads = NonZeroUsize::new(threads).unwrap();
            options.chain.memory_bytes = memory;
            let made = make(&FaultDisk::healthy(), &options).unwrap();
            assert_eq!((made.height, made.result.indexes.len(), made.result.kept.len()), (Height(TIP), 4, 0));
            assert_sound(&options, TIP);
            assert_eq!(leftovers(case.root()), [] as [&Path; 0]);
            let found = contents(case.root(), &IndexKind::ALL);
            for (index, rows) in made.result.indexes.iter().zip(&found.0) {
                assert_eq!(index.rows, rows.len() as u64, "{index:?}");
            }
            assert!(*first.get_or_insert(found.clone()) == found, "{threads} threads, {tx_form:?}");
        }
    }
}

/// Another library reads the blocks, finds the offsets, and makes the filters.
#[test]
fn the_rows_are_those_that_another_library_gives() {
    let (case, _) = with_indexes(TxForm::ByTxid);
    let tx_rows = rows(&database(&case, IndexKind::Tx));
    let filter_rows = rows(&database(&case, IndexKind::BlockFilter));
    let stats_rows = rows(&database(&case, IndexKind::CoinStats));
    let entries: HashMap<_, _> = case.index().entries.into_iter().map(|entry| (entry.hash, entry)).collect();
    let mut scripts: HashMap<OutPoint, ScriptBuf> = HashMap::new();
    let (mut header, mut transactions, mut inputs) = ([0; 32], 0, 0);
    for (generated, stats) in chain().main().zip(stats_by_height(chain())) {
        let (height, entry) = (generated.height, entries[&generated.hash]);
        let block: Block = deserialize(&generated.bytes).unwrap();
        let mut offset = serialize(&bitcoin::VarInt(block.txdata.len() as u64)).len();
        for tx in &block.txdata {
            let txid = tx.compute_txid();
            let mut place = Vec::new();
            write_var_int(&mut place, entry.file.unwrap().0.into());
            write_var_int(&mut place, entry.data_pos.unwrap().0);
            write_var_int(&mut place, offset as u64);
            let key = [&b"t"[..], &txid.to_byte_array()].concat();
            assert_eq!(tx_rows.get(&key), (height > 0).then_some(&place), "block {height}");
            offset += tx.total_size();
            for (vout, output) in (0..).zip(&tx.output) {
                scripts.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
            }
            (transactions, inputs) = (transactions + 1, inputs + tx.input.len());
        }
        let spent = |outpoint: &OutPoint| Ok(scripts[outpoint].clone());
        let filter = BlockFilter::new_script_filter(&block, spent).unwrap();
        let hash = bitcoin::hashes::sha256d::Hash::hash(&filter.content).to_byte_array();
        header = bitcoin::hashes::sha256d::Hash::hash(&[hash, header].concat()).to_byte_array();
        let key = [&b"t"[..], &height.to_be_bytes()].concat();
        let value = &filter_rows[&key];
        assert_eq!(value[..96], [generated.hash.0, hash, header].concat(), "block {height}");
        let row = &stats_rows[&key];
        assert_eq!(row[..32], generated.hash.0);
        assert_eq!(row[64..72], stats.txouts.to_le_bytes(), "block {height}");
        assert_eq!(row[80..88], stats.total_amount.to_le_bytes(), "block {height}");
    }
    // The best block has a row, and the genesis block's transaction none.
    assert_eq!(tx_rows.len(), transactions);
    // The key of the hashes has one too, and coinbases spend nothing.
    let spends = rows(&database(&case, IndexKind::TxoSpender)).len();
    assert_eq!(spends, inputs - (TIP as usize + 1) + 2);
}

/// `gettxoutsetinfo` printed the MuHash at these heights.
#[test]
fn datadirs_of_core_get_the_statistics_that_core_printed() {
    for (name, network) in CORE_DATADIRS {
        let (Some(dir), Some(known)) = (unpack_core_datadir(name), known_answers(name)) else { return };
        let tip = known.iter().filter_map(|line| line["height"].as_u64()).max().unwrap() as u32;
        let net = network.subdirectory().map_or(dir.path().to_owned(), |name| dir.path().join(name));
        for tx_form in [TxForm::ByTxid, TxForm::ByBlock] {
            let options = of_datadir(dir.path(), network, tx_form);
            make(&FaultDisk::healthy(), &options).unwrap();
            assert_sound(&options, tip);
        }
        let rows = rows(&net.join(IndexKind::CoinStats.database_dir()));
        for line in known {
            let height = line["height"].as_u64().unwrap() as u32;
            let row = &rows[&[&b"t"[..], &height.to_be_bytes()].concat()];
            assert_eq!(hex_reversed(row[32..64].try_into().unwrap()), line["muhash"], "{name} at {height}");
            let number = |at: usize| u64::from_le_bytes(row[at..at + 8].try_into().unwrap());
            assert_eq!(Some(number(64)), line["txouts"].as_u64(), "{name} at {height}");
            assert_eq!(Some(number(72)), line["bogosize"].as_u64(), "{name} at {height}");
        }
    }
}

fn refused(options: &IndexOptions, kind: ErrorKind, remedy: Remedy) {
    assert_offers(&assert_fails(make(&FaultDisk::healthy(), options), kind, &[]), &[remedy]);
}

#[test]
fn what_cannot_be_made_is_refused() {
    let case = Case::at_tip();
    let options = of_case(&case, TxForm::ByTxid);
    refused(&IndexOptions { kinds: Vec::new(), ..options.clone() }, ErrorKind::Usage, Remedy::NameIndex);
    let rev = case.blocks("rev00000.dat");
    let bytes = fs::read(&rev).unwrap();
    fs::write(&rev, &bytes[..bytes.len() / 2]).unwrap();
    refused(&options, ErrorKind::Damaged, Remedy::MakeUndo);
    let without_undo = vec![IndexKind::Tx, IndexKind::TxoSpender];
    make(&FaultDisk::healthy(), &IndexOptions { kinds: without_undo, ..options.clone() }).unwrap();
    fs::write(&rev, bytes).unwrap();
    fs::remove_dir_all(case.net("chainstate")).unwrap();
    refused(&options, ErrorKind::Damaged, Remedy::RebuildChainstate);
    let other = of_datadir(case.root(), Network::Signet, TxForm::ByTxid);
    assert!(make(&FaultDisk::healthy(), &other).is_err());
}

/// The space was once measured on the disk of the datadir, also for an index that is a link to another one.
#[test]
fn an_index_that_is_a_link_needs_space_where_the_link_leads() {
    let (case, elsewhere) = (Case::at_tip(), scratch());
    let mut options = IndexOptions { kinds: vec![IndexKind::Tx], ..of_case(&case, TxForm::ByTxid) };
    options.chain.work_dir = Some(std::env::temp_dir());
    make(&FaultDisk::healthy(), &options).unwrap();
    let (live, target) = (database(&case, IndexKind::Tx), elsewhere.path().join("txindex"));
    acceptance::link_away(&live, &target);

    let full = || make(&FaultDisk::healthy().with_free_space(elsewhere.path(), 0), &options);
    let error = refused_by(elsewhere.path(), ErrorKind::Environment, &["disk space"], full);
    // Another place for temporary files was advised, which go elsewhere already.
    assert_eq!(error.remedies, [Remedy::FreeDiskSpace]);
    make(&FaultDisk::healthy().with_free_space(case.root(), 0), &options).unwrap();
    assert!(live.is_symlink());
}

/// The command that was repeated after an interrupt made it by txid, 2.5 times as large.
#[test]
fn a_txindex_that_an_interrupted_run_has_set_aside_keeps_the_form_of_its_rows() {
    let (case, all) = with_indexes(TxForm::ByBlock);
    let indexes = NodeIndex::find(&RealDisk, &case.root().join("regtest")).unwrap();
    let old = indexes.into_iter().find(|index| index.kind == IndexKind::Tx).unwrap();
    let aside = old.set_aside(&RealDisk, true).unwrap();
    let options = IndexOptions { kinds: vec![IndexKind::Tx], tx_form: None, ..all };
    let made = make(&FaultDisk::healthy(), &options.with_old_form(&RealDisk)).unwrap();
    assert_eq!(made.result.indexes[0].form, Some(TxForm::ByBlock));
    assert!(!aside.exists());
}
