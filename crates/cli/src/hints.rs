//! The commands `peregrine hints make`, `info`, `convert` and `check`.

use crate::{
    args::{CheckHintsArgs, ConvertHintsArgs, HintsCommand, HintsFileArgs, MakeHintsArgs},
    json::{self, Report},
    limits,
    notes::WrongHintJson,
    paths,
    progress::{Progress, Style, stages},
};
use engine::{CheckHintsOptions, HintCheck, HintFileInfo, Packing, RealDisk, hex};
use peregrine::{exit::Exit, output::Done, remedy::about_height, stop::interrupt};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct InfoJson {
    file: String,
    format: &'static str,
    chain: Option<&'static str>,
    height: u32,
    block_hash: Option<String>,
    hints: u64,
    outputs: Option<u64>,
    bytes: u64,
    bits_per_output: Option<f64>,
    sha256: String,
    pinned: &'static str,
    packed: Option<PackedJson>,
    first_record_is_genesis: Option<bool>,
}

/// A packed file as it is; the rest of [`InfoJson`] is about the unpacked one.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct PackedJson {
    packing: &'static str,
    bytes: u64,
    sha256: String,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CheckJson {
    #[serde(flatten)]
    info: InfoJson,
    wrong_blocks: u64,
    first_wrong: Option<WrongHintJson>,
}

/// Runs a command. Returns whether its output is JSON, and its result.
pub fn run(command: &HintsCommand) -> (bool, Done) {
    match command {
        HintsCommand::Make(args) => (args.make.check.datadir.json, make(args)),
        HintsCommand::Info(args) => (args.json, info(args)),
        HintsCommand::Convert(args) => (args.file.json, convert(args)),
        HintsCommand::Check(args) => (args.check.datadir.json, check(args)),
    }
}

fn make(args: &MakeHintsArgs) -> Done {
    let (source, MakeHintsArgs { make: args, format, .. }) = (args.source(), args);
    let located = args.check.datadir.core.locate()?;
    let options = args.options(&located);
    paths::check_output(args.check.run.work_dir.as_deref(), &located, &args.output)?;
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress, stages::MAKE);
    let made = match source {
        None => engine::make_hints(&RealDisk, &options, &args.output, *format, &progress, &interrupt),
        Some(source) => {
            let result = (args.output.as_path(), *format);
            engine::make_hints_from_coins(&RealDisk, &options, &source, result, &progress, &interrupt)
        }
    };
    progress.close();
    let made = made.map_err(|error| about_height(error, "--height"))?;
    let info = engine::describe_hints(&RealDisk, &args.output, made)?;
    Ok(info_reply(&args.output, &info, args.check.datadir.json, Report::HintsMake))
}

fn info(args: &HintsFileArgs) -> Done {
    let info = engine::hints_info(&RealDisk, &args.file, args.from)?;
    Ok(info_reply(&args.file, &info, args.json, Report::HintsInfo))
}

fn convert(args: &ConvertHintsArgs) -> Done {
    let interrupt = interrupt(args.file.json)?;
    let progress = Progress::new(Style::Auto, stages::UNKNOWN);
    let located = args.core.datadir.as_ref().map(|_| args.core.locate()).transpose()?;
    let options = located.map(|located| located.chain_options());
    let from = (args.file.file.as_path(), args.file.from);
    let to = (args.output.as_path(), args.format);
    let done = engine::convert_hints(&RealDisk, from, to, options.as_ref(), &progress, &interrupt);
    progress.close();
    let info = engine::describe_hints(&RealDisk, &args.output, done?)?;
    Ok(info_reply(&args.output, &info, args.file.json, Report::HintsConvert))
}

fn check(args: &CheckHintsArgs) -> Done {
    let located = args.check.datadir.core.locate()?;
    let options = CheckHintsOptions { chain: args.check.options(&located), scan: args.check.scan };
    limits::check(&options.chain)?;
    let interrupt = interrupt(args.check.datadir.json)?;
    let progress = Progress::new(args.check.run.progress, stages::MAKE);
    let check = engine::check_hints(&RealDisk, &options, &args.file, args.from, &progress, &interrupt);
    progress.close();
    let HintCheck { info, wrong_blocks, first } = check?;
    let info = engine::describe_hints(&RealDisk, &args.file, info)?;
    let exit = if wrong_blocks > 0 { Exit::Hints } else { Exit::Done };
    if args.check.datadir.json {
        let first_wrong = first.as_ref().map(WrongHintJson::new);
        let info = info_json(&args.file, &info);
        return Ok(json::report(Report::HintsCheck(CheckJson { info, wrong_blocks, first_wrong }), exit));
    }
    let verdict = match first {
        None => "all hints are correct".to_owned(),
        Some(first) => format!("hints of {wrong_blocks} blocks are wrong; the first: {first}"),
    };
    Ok((format!("{}\nchecked   {verdict}", info_text(&args.file, &info)), exit))
}

fn info_json(file: &Path, info: &HintFileInfo) -> InfoJson {
    let HintFileInfo { hints: info, sha256, pinned, packed } = info;
    let bits = |outputs: u64| info.bytes as f64 * 8.0 / outputs.max(1) as f64;
    InfoJson {
        file: file.display().to_string(),
        format: info.format.name(),
        chain: info.network.map(engine::Network::name),
        height: info.height.0,
        block_hash: info.block_hash.map(|hash| hash.to_string()),
        hints: info.hints,
        outputs: info.outputs,
        bytes: info.bytes,
        bits_per_output: info.outputs.map(bits),
        sha256: hex(sha256),
        pinned: pinned.name(),
        packed: packed.as_ref().map(|packed| PackedJson {
            packing: packed.packing.map_or("", Packing::name),
            bytes: packed.bytes,
            sha256: hex(&packed.sha256),
        }),
        first_record_is_genesis: info.first_record_is_genesis,
    }
}

fn info_reply(file: &Path, info: &HintFileInfo, as_json: bool, of: fn(InfoJson) -> Report) -> (String, Exit) {
    match as_json {
        true => json::report(of(info_json(file, info)), Exit::Done),
        false => (info_text(file, info), Exit::Done),
    }
}

fn info_text(file: &Path, info: &HintFileInfo) -> String {
    let info = info_json(file, info);
    let unknown = || "unknown".to_owned();
    let outputs = match (info.outputs, info.bits_per_output) {
        (Some(outputs), Some(bits)) => format!("of {outputs} outputs, {bits:.3} bits per output"),
        _ => "of an unknown number of outputs".to_owned(),
    };
    let pinned = match info.pinned {
        "none" => "no: this version of Peregrine pins no hints of this network".to_owned(),
        other => other.to_owned(),
    };
    let packed = info.packed.as_ref().map_or(String::new(), |PackedJson { packing, bytes, sha256 }| {
        format!("\npacked    {packing}, {bytes} bytes, sha256 {sha256}")
    });
    format!(
        "hints     {}\n\
         format    {}\n\
         chain     {}\n\
         block     {} ({})\n\
         unspent   {} {outputs}\n\
         size      {} bytes\n\
         sha256    {}\n\
         pinned    {pinned}{packed}",
        info.file,
        info.format,
        info.chain.map_or_else(unknown, str::to_owned),
        info.height,
        info.block_hash.unwrap_or_else(unknown),
        info.hints,
        info.bytes,
        info.sha256,
    )
}
