//! `sailfish files put | get | cat`: bytes between this machine and its stored files.

use super::hashing::{HashArgs, RecordsArg, parse_records, record_ends};
use super::{Opened, failure, name, path};
use crate::engine::phases::{Phase, Standing};
use crate::engine::progress::{Display, show};
use crate::exit::Failure;
use crate::show::escape;
use crate::show::quantity::{bytes, counted, rate};
use crate::show::terminal::{print, print_with, tell};
use anyhow::{Context, anyhow};
use api::stored::cluster::STORED_REPLICAS_MAX;
use clap::Args;
use filestore::{FilesError, PutOptions, PutSource};
use filetransfer::{Links, Target, Unsuitable, Watch};
use filetree::TreePath;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// Maximum number of threads of a transfer: more do not make a disk faster.
const THREADS_MAX: usize = 8;
/// Minimum number of threads of a transfer with a cluster, which waits for nodes most of the time.
const CLUSTER_THREADS_MIN: usize = 4;

const GOES_ON: &str = "goes on where it stopped";

#[derive(Debug, Args)]
pub struct PutArgs {
    /// File or directory; `-` is standard input
    #[arg(value_name = "SOURCE")]
    pub source: PathBuf,
    /// Name under which it is stored; with `/` at the end, the directory that gets it under its own name
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Cut each file into this many parts [default: one for each 128 MiB; on one machine for each 4 GiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub parts: Option<u32>,
    /// Cut files only where records end: `lines`, or `fixed:N` for records of N bytes [default: at any byte]
    #[arg(long, value_name = "RECORDS", value_parser = parse_records)]
    pub records: Option<RecordsArg>,
    #[command(flatten)]
    pub hash: HashArgs,
    /// Keep this many versions of the name, with the new one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub keep_versions: u32,
    /// Remove the name when this time has passed since the put, such as `12h` or `7d` [default: it stays]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    pub ttl: Option<Duration>,
    /// Keep this many replicas of each file in a cluster, each on another node [default: 3, or the number of nodes if
    /// that is lower]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(STORED_REPLICAS_MAX)))]
    pub replicas: Option<u32>,
    /// Put the files and directories that symbolic links mean
    #[arg(long)]
    pub follow_links: bool,
    /// Leave out links, sockets and other entries that cannot be put, and name them
    #[arg(long)]
    pub skip: bool,
    /// Print the name, the version, files and bytes as JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GetArgs {
    /// Stored file or directory; NAME@VERSION is an older version
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Path of the copy; it must not exist [default: the last part of the name, in the current directory]
    #[arg(value_name = "TARGET")]
    pub target: Option<PathBuf>,
    /// Replace an existing file
    #[arg(long)]
    pub overwrite: bool,
}

#[derive(Debug, Args)]
pub struct CatArgs {
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Skip this many bytes of each file
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub offset: u64,
    /// Print at most this many bytes of each file [default: all]
    #[arg(long, value_name = "BYTES")]
    pub length: Option<u64>,
}

fn parse_ttl(text: &str) -> anyhow::Result<Duration> {
    let ttl = jobspec::duration::parse(text)?;
    filetree::ttl_ns(ttl)?;
    Ok(ttl)
}

fn threads(opened: &Opened) -> usize {
    let least = if opened.is_cluster { CLUSTER_THREADS_MIN } else { 1 };
    std::thread::available_parallelism().map_or(1, usize::from).clamp(least, THREADS_MAX)
}

/// Runs a transfer with progress; a first signal stops it, a second one ends the process.
/// `again`: the effect of the same command after an interruption.
fn watched<T>(
    verb: &'static str,
    again: &'static str,
    watch: &Arc<Watch>,
    transfer: impl FnOnce() -> Result<T, FilesError>,
) -> Result<T, Failure> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("listening for signals")?;
    let (listener, stopping) = (signals.handle(), Arc::clone(watch));
    let listen = move || {
        for signal in signals.forever() {
            if stopping.is_stopped() {
                std::process::exit(128 + signal);
            }
            stopping.stop();
        }
    };
    let listening =
        std::thread::Builder::new().name("signals".to_string()).spawn(listen).context("starting a thread")?;
    let (stop, stopped) = sync_channel::<()>(1);
    let display = if std::io::stderr().is_terminal() { Display::Bars } else { Display::Lines };
    let done = std::thread::scope(|scope| {
        scope.spawn(move || show(display, || vec![phase(verb, watch)], &stopped));
        let done = transfer();
        drop(stop);
        done
    });
    listener.close();
    let _ = listening.join();
    done.map_err(|error| match error.is_interruption() {
        true => {
            let failed = failure(error);
            let error = anyhow!("{verb} was interrupted; the same command {again}");
            Failure { error: Some(error), ..failed }
        }
        false => failure(error),
    })
}

fn phase(name: &'static str, watch: &Watch) -> Phase {
    let [done_bytes, total_bytes] = watch.bytes();
    let total_is_known = total_bytes > 0;
    Phase { name, standing: Standing::Running, done_bytes, total_bytes, total_is_known }
}

/// Returns the name of a put: `logs/` gets the source under its own name.
fn name_for(source: &Path, text: &str) -> Result<TreePath, Failure> {
    let given = path(text)?;
    if !text.ends_with('/') && !given.is_root() {
        return Ok(given);
    }
    let own = std::fs::canonicalize(source).ok();
    let own = own.as_deref().and_then(Path::file_name).map(|own| own.to_string_lossy().into_owned());
    let refuse =
        |error: anyhow::Error| Failure::refused(error.context(format!("{text:?} is no name of a put")));
    let own = own.ok_or_else(|| refuse(anyhow!("{} has no name of its own", source.display())))?;
    given.child(&own).map_err(|error| refuse(error.into()))
}

pub fn put(opened: &Opened, args: &PutArgs) -> Result<(), Failure> {
    let is_stream = args.source.as_os_str() == "-";
    let target = name_for(&args.source, &args.name)?;
    let hash_by = args.hash.checked(args.parts, args.records).map_err(Failure::refused)?;
    if is_stream && hash_by.is_none() && (args.parts.is_some() || args.records.is_some()) {
        return Err(Failure::refused(anyhow!(
            "--parts and --records need the length of a file, and standard input has none; with --hash-by they need none"
        )));
    }
    if args.replicas.is_some() && !opened.is_cluster {
        return Err(Failure::refused(anyhow!(
            "--replicas needs the nodes of a cluster: name its server with --server"
        )));
    }
    let begins_anew = is_stream || hash_by.is_some();
    if hash_by.is_some() {
        tell("sailfish: --hash-by: the order of the records is lost");
    }
    let records = if hash_by.is_some() { None } else { args.records };
    let options = PutOptions {
        parts: args.parts,
        records: record_ends(records).map_err(Failure::refused)?,
        hash_by,
        links: if args.follow_links { Links::Followed } else { Links::Refused },
        skip_unsuitable: args.skip,
        keep_versions: args.keep_versions,
        ttl: args.ttl,
        replicas: args.replicas,
        threads: threads(opened),
    };
    let watch = Arc::new(Watch::default());
    let started = Instant::now();
    let mut left_out = |entry: &Unsuitable| {
        tell(&format!(
            "sailfish: left out: {}: {}",
            escape::cell(&entry.path.to_string_lossy()),
            entry.reason
        ));
    };
    let again = if begins_anew { "begins anew" } else { GOES_ON };
    let committed = watched("put", again, &watch, || {
        let mut stdin = std::io::stdin().lock();
        let source = match is_stream {
            true => PutSource::Stream(&mut stdin),
            false => PutSource::Path(&args.source),
        };
        opened.store.put(source, &target, &options, &watch, &mut left_out)
    })?;
    let shown = format!("{} version {}", escape::cell(&target.to_string()), committed.version);
    told("put", &shown, [committed.files, committed.bytes], started);
    if committed.short_files > 0 {
        let wished = args.replicas.map_or_else(|| "wished".to_string(), |replicas| replicas.to_string());
        let (files, have) = (counted(committed.short_files, "file"), has_or_have(committed.short_files));
        tell(&format!(
            "sailfish: {files} {have} fewer replicas than {wished}; the server adds them when there are nodes"
        ));
    }
    if args.json {
        let mut value = serde_json::json!({
            "path": target.to_string(), "version": committed.version.0,
            "files": committed.files, "bytes": committed.bytes,
        });
        if opened.is_cluster {
            value["short_files"] = committed.short_files.into();
        }
        print(&format!("{value}\n"))?;
    }
    Ok(())
}

fn has_or_have(count: u64) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

fn told(verb: &str, name: &str, [files, size]: [u64; 2], started: Instant) {
    let seconds = started.elapsed().as_secs_f64();
    let speed = rate(size as f64 / seconds.max(0.001));
    let took = crate::show::quantity::seconds(seconds);
    tell(&format!("sailfish: {verb} {name}: {}, {} in {took}, {speed}", counted(files, "file"), bytes(size)));
}

pub fn get(opened: &Opened, args: &GetArgs) -> Result<(), Failure> {
    let name = name(&args.name)?;
    let path = match (&args.target, name.path.last()) {
        (Some(target), _) => target.clone(),
        (None, Some(last)) => PathBuf::from(last),
        (None, None) => return Err(Failure::refused(anyhow!("give a TARGET for the whole tree"))),
    };
    if path.file_name().is_none() {
        return Err(Failure::refused(anyhow!("{} is no path of a new file", path.display())));
    }
    let watch = Arc::new(Watch::default());
    let started = Instant::now();
    let target = Target { path, overwrite: args.overwrite };
    let got = watched("get", GOES_ON, &watch, || opened.store.get(&name, &target, threads(opened), &watch))?;
    told("get", &escape::cell(&name.to_string()), got, started);
    Ok(())
}

pub fn cat(opened: &Opened, args: &CatArgs) -> Result<(), Failure> {
    let names = args.names.iter().map(|text| name(text)).collect::<Result<Vec<_>, _>>()?;
    let mut failed = None;
    print_with(|out| {
        for name in &names {
            match opened.store.cat(name, args.offset, args.length.unwrap_or(u64::MAX), out) {
                Ok(()) => {}
                Err(FilesError::Io { action: "write", source, .. }) => return Err(source.into()),
                Err(error) => {
                    failed = Some(failure(error));
                    break;
                }
            }
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), Err)
}
