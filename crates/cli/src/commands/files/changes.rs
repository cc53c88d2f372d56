//! `sailfish files rm | mv | mkdir | cp | chmod | chown`.

use super::{Opened, failure, path};
use crate::exit::Failure;
use clap::Args;
use filestore::FilesError;
use filetree::{GroupSetting, Parents, Recursion, TreeChange, TreePath};

#[derive(Debug, Args)]
pub struct RmArgs {
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Remove directories with everything below them
    #[arg(long, short = 'r')]
    pub recursive: bool,
}

#[derive(Debug, Args)]
pub struct TwoNames {
    #[arg(value_name = "FROM")]
    pub from: String,
    /// The new name; with `/` at the end, the directory that gets FROM under its own name
    #[arg(value_name = "TO")]
    pub to: String,
}

#[derive(Debug, Args)]
pub struct MkdirArgs {
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// Make missing directories above it too; an existing directory is no error
    #[arg(long, short = 'p')]
    pub parents: bool,
}

#[derive(Debug, Args)]
pub struct ChmodArgs {
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<String>,
    /// The group whose users may read; `none` for that of the directory
    #[arg(long, value_name = "GROUP", value_parser = setting, required_unless_present = "write")]
    pub read: Option<GroupSetting>,
    /// The group whose users may read, replace, remove, and make names in a directory; `none` for that of the directory
    #[arg(long, value_name = "GROUP", value_parser = setting)]
    pub write: Option<GroupSetting>,
    /// Remove the groups of names below a directory, so that they have those of the directory
    #[arg(long, short = 'r')]
    pub recursive: bool,
}

#[derive(Debug, Args)]
pub struct ChownArgs {
    #[arg(value_name = "NAME")]
    pub name: String,
    #[arg(value_name = "USER")]
    pub user: String,
    /// Also everything below a directory
    #[arg(long, short = 'r')]
    pub recursive: bool,
}

#[expect(clippy::unnecessary_wraps, reason = "the command line parses by functions that may fail")]
fn setting(text: &str) -> Result<GroupSetting, String> {
    Ok(match text {
        "none" => GroupSetting::Inherited,
        group => GroupSetting::Group(group.to_string()),
    })
}

fn recursion(recursive: bool) -> Recursion {
    if recursive { Recursion::Yes } else { Recursion::No }
}

/// Makes the changes one by one, after every name was parsed.
fn make(opened: &Opened, changes: impl IntoIterator<Item = TreeChange>) -> Result<(), Failure> {
    changes.into_iter().try_for_each(|change| opened.store.change(&change).map(drop).map_err(failure))
}

pub fn rm(opened: &Opened, args: &RmArgs) -> Result<(), Failure> {
    let recursive = recursion(args.recursive);
    let paths = args.names.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    make(opened, paths.into_iter().map(|path| TreeChange::Remove { path, recursive }))
}

pub fn mkdir(opened: &Opened, args: &MkdirArgs) -> Result<(), Failure> {
    let parents = if args.parents { Parents::Made } else { Parents::Required };
    let paths = args.names.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    make(opened, paths.into_iter().map(|path| TreeChange::MakeDirectory { path, parents }))
}

impl TwoNames {
    fn paths(&self) -> Result<(TreePath, TreePath), Failure> {
        let (from, to) = (path(&self.from)?, path(&self.to)?);
        let into = from.last().filter(|_| self.to.ends_with('/') || to.is_root());
        let to = match into {
            None => to,
            Some(own) => {
                to.child(own).map_err(|source| failure(FilesError::Name { text: self.to.clone(), source }))?
            }
        };
        Ok((from, to))
    }
}

pub fn mv(opened: &Opened, args: &TwoNames) -> Result<(), Failure> {
    let (from, to) = args.paths()?;
    make(opened, [TreeChange::Rename { from, to }])
}

pub fn cp(opened: &Opened, args: &TwoNames) -> Result<(), Failure> {
    let (from, to) = args.paths()?;
    make(opened, [TreeChange::Copy { from, to }])
}

pub fn chmod(opened: &Opened, args: &ChmodArgs) -> Result<(), Failure> {
    let [read, write] = [&args.read, &args.write].map(|setting| setting.clone().unwrap_or_default());
    let recursive = recursion(args.recursive);
    let paths = args.names.iter().map(|text| path(text)).collect::<Result<Vec<_>, _>>()?;
    let change = |path| TreeChange::SetGroups { path, read: read.clone(), write: write.clone(), recursive };
    make(opened, paths.into_iter().map(change))
}

pub fn chown(opened: &Opened, args: &ChownArgs) -> Result<(), Failure> {
    let (path, user) = (path(&args.name)?, args.user.clone());
    make(opened, [TreeChange::SetOwner { path, user, recursive: recursion(args.recursive) }])
}
