//! Figures of a catalogue with a million files, over a real store (SQLite) with two made-up nodes: memory, lists, start.
//! Called by `bench/files.sh --only million`; ends non-zero when a must is missed. An argument is the number of files.

use api::StoredPart;
use api::data_access::SecretText;
use api::stored::cluster::{
    BeginStored, CommitStored, ListStored, NumberStored, RecordStored, RecordedFile, RecordedPart,
    STORED_PAGE_MAX, StoredDiskNews, StoredItem, StoredNews, StoredPut,
};
use filecatalog::{Asker, Catalog, CatalogError, RepairPace, ReportingNode};
use filetree::Changer;
use ids::{ConcreteId, ContentId, DirectoryId, DiskId, NodeId};
use metastore::Metastore;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const FILES: u32 = 1_000_000;
const FILES_OF_A_DIRECTORY: u32 = 1000;
const FILE_BYTES: u64 = 4096;
/// Size of a page of memory on the machines that we support.
const PAGE_BYTES: u64 = 4096;
const PACE: RepairPace = RepairPace {
    heard_within: Duration::from_secs(3600),
    after: Duration::from_secs(3600),
    grace: Duration::ZERO,
    scan_every: Duration::from_secs(1),
};

fn asker() -> Asker {
    Asker { user: "ann".to_string(), changer: Changer::Anybody, bytes_max: None }
}

fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE_BYTES
}

async fn open(state: &Path) -> Result<Catalog, CatalogError> {
    let store = Metastore::open(state).await?;
    Ok(Catalog::open(store, Box::new(|_| "signed".to_string()), PACE).await?)
}

/// Lets two nodes report a disk each.
async fn report(catalog: &Catalog) -> Result<Vec<DiskId>, CatalogError> {
    let mut disks = Vec::new();
    for number in 1..3 {
        let name = format!("n{number}");
        let disk = StoredDiskNews {
            uuid: format!("disk of {name}"),
            secret: SecretText(format!("secret of {name}")),
            is_empty: true,
            total_bytes: 1 << 50,
            free_bytes: 1 << 49,
            room_bytes: 1 << 48,
            takes_files: true,
        };
        let news =
            StoredNews { data_url: format!("http://{name}"), disks: vec![disk], ..StoredNews::default() };
        let from = ReportingNode { node: NodeId(number), name, rack: "r".to_string() };
        disks.extend(catalog.news(&from, news).await?.disks.into_iter().flatten());
    }
    Ok(disks)
}

fn recorded(of: StoredPut, number: u32, first: u32, disks: &[DiskId]) -> Option<RecordedFile> {
    let file = StoredPart { concrete: ConcreteId::of(of.put, first)?, bytes: FILE_BYTES, crc32c: number };
    Some(RecordedFile {
        name: format!("{}/{number}", number / FILES_OF_A_DIRECTORY),
        content: ContentId::of(of.put, first)?,
        bytes: FILE_BYTES,
        modified_ns: 1,
        parts: vec![RecordedPart { file, disks: disks.to_vec() }],
        hashed: None,
    })
}

/// Puts the files as one directory.
async fn put(catalog: &Catalog, files: u32, disks: &[DiskId]) -> Result<(), CatalogError> {
    let begin = BeginStored {
        path: "many".to_string(),
        is_directory: true,
        replicas: Some(2),
        keep_versions: 1,
        ..BeginStored::default()
    };
    let of = catalog.begin(&asker(), &begin).await?.of;
    let mut number = 0;
    while number < files {
        let count = STORED_PAGE_MAX.min(files - number);
        let first = catalog.number(&asker(), &NumberStored { of, count }).await?.first;
        let page = (0..count).filter_map(|each| recorded(of, number + each, first + each, disks));
        let record = RecordStored { of, files: page.collect(), forgotten: Vec::new() };
        catalog.record(&asker(), &record).await?;
        number += count;
    }
    let commit = CommitStored { of, empty_directories: Vec::new() };
    while catalog.commit(&asker(), &commit).await?.version.is_none() {}
    // Names get their versions.
    while catalog.keep_house().await? {}
    Ok(())
}

/// Streams all entries below a directory. Returns their number, and a directory of a thousand files.
async fn streamed(catalog: &Catalog) -> Result<(u64, DirectoryId), CatalogError> {
    let (mut entries, mut last) = (0, DirectoryId(1));
    let mut pending = vec![DirectoryId(1)];
    while let Some(directory) = pending.pop() {
        let mut after = String::new();
        loop {
            let limit = STORED_PAGE_MAX;
            let list = ListStored { directory, after, limit, ..ListStored::default() };
            let page = catalog.list(&asker(), &list).await?;
            entries += page.entries.len() as u64;
            for entry in &page.entries {
                if let StoredItem::Directory(below) = entry.item {
                    pending.push(below);
                    last = below;
                }
            }
            let Some(end) = page.entries.last().filter(|_| page.more) else { break };
            after = end.name.clone();
        }
    }
    Ok((entries, last))
}

/// Prints a figure. Returns whether it is within its must.
fn row(name: &str, value: f64, unit: &str, [must, aim]: [f64; 2]) -> bool {
    println!("{name:<50} must {must:<5} aim {aim:<5} value {value:.1} {unit}");
    value <= must
}

async fn figures(state: &Path, files: u32) -> Result<bool, CatalogError> {
    {
        let catalog = open(state).await?;
        let disks = report(&catalog).await?;
        let began = Instant::now();
        put(&catalog, files, &disks).await?;
        println!("{files} files were put in {:.1} s", began.elapsed().as_secs_f64());
    }
    let before = resident_bytes();
    let began = Instant::now();
    let catalog = open(state).await?;
    report(&catalog).await?;
    let start = began.elapsed();
    // The first rounds look at every file.
    let began = Instant::now();
    while catalog.keep_house().await? {}
    println!("the first look at all files took {:.1} s", began.elapsed().as_secs_f64());
    let began = Instant::now();
    let (entries, directory) = streamed(&catalog).await?;
    let stream = began.elapsed();
    assert!(entries > u64::from(files), "{entries} entries were listed");
    let began = Instant::now();
    let list = ListStored { directory, limit: FILES_OF_A_DIRECTORY, parts: true, ..ListStored::default() };
    let listed = catalog.list(&asker(), &list).await?;
    let of_directory = began.elapsed();
    assert_eq!(listed.parts.len() as u32, FILES_OF_A_DIRECTORY);
    let memory = resident_bytes().saturating_sub(before) as f64 / f64::from(files);
    Ok([
        row("server memory for each concrete file", memory, "bytes", [400.0, 300.0]),
        row("a directory of 1,000 files", of_directory.as_secs_f64() * 1000.0, "ms", [50.0, 20.0]),
        row("all names streamed", stream.as_secs_f64(), "s", [15.0, 8.0]),
        row("start of the server", start.as_secs_f64(), "s", [5.0, 3.0]),
    ]
    .iter()
    .all(|is_met| *is_met))
}

fn main() -> ExitCode {
    let files = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(FILES);
    let state = tempfile::tempdir().expect("a directory for the store");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match runtime.block_on(figures(state.path(), files)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
