//! Blocks read from files, undo data, and chainstate tables, all written to and read from memory (`/dev/shm`,
//! if it exists).

use crate::{Subject, temporary};
use bench::{
    Answers,
    baseline::files::{FieldReader, FieldWriter, Xor, read_whole},
    work,
};
use criterion::{BatchSize, Criterion, Throughput};
use digest::obfuscation::Obfuscation;
use disk::{
    blk,
    block_files::{BlockFiles, RecordBuffer},
    datadir::{Datadir, FileKind},
    undo::{UndoArena, UndoView, write_record, write_undo},
};
use std::{
    fs::{self, File},
    hint::black_box,
    io::{Seek as _, Write as _},
};
use vfs::RealDisk;
use wire::{BlockArena, ByteOffset, FileNo, Network};

pub fn benches(criterion: &mut Criterion, subject: &Subject<'_>, answers: &mut Answers) {
    read_block(criterion, subject);
    write_undo_data(criterion, subject);
    let undo = subject.block.undo;
    let mut arena = UndoArena::default();
    let mut group = criterion.benchmark_group("undo");
    group.throughput(Throughput::Bytes(undo.len() as u64));
    group.bench_function("parse", |b| {
        b.iter(|| UndoView::parse(black_box(undo), &mut arena).map(|view| view.coin_count()));
    });
    group.finish();
    let view = UndoView::parse(undo, &mut arena).expect("generated undo data is well-formed");
    answers.add("undo", &view.coins().flat_map(|coin| coin.out).copied().collect::<Vec<_>>());

    let coins = work::spent_coins(subject.blocks);
    let dir = temporary();
    work::write_chainstate(dir.path(), &coins);
    let reader = work::open_chainstate(dir.path());
    answers.add("chainstate", work::utxo_hash(work::read_chainstate(&reader)).as_bytes());

    let mut group = criterion.benchmark_group("chainstate");
    group.throughput(Throughput::Elements(coins.len() as u64));
    group.bench_function("write", |b| {
        b.iter_batched(temporary, |dir| work::write_chainstate(dir.path(), &coins), BatchSize::PerIteration);
    });
    group.bench_function("read and serialise for the UTXO hash", |b| {
        b.iter(|| work::read_chainstate(&reader));
    });
}

const KEY: [u8; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

/// Reads a block from a file that is in the page cache: its bytes only, and parsed.
fn read_block(criterion: &mut Criterion, subject: &Subject<'_>) {
    let bytes = subject.block.view.bytes();
    let (dir, key) = (temporary(), Obfuscation::from_key(KEY));
    let datadir = Datadir::at(dir.path(), Network::Regtest);
    let path = datadir.block_file_path(FileKind::Blk, FileNo(0));
    let mut record = Vec::new();
    blk::write_record(&mut record, datadir.magic(), bytes);
    let position = (record.len() - bytes.len()) as u64;
    key.apply(&mut record, 0);
    fs::create_dir_all(datadir.blocks_dir()).expect("folders can be made");
    fs::write(&path, record).expect("files can be written");
    let open = || File::open(&path).expect("the file is there");
    let file = BlockFiles::new(&RealDisk, &datadir, key).open(FileKind::Blk, FileNo(0)).expect("it is there");
    let (mut buffer, mut arena, position) = (RecordBuffer::default(), BlockArena::default(), position);
    file.read(ByteOffset(position), &mut buffer).expect("it is a record");
    assert_eq!(buffer.bytes(), bytes);
    let xor = Xor { key, is_bytewise: false };
    let (mut fields, plain, mut copy) = (FieldReader::new(open(), xor), open(), Vec::new());
    assert_eq!(fields.read_block(position).expect("it is a block"), bytes);
    let bytewise = Xor { is_bytewise: true, ..xor };
    read_whole(&plain, bytewise, position, &mut copy).expect("it is a record");
    assert_eq!(copy, bytes);

    let mut group = criterion.benchmark_group("read a block");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("raw", |b| b.iter(|| file.read(ByteOffset(position), &mut buffer).is_ok()));
    group.bench_function("raw, XOR byte by byte", |b| {
        b.iter(|| read_whole(&plain, bytewise, position, &mut copy).is_ok());
    });
    group.bench_function("parsed", |b| {
        b.iter(|| {
            file.read(ByteOffset(position), &mut buffer).expect("it is a record");
            arena.parse(buffer.bytes()).map(|block| block.tx_count())
        });
    });
    group.bench_function("parsed, field by field", |b| b.iter(|| fields.read_block(position).is_ok()));
    group.bench_function("parsed, crate bitcoin", |b| {
        b.iter(|| {
            file.read(ByteOffset(position), &mut buffer).expect("it is a record");
            bitcoin::consensus::deserialize::<bitcoin::Block>(buffer.bytes())
        });
    });
}

/// Encodes, hashes and writes the undo data of a block.
fn write_undo_data(criterion: &mut Criterion, subject: &Subject<'_>) {
    let (dir, key, undo) = (temporary(), Obfuscation::from_key(KEY), subject.block.undo);
    let (prev, mut arena) = (subject.block.view.header().prev, UndoArena::default());
    let view = UndoView::parse(undo, &mut arena).expect("generated undo data is well-formed");
    let path = |name: &str| dir.path().join(name);
    let create = |name: &str| File::create(path(name)).expect("files can be made");
    let magic = [1, 2, 3, 4];
    let (mut file, mut record) = (create("whole"), Vec::new());
    let mut whole = || {
        record.clear();
        write_record(&mut record, magic, &prev, &write_undo(view.txs().collect::<Vec<_>>().into_iter()));
        key.apply(&mut record, 0);
        file.rewind().and_then(|()| file.write_all(&record)).expect("files can be written");
    };
    let fields = || {
        let mut writer = FieldWriter::new(create("fields"), Xor { key, is_bytewise: false });
        let coins = view.txs().collect::<Vec<_>>().into_iter();
        let written = writer.write_undo(magic, &prev, coins, undo.len() as u32);
        written.and_then(|()| writer.finish()).expect("files can be written");
    };
    whole();
    fields();
    assert!(fs::read(path("whole")).ok() == fs::read(path("fields")).ok());
    let mut group = criterion.benchmark_group("write undo data");
    group.throughput(Throughput::Bytes(undo.len() as u64));
    group.bench_function("in one piece", |b| b.iter(&mut whole));
    group.bench_function("field by field", |b| b.iter(fields));
}
