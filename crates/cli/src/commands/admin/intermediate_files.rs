//! `sailfish intermediate put | read | list | stat | rm | chmod | chown`: intermediate files of a cluster, for programs of any
//! language.

use crate::exit::{FAILED, Failure};
use crate::options::connect::{CredentialArgs, NODE_VARIABLE, SERVER_VARIABLE, SOCKET_URL};
use crate::show::escape;
use crate::show::quantity::{self, bytes, date_and_time};
use crate::show::tables::{facts, left, right, table};
use crate::show::terminal::{print, print_with, tell};
use anyhow::{Context, anyhow};
use api::intermediate::{
    IntermediateChange, IntermediateState, IntermediateStatus, NewIntermediate, SILENCE_SECONDS,
};
use api::stored::cluster::StoredGroup;
use clap::{Args, Subcommand};
use client::{IntermediateError, Intermediates};
use ids::JobId;
use jobspec::duration;
use std::io::Read;
use std::time::Duration;

/// Bytes that are read from standard input, or copied, at once.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Debug, Subcommand)]
pub enum FileCommand {
    /// Write standard input into a new intermediate file of the cluster. It is readable once it is complete
    #[command(visible_alias = "write", after_help = PUT_EXAMPLES)]
    Put(PutArgs),
    /// Print an intermediate file, or a range of it
    Read(ReadArgs),
    /// List intermediate files, by user and name
    #[command(visible_alias = "ls")]
    List(ListArgs),
    /// Show the state and the nodes of an intermediate file
    Stat(StatArgs),
    /// Remove intermediate files, including files that are being written
    Rm(RmArgs),
    /// Let groups of users read or replace intermediate files
    Chmod(ChmodArgs),
    /// Give an intermediate file another owner, as an administrator
    Chown(ChownArgs),
}

/// The verbs in their old spelling, below `sailfish ifile`.
#[derive(Debug, Subcommand)]
pub enum OldFileCommand {
    #[command(hide = true, alias = "write")]
    Put(PutArgs),
    #[command(hide = true)]
    Read(ReadArgs),
    #[command(hide = true, alias = "ls")]
    List(ListArgs),
    #[command(hide = true)]
    Stat(StatArgs),
    #[command(hide = true)]
    Rm(RmArgs),
}

impl OldFileCommand {
    /// Runs the current verb, and prints its spelling.
    pub fn run(self) -> Result<(), Failure> {
        let (verb, command) = match self {
            Self::Put(args) => ("put", FileCommand::Put(args)),
            Self::Read(args) => ("read", FileCommand::Read(args)),
            Self::List(args) => ("list", FileCommand::List(args)),
            Self::Stat(args) => ("stat", FileCommand::Stat(args)),
            Self::Rm(args) => ("rm", FileCommand::Rm(args)),
        };
        tell(&format!(
            "sailfish: use `sailfish intermediate {verb}`: `sailfish ifile {verb}` will be removed in a \
             later version"
        ));
        run(&command)
    }
}

const PUT_EXAMPLES: &str = "\
Programs of cluster jobs need no options: they reach the server through a socket of their node (SAILFISH_SOCKET),
with the rights of their job's user.

Examples:
  sort edges.txt | sailfish intermediate put edges --server http://127.0.0.1:7070 --keep-for 1d
  sailfish intermediate read edges --offset 1048576 --length 65536 --wait 30s
  generate | sailfish intermediate put part-$SAILFISH_TASK --job $SAILFISH_JOB --replace";

#[derive(Debug, Args)]
pub struct SiteArgs {
    /// The server, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL", env = SERVER_VARIABLE)]
    pub server: Option<String>,
    #[command(flatten)]
    pub credentials: CredentialArgs,
    /// Owner of the files [default: you]; another user, if groups of the files or your role permit it
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The node on which this program runs
    #[arg(long, value_name = "NODE", env = NODE_VARIABLE, hide = true)]
    pub near: Option<String>,
}

#[derive(Debug, Args)]
pub struct PutArgs {
    /// Name of the file, unique among the user's files
    pub name: String,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Remove the file when this job is over
    #[arg(long, value_name = "JOB")]
    pub job: Option<i64>,
    /// Remove the file this long after it is complete, as in 30m, 12h or 7d [default: keep it until it is removed]
    #[arg(long, value_name = "DURATION")]
    pub keep_for: Option<String>,
    /// Take the place of a file of that name, even if it is being written: its writer fails
    #[arg(long)]
    pub replace: bool,
    /// If this process dies, remove the unfinished file after this time [default: 60s]
    #[arg(long, value_name = "DURATION")]
    pub silence: Option<String>,
}

#[derive(Debug, Args)]
pub struct ReadArgs {
    pub name: String,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Bytes to skip
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    pub offset: u64,
    /// Maximum bytes to print [default: all, to the end]
    #[arg(long, value_name = "BYTES")]
    pub length: Option<u64>,
    /// Time to wait for a file that is being written, as in 30s [default: do not wait]
    #[arg(long, value_name = "DURATION")]
    pub wait: Option<String>,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub site: SiteArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StatArgs {
    pub name: String,
    #[command(flatten)]
    pub site: SiteArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    #[arg(required = true)]
    pub names: Vec<String>,
    #[command(flatten)]
    pub site: SiteArgs,
}

#[derive(Debug, Args)]
pub struct ChmodArgs {
    #[arg(required = true)]
    pub names: Vec<String>,
    /// The group whose users may read; `none` for no group
    #[arg(long, value_name = "GROUP", value_parser = setting, required_unless_present = "write")]
    pub read: Option<StoredGroup>,
    /// The group whose users may read, replace and remove; `none` for no group
    #[arg(long, value_name = "GROUP", value_parser = setting)]
    pub write: Option<StoredGroup>,
    #[command(flatten)]
    pub site: SiteArgs,
}

#[derive(Debug, Args)]
pub struct ChownArgs {
    pub name: String,
    /// The new owner
    #[arg(value_name = "USER")]
    pub owner: String,
    #[command(flatten)]
    pub site: SiteArgs,
}

#[expect(clippy::unnecessary_wraps, reason = "the command line parses by functions that may fail")]
fn setting(text: &str) -> Result<StoredGroup, String> {
    Ok(match text {
        "none" => StoredGroup::Inherited,
        group => StoredGroup::Group(group.to_string()),
    })
}

/// Runs a subcommand.
pub fn run(command: &FileCommand) -> Result<(), Failure> {
    match command {
        FileCommand::Put(args) => put(args),
        FileCommand::Read(args) => read(args),
        FileCommand::List(args) => list(args),
        FileCommand::Stat(args) => stat(args),
        FileCommand::Rm(args) => {
            let files = connect(&args.site)?;
            args.names.iter().try_for_each(|name| files.remove(name)).map_err(failure)
        }
        FileCommand::Chmod(args) => {
            let files = connect(&args.site)?;
            let [read, write] = [&args.read, &args.write].map(|group| group.clone().unwrap_or_default());
            let change = IntermediateChange::SetGroups { read, write };
            args.names.iter().try_for_each(|name| files.change(name, change.clone())).map_err(failure)
        }
        FileCommand::Chown(args) => {
            let change = IntermediateChange::SetOwner { user: args.owner.clone() };
            connect(&args.site)?.change(&args.name, change).map_err(failure)
        }
    }
}

fn connect(args: &SiteArgs) -> Result<Intermediates, Failure> {
    let missing = || {
        Failure::refused(anyhow!(
            "--server is missing: intermediate files lie on the nodes of a cluster; `sailfish local` starts one on this machine"
        ))
    };
    let files = match args.credentials.of_program(args.server.as_deref()) {
        Some(credentials) => Intermediates::with(SOCKET_URL, &credentials),
        None => {
            let server = args.server.as_deref().ok_or_else(missing)?;
            Intermediates::with(server, &args.credentials.read(server)?)
        }
    };
    let files = files.map_err(Failure::from_client)?;
    Ok(files.of_user(args.user.clone()).near(args.near.clone()))
}

fn failure(error: IntermediateError) -> Failure {
    match error {
        IntermediateError::Server(error) => Failure::from_client(error),
        error @ IntermediateError::OutOfRange { .. } => Failure::refused(error),
        error => Failure { code: FAILED, error: Some(error.into()) },
    }
}

fn time(option: &str, text: Option<&String>) -> Result<Option<Duration>, Failure> {
    let parsed = text.map(|text| duration::parse(text)).transpose();
    parsed.with_context(|| option.to_string()).map_err(Failure::refused)
}

fn put(args: &PutArgs) -> Result<(), Failure> {
    let silence = time("--silence", args.silence.as_ref())?.map(|silence| silence.as_secs());
    let new = NewIntermediate {
        name: args.name.clone(),
        replace: args.replace,
        job: args.job.map(JobId),
        keep_seconds: time("--keep-for", args.keep_for.as_ref())?.map(|keep| keep.as_secs()),
        silence_seconds: silence
            .map_or(SILENCE_SECONDS, |seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
        ..NewIntermediate::default()
    };
    let files = connect(&args.site)?;
    let mut writer = files.create_intermediate(&new).map_err(failure)?;
    let mut input = std::io::stdin().lock();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let count = fill(&mut input, &mut piece).context("reading standard input")?;
        writer.write_at(writer.written_bytes(), &piece[..count]).map_err(failure)?;
        if count < piece.len() {
            break;
        }
    }
    let file = writer.file();
    let written = writer.close().map_err(failure)?;
    tell(&format!("sailfish: {} has {} (file {file})", escape::sentence(&args.name), bytes(written)));
    Ok(())
}

/// Reads until the buffer is full, or the input ends.
fn fill(input: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn read(args: &ReadArgs) -> Result<(), Failure> {
    let wait = time("--wait", args.wait.as_ref())?.unwrap_or_default();
    let files = connect(&args.site)?;
    let mut reader = files.open(&args.name, args.offset, args.length, wait).map_err(failure)?;
    let copied = print_with(|output| {
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match reader.read(&mut piece)? {
                0 => return Ok(()),
                count => output.write_all(&piece[..count])?,
            }
        }
    });
    Ok(copied?)
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let listed = connect(&args.site)?.list().map_err(failure)?;
    if args.json {
        let text = serde_json::to_string_pretty(&listed).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let columns = [
        left("name"),
        left("user"),
        left("state"),
        right("bytes"),
        left("node"),
        left("replica"),
        left("created"),
        left("goes"),
    ];
    let cells = |row: &IntermediateStatus| {
        vec![
            escape::cell(&row.name),
            escape::cell(&row.user),
            row.state.word().to_string(),
            row.bytes.map(bytes).unwrap_or_default(),
            row.node.to_string(),
            row.replica.map(|node| node.to_string()).unwrap_or_default(),
            date_and_time(row.created_ns),
            goes(row),
        ]
    };
    Ok(print(&table(&columns, listed.iter().map(cells).collect()))?)
}

fn goes(row: &IntermediateStatus) -> String {
    let with_job = row.job.map(|job| format!("with job {job}"));
    let at = row.expires_ns.map(date_and_time);
    let after = || {
        row.keep_ns.map(|keep_ns| format!("{} after it is complete", quantity::seconds(keep_ns as f64 / 1e9)))
    };
    let told: Vec<String> = [with_job, at.or_else(after)].into_iter().flatten().collect();
    if told.is_empty() { "when it is removed".to_string() } else { told.join(", ") }
}

fn stat(args: &StatArgs) -> Result<(), Failure> {
    let row = connect(&args.site)?.stat(&args.name).map_err(failure)?;
    if args.json {
        let text = serde_json::to_string_pretty(&row).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let where_it_lies = match (row.state, row.replica) {
        (IntermediateState::Complete, Some(replica)) => format!("{} and {replica}", row.node),
        (IntermediateState::Complete | IntermediateState::Writing, _) => row.node.to_string(),
        _ => "nowhere".to_string(),
    };
    let rows = [
        ("file", row.file.to_string()),
        ("name", escape::cell(&row.name)),
        ("user", escape::cell(&row.user)),
        ("readers", row.groups.read.as_deref().map(escape::cell).unwrap_or_default()),
        ("writers", row.groups.write.as_deref().map(escape::cell).unwrap_or_default()),
        ("state", row.state.word().to_string()),
        ("problem", row.problem.as_deref().map(escape::cell).unwrap_or_default()),
        ("bytes", row.bytes.map(|count| count.to_string()).unwrap_or_default()),
        ("CRC-32C", row.crc32c.map(|crc32c| format!("{crc32c:08x}")).unwrap_or_default()),
        ("lies on", where_it_lies),
        ("created", date_and_time(row.created_ns)),
        ("complete", row.closed_ns.map(date_and_time).unwrap_or_default()),
        ("goes", goes(&row)),
    ];
    let told: Vec<(&str, String)> = rows.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    Ok(print(&facts(&told))?)
}
