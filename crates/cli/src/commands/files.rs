//! `sailfish files`: the files that this machine or a cluster stores.

mod changes;
mod hashing;
mod listing;
mod transfer;

use crate::exit::{FAILED, Failure, INTERRUPTED, REFUSED};
use crate::options::connect::{CredentialArgs, SOCKET_URL};
use crate::show::escape;
use crate::show::terminal::tell;
use clap::{Args, Subcommand};
use clusterfiles::ClusterFiles;
use filestore::{FileStore, FilesError, StoredTree};
use filetree::{TreeName, TreePath};
use jobspec::state_dir::state_dir;
use std::path::{Path, PathBuf};
use trust::Credentials;

/// Maximum number of entries of a source that are named because they cannot be put.
const NAMED_MAX: usize = 1000;

const EXAMPLES: &str = "\
A name looks like logs/2026/a.txt, with or without `files:` before it; NAME@VERSION is an older version.
Each change of the tree makes a version: `sailfish files versions NAME` lists them.
Without --server the files lie on this machine; with it they lie on the nodes of its cluster, as replicas.
Programs of cluster jobs need no option: they reach the files of their cluster through a socket of their node
(SAILFISH_SOCKET), with the rights of their job's user. --state means the files of the machine there too.

Examples:
  sailfish files put ./logs logs
  sailfish files ls logs
  sailfish files get logs ./copy
  sailfish files --server http://127.0.0.1:7070 put --replicas 2 ./logs logs
  sort big.txt | sailfish files put - sorted.txt
  sailfish files cat sorted.txt | head";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FilesArgs {
    #[command(subcommand)]
    verb: FilesVerb,
    /// Directory of the state [default: sailfish in the XDG state directory]
    #[arg(long, global = true, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Use the files of the cluster of this server, as in http://127.0.0.1:7070, instead of those of this machine.
    /// Addresses of its standbys follow, separated by commas
    #[arg(long, global = true, value_name = "URL", conflicts_with = "state")]
    server: Option<String>,
    #[command(flatten)]
    credentials: CredentialArgs,
}

#[derive(Debug, Subcommand)]
enum FilesVerb {
    /// Store a file, a directory or standard input (`-`) under a name, as one version
    Put(transfer::PutArgs),
    /// Write a stored file or directory to a path, verified
    Get(transfer::GetArgs),
    /// List a directory
    Ls(listing::LsArgs),
    /// Print files
    Cat(transfer::CatArgs),
    /// Show a file or a directory: owner, time, size and parts
    Stat(listing::StatArgs),
    /// Remove files and directories
    Rm(changes::RmArgs),
    /// Rename a file or a directory
    Mv(changes::TwoNames),
    /// Make directories
    Mkdir(changes::MkdirArgs),
    /// Copy a file or a directory; the copy shares its bytes
    Cp(changes::TwoNames),
    /// Choose who else may read or change a file, or a directory with everything below it: groups of users of a cluster
    Chmod(changes::ChmodArgs),
    /// Give a file or a directory of a cluster another owner, as an administrator
    Chown(changes::ChownArgs),
    /// List the changes of a name and of everything below it, newest first
    Versions(listing::VersionsArgs),
    /// Read and verify everything below a name, by default all files
    Fsck(listing::FsckArgs),
}

/// The files of a state directory or of a cluster, for the verbs.
pub(super) struct Opened {
    pub store: Box<dyn StoredTree>,
    pub is_cluster: bool,
}

impl FilesArgs {
    /// Returns the cluster with the files: the named one, or in a program of a job that of its node, through its socket.
    /// None for the files of this machine.
    fn cluster(&self) -> Result<Option<(String, Credentials)>, Failure> {
        let of_program = self.credentials.of_program(self.server.as_deref());
        if let Some(credentials) = of_program.filter(|_| self.state.is_none()) {
            return Ok(Some((SOCKET_URL.to_string(), credentials)));
        }
        let Some(url) = &self.server else { return Ok(None) };
        Ok(Some((url.clone(), self.credentials.read(url)?)))
    }

    /// Opens the files. Reading must not create a state.
    fn open(&self) -> Result<Opened, Failure> {
        let user = std::env::var("USER").unwrap_or_default();
        if let Some((url, credentials)) = self.cluster()? {
            let store =
                ClusterFiles::connect_telling(&url, &credentials, &user, tell_outage).map_err(failure)?;
            return Ok(Opened { store: Box::new(store), is_cluster: true });
        }
        let dir = state_dir(self.state.as_deref()).map_err(Failure::refused)?;
        if !matches!(self.verb, FilesVerb::Put(_) | FilesVerb::Mkdir(_)) {
            check_stored(&dir)?;
        }
        let store = FileStore::open(&dir, &user).map_err(failure)?;
        Ok(Opened { store: Box::new(store), is_cluster: false })
    }
}

fn tell_outage(url: &str) {
    tell(&format!(
        "sailfish: the server at {} does not answer; it is asked again for up to a minute",
        escape::cell(url)
    ));
}

/// Returns an error if a state directory has no files.
pub(super) fn check_stored(dir: &Path) -> Result<(), Failure> {
    if FileStore::exists(dir) {
        return Ok(());
    }
    let none = anyhow::anyhow!(
        "no files are stored in {}: `sailfish files put` stores some, --state names another directory",
        dir.display()
    );
    Err(Failure::refused(none))
}

/// Runs a verb.
pub fn run(args: &FilesArgs) -> Result<(), Failure> {
    let opened = args.open()?;
    match &args.verb {
        FilesVerb::Put(args) => transfer::put(&opened, args),
        FilesVerb::Get(args) => transfer::get(&opened, args),
        FilesVerb::Cat(args) => transfer::cat(&opened, args),
        FilesVerb::Ls(args) => listing::ls(&opened, args),
        FilesVerb::Stat(args) => listing::stat(&opened, args),
        FilesVerb::Versions(args) => listing::versions(&opened, args),
        FilesVerb::Fsck(args) => listing::fsck(&opened, args),
        FilesVerb::Rm(args) => changes::rm(&opened, args),
        FilesVerb::Mv(args) => changes::mv(&opened, args),
        FilesVerb::Cp(args) => changes::cp(&opened, args),
        FilesVerb::Mkdir(args) => changes::mkdir(&opened, args),
        FilesVerb::Chmod(args) => changes::chmod(&opened, args),
        FilesVerb::Chown(args) => changes::chown(&opened, args),
    }
}

/// Parses a name, perhaps at a version.
fn name(text: &str) -> Result<TreeName, Failure> {
    TreeName::parse(text).map_err(|source| failure(FilesError::Name { text: text.to_string(), source }))
}

/// Parses the name of something that is to be changed.
fn path(text: &str) -> Result<TreePath, Failure> {
    let name = name(text)?;
    match name.version {
        None => Ok(name.path),
        Some(_) => {
            let unversioned = TreeName { version: None, ..name };
            Err(failure(FilesError::OfVersion(unversioned)))
        }
    }
}

/// Converts an error. Names that cannot be put are printed here.
pub(super) fn failure(error: FilesError) -> Failure {
    if let FilesError::Unsuitable { unsuitable, .. } = &error {
        for each in unsuitable.iter().take(NAMED_MAX) {
            let path = escape::cell(&each.path.to_string_lossy());
            tell(&format!("sailfish: {path}: {}", each.reason));
        }
        if unsuitable.len() > NAMED_MAX {
            tell(&format!("sailfish: and {} more", unsuitable.len() - NAMED_MAX));
        }
        let advice = "rename or remove them, or leave them out with --skip; nothing was put";
        return Failure { code: REFUSED, error: Some(anyhow::anyhow!("{error}: {advice}")) };
    }
    let code = match &error {
        error if error.is_interruption() => INTERRUPTED,
        error if error.is_of_the_user() => REFUSED,
        _ => FAILED,
    };
    Failure { code, error: Some(error.into()) }
}
