//! `sailfish files ls | stat | versions | fsck`.

use super::{Opened, failure, name, path};
use crate::exit::{FAILED, Failure};
use crate::show::escape;
use crate::show::quantity::{bytes, counted, date_and_time};
use crate::show::tables::{facts, left, right, table};
use crate::show::terminal::{print, print_with, tell};
use api::RecordFormat;
use api::stored::{HashedFile, MakingJob};
use clap::Args;
use filestore::{FileEntry, FilesError, PartWithReplicas, ReplicaOfPart};
use jobspec::key_options::partition_text;
use rows::{FileItem, FileNameRow};
use serde_json::{Value, json};

/// Rows that are fitted to columns; a longer list has one line for each entry, as they come.
const TABLE_MAX: usize = 10_000;

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Directory or file [default: the root]
    #[arg(value_name = "NAME", default_value = "/")]
    pub name: String,
    /// List everything below the directory
    #[arg(long, short = 'r')]
    pub recursive: bool,
    /// Print a JSON object for each entry
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct StatArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct VersionsArgs {
    #[arg(value_name = "NAME", default_value = "/")]
    pub name: String,
    /// Maximum number of changes
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: u32,
    /// Print a JSON object for each change
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct FsckArgs {
    #[arg(value_name = "NAME", default_value = "/")]
    pub name: String,
}

fn is_directory(entry: &FileEntry) -> bool {
    entry.row.as_ref().is_none_or(|row| matches!(row.item, FileItem::Directory(_)))
}

/// `path`: the whole name; `name`: the name within the list.
fn as_json(path: &str, name: &str, row: &FileNameRow) -> Value {
    let is_directory = matches!(row.item, FileItem::Directory(_));
    let mut value = json!({
        "path": path,
        "name": name,
        "kind": if is_directory { "directory" } else { "file" },
        "bytes": row.bytes,
        "parts": row.parts,
        "user": row.user,
        "version": row.since.0,
        "created_ns": row.created_ns,
        "expires_ns": row.expires_ns,
        "read_group": row.groups.read,
        "write_group": row.groups.write,
    });
    if let Some(hashed) = &row.hashed {
        value["hashed"] = hashed_json(hashed);
    }
    value
}

fn hashed_json(hashed: &HashedFile) -> Value {
    json!({
        "records": records_text(hashed.records),
        "separator": String::from_utf8_lossy(&hashed.keys.separator),
        "key_fields": hashed.keys.key_fields,
        "partitions": hashed.partitions.count,
        "empty_partitions": hashed.empty,
        "by": partition_text(&hashed.partitions),
        "record_count": hashed.sum.records,
        "hash_sum": format!("{:032x}", hashed.sum.hash_sum),
    })
}

fn records_text(records: RecordFormat) -> String {
    match records {
        RecordFormat::Fixed { record_bytes, key_bytes } if record_bytes == key_bytes => {
            format!("fixed:{record_bytes}")
        }
        RecordFormat::Fixed { record_bytes, key_bytes } => format!("fixed:{record_bytes}:{key_bytes}"),
        RecordFormat::Lines { .. } | RecordFormat::Stretches => "lines".to_string(),
    }
}

fn cells(name: &str, row: &FileNameRow) -> Vec<String> {
    let is_directory = matches!(row.item, FileItem::Directory(_));
    let (size, slash) = match is_directory {
        true => (String::new(), "/"),
        false => (bytes(row.bytes), ""),
    };
    let version = row.since.to_string();
    let user = escape::cell(&row.user);
    vec![size, version, date_and_time(row.created_ns), user, format!("{}{slash}", escape::sentence(name))]
}

pub fn ls(opened: &Opened, args: &LsArgs) -> Result<(), Failure> {
    let name = name(&args.name)?;
    let mut failed = None;
    let above = match opened.store.entry(&name).map_err(failure)?.row {
        Some(row) if matches!(row.item, FileItem::Directory(_)) => format!("{}/", name.path),
        _ => String::new(),
    };
    print_with(|out| {
        let mut held: Vec<Vec<String>> = Vec::new();
        let mut is_long = false;
        let mut take = |entry: FileEntry| {
            let Some(row) = &entry.row else { return Ok(()) };
            let written = match args.json {
                true => writeln!(out, "{}", as_json(&format!("{above}{}", entry.name), &entry.name, row)),
                false if is_long => writeln!(out, "{}", cells(&entry.name, row).join("  ")),
                false => {
                    held.push(cells(&entry.name, row));
                    is_long = held.len() > TABLE_MAX;
                    match is_long {
                        true => held.drain(..).try_for_each(|cells| writeln!(out, "{}", cells.join("  "))),
                        false => Ok(()),
                    }
                }
            };
            written.map_err(|source| FilesError::Io {
                action: "write",
                path: "standard output".into(),
                source,
            })
        };
        let listed = match args.recursive {
            true => opened.store.walk(&name, &mut take),
            false => opened.store.list(&name, &mut take),
        };
        match listed {
            Err(FilesError::Io { action: "write", source, .. }) => return Err(source.into()),
            Err(error) => failed = Some(failure(error)),
            Ok(()) if held.is_empty() => {}
            Ok(()) => {
                let columns = [right("size"), right("version"), left("created"), left("user"), left("name")];
                out.write_all(table(&columns, held).as_bytes())?;
            }
        }
        Ok(())
    })?;
    failed.map_or(Ok(()), Err)
}

pub fn stat(opened: &Opened, args: &StatArgs) -> Result<(), Failure> {
    let name = name(&args.name)?;
    let entry = opened.store.entry(&name).map_err(failure)?;
    let Some(row) = &entry.row else {
        let text = match args.json {
            true => format!("{}\n", json!({ "path": "", "name": "", "kind": "directory", "bytes": 0 })),
            false => "the root of the tree of files\n".to_string(),
        };
        return Ok(print(&text)?);
    };
    let parts = opened.store.parts(row, name.version).map_err(failure)?;
    let job = opened.store.maker(&name).map_err(failure)?;
    if args.json {
        let mut value = as_json(&entry.name, &entry.name, row);
        add_job(&mut value, job.as_ref());
        value["concrete_files"] = parts.iter().map(part_as_json).collect();
        return Ok(print(&format!("{value}\n"))?);
    }
    let kind = if is_directory(&entry) { "directory" } else { "file" };
    let mut rows = vec![
        ("name", escape::sentence(&entry.name)),
        ("kind", kind.to_string()),
        ("user", escape::cell(&row.user)),
        ("created", date_and_time(row.created_ns)),
        ("version", row.since.to_string()),
    ];
    rows.extend(job.map(|job| ("made by", escape::cell(&job.to_string()))));
    rows.extend(row.expires_ns.map(|expires_ns| ("expires", date_and_time(expires_ns))));
    for (kind, group) in [("readers", &row.groups.read), ("writers", &row.groups.write)] {
        rows.extend(group.as_ref().map(|group| (kind, escape::cell(group))));
    }
    if !is_directory(&entry) {
        rows.push(("size", format!("{} ({} bytes)", bytes(row.bytes), row.bytes)));
        rows.push(("parts", parts.len().to_string()));
        rows.extend(row.hashed.as_ref().map(hashed_facts).into_iter().flatten());
        rows.push(("versions kept", row.keep_versions.to_string()));
    }
    let mut text = facts(&rows);
    if opened.is_cluster && !parts.is_empty() {
        let columns = [right("part"), right("size"), right("wanted"), left("replicas")];
        text.push('\n');
        text.push_str(&table(&columns, parts.iter().map(part_cells).collect()));
    }
    Ok(print(&text)?)
}

/// Adds the job that made a file, as the columns of SQL have it.
fn add_job(value: &mut Value, job: Option<&MakingJob>) {
    value["job"] = job.map(|job| job.job.0).into();
    value["job_name"] = job.map(|job| job.name.as_str()).into();
}

fn hashed_facts(hashed: &HashedFile) -> [(&'static str, String); 3] {
    let (count, empty) = (hashed.partitions.count, hashed.empty.len());
    [
        (
            "hashed by",
            format!("{}, {count} partitions, {empty} of them empty", partition_text(&hashed.partitions)),
        ),
        ("records", format!("{} ({})", hashed.sum.records, records_text(hashed.records))),
        ("sum", format!("{:032x}", hashed.sum.hash_sum)),
    ]
}

fn part_as_json(part: &PartWithReplicas) -> Value {
    let row = &part.row;
    let mut value = json!({
        "bytes": row.bytes, "crc32c": format!("{:08x}", row.crc32c), "concrete": row.concrete.0,
    });
    if part.wanted > 0 {
        let replica = |replica: &ReplicaOfPart| json!({ "disk": replica.disk.0, "node": replica.node });
        value["wanted_replicas"] = part.wanted.into();
        value["replicas"] = part.replicas.iter().map(replica).collect();
    }
    value
}

/// Returns the cells of a part: its replicas by their nodes; one that cannot be reached has the number of its disk.
fn part_cells(part: &PartWithReplicas) -> Vec<String> {
    let replica = |replica: &ReplicaOfPart| match &replica.node {
        Some(node) => escape::cell(node),
        None => format!("({} cannot be reached)", replica.disk),
    };
    let replicas: Vec<String> = part.replicas.iter().map(replica).collect();
    let replicas = if replicas.is_empty() { "all lost".to_string() } else { replicas.join(", ") };
    vec![part.row.part.to_string(), bytes(part.row.bytes), part.wanted.to_string(), replicas]
}

pub fn versions(opened: &Opened, args: &VersionsArgs) -> Result<(), Failure> {
    let path = path(&args.name)?;
    let commits = opened.store.versions(&path, args.limit).map_err(failure)?;
    if args.json {
        let line = |commit: &rows::FileCommitRow| {
            let mut value = json!({
                "version": commit.version.0, "verb": commit.verb, "name": commit.path, "user": commit.user,
                "files": commit.files, "bytes": commit.bytes, "created_ns": commit.created_ns,
            });
            add_job(&mut value, commit.job.as_ref());
            format!("{value}\n")
        };
        return Ok(print(&commits.iter().map(line).collect::<String>())?);
    }
    let columns = [
        right("version"),
        left("created"),
        left("user"),
        left("change"),
        right("files"),
        right("size"),
        left("job"),
        left("name"),
    ];
    let row = |commit: &rows::FileCommitRow| {
        vec![
            commit.version.to_string(),
            date_and_time(commit.created_ns),
            escape::cell(&commit.user),
            commit.verb.clone(),
            commit.files.to_string(),
            bytes(commit.bytes),
            commit.job.as_ref().map(|job| escape::cell(&job.to_string())).unwrap_or_default(),
            escape::sentence(&commit.path),
        ]
    };
    Ok(print(&table(&columns, commits.iter().map(row).collect()))?)
}

pub fn fsck(opened: &Opened, args: &FsckArgs) -> Result<(), Failure> {
    let name = name(&args.name)?;
    let checked = opened.store.check(&name).map_err(failure)?;
    for problem in &checked.problems {
        let name =
            problem.name.as_deref().map_or_else(String::new, |name| format!("{}: ", escape::cell(name)));
        tell(&format!("sailfish: {name}{}", escape::sentence(&problem.text)));
    }
    for path in &checked.unfinished {
        tell(&format!("sailfish: an unfinished put of {}: the same put goes on", escape::cell(path)));
    }
    let files = counted(checked.files, "file");
    print(&format!(
        "{files}, {}, {} verified; {}\n",
        counted(checked.parts, "part"),
        bytes(checked.bytes),
        counted(checked.problems.len() as u64, "problem")
    ))?;
    match checked.problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::said(FAILED)),
    }
}
