//! Throughput of the map side without the shuffle: `words_throughput FILE [WINDOW_MIB]` reads a text file as
//! one split and prints MB/s of input for reading alone, for words, and for words with a combine window.

use api::{Function, TaskFailure};
use functions::{Emitter, RecordInput};
use mapper::{CombineEmitter, ReaderLimits, SplitReader, input, map_function};
use mapreduce::splits as split;
use program::{FunctionContext, Programs};
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
struct Discarded {
    records: u64,
    bytes: u64,
}

impl Emitter for Discarded {
    fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
        self.records += 1;
        self.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().ok_or("give a text file")?;
    let window_bytes = args.next().map_or(Ok(8), |text| text.parse::<u64>())? << 20;
    let inputs = input::list(&[file])?;
    let whole = split::plan(&inputs, u64::MAX, api::RecordFormat::TEXT).pop().ok_or("the file is empty")?;
    let limits = ReaderLimits { buffer_bytes: 256 << 10, record_bytes_max: 16 << 20, object_buffer_bytes: 0 };
    let context = FunctionContext {
        programs: Arc::new(Programs::new()),
        work_dir: "/".into(),
        start_dir: "/".into(),
        env: Vec::new(),
        record_bytes_max: limits.record_bytes_max,
        buffer_bytes: limits.buffer_bytes,
        cancelled: Arc::default(),
        stderr_log: None,
        limits: Default::default(),
        disk_dirs: Vec::new(),
        reports: Default::default(),
        declared_reads: None,
        any_exit_code: false,
        task_env: Vec::new(),
        kept_for: None,
        sandbox: None,
        named: Vec::new(),
    };
    let open = || {
        SplitReader::open(&inputs, &whole, api::RecordFormat::TEXT, limits).map_err(|failure| failure.message)
    };
    let megabytes = inputs[0].size_bytes as f64 / 1e6;
    let show = |what: &str, started: Instant| {
        println!("{what:40} {:8.0} MB/s", megabytes / started.elapsed().as_secs_f64());
    };

    for _ in 0..2 {
        let started = Instant::now();
        let mut reader = open()?;
        while reader.next_block().map_err(|failure| failure.message)?.is_some() {}
        show("read", started);
    }
    for function in ["builtin:words", "builtin:identity", "builtin:grep:[0-9]{4}"] {
        let started = Instant::now();
        let (mut reader, mut discarded) = (open()?, Discarded::default());
        let mut mapper = map_function(Some(&Function::parse(function)?), &context, &api::Formats::default())
            .map_err(|failure| failure.message)?;
        mapper.run(&mut reader, &mut discarded).map_err(|failure| failure.message)?;
        show(function, started);
    }
    for combiner in ["builtin:sum", "builtin:count"] {
        let started = Instant::now();
        let (mut reader, mut discarded) = (open()?, Discarded::default());
        let words = Function::parse("builtin:words")?;
        let mut mapper = map_function(Some(&words), &context, &api::Formats::default())
            .map_err(|failure| failure.message)?;
        let combiner_function = Function::parse(combiner)?;
        let mut emitter = CombineEmitter::new(
            &combiner_function,
            window_bytes,
            &context,
            &api::Formats::default(),
            &mut discarded,
        )
        .map_err(|failure| failure.message)?;
        let counts = mapper.run(&mut reader, &mut emitter).map_err(|failure| failure.message)?;
        emitter.finish().map_err(|failure| failure.message)?;
        show(&format!("builtin:words, {combiner}"), started);
        println!("  {} pairs into {} ({} bytes)", counts.output_records, discarded.records, discarded.bytes);
    }
    Ok(())
}
