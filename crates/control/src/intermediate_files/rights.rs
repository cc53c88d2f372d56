//! Rights to intermediate files: those of stored files, whose owner and groups have the same meaning (`filetree`). A file
//! has no directory, so that only its own groups count.

use super::IntermediateFiles;
use crate::interface::{ControlError, Outbox};
use api::intermediate::{IntermediateChange, IntermediateStatus, USER_INTERMEDIATES_MAX};
use api::people::is_user_name;
use api::stored::cluster::StoredGroups;
use filetree::{Changer, GroupSetting};
use rows::{Change, FileGroups};

/// A file by its owner and name, and the user who asks for it, with the groups of that moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFile {
    pub user: String,
    pub name: String,
    pub changer: Changer,
}

/// Returns whether a user may read a file.
pub(super) fn reads(changer: &Changer, row: &IntermediateStatus) -> bool {
    changer.reads(&row.user, &FileGroups::from(row.groups.clone()))
}

/// Returns the file, if the user may read it.
pub(super) fn readable<'a>(
    all: &'a IntermediateFiles,
    of: &NamedFile,
) -> Result<&'a IntermediateStatus, ControlError> {
    found(all, of, |row| reads(&of.changer, row))
}

/// Returns the file, if the user may replace and remove it.
pub(super) fn writable<'a>(
    all: &'a IntermediateFiles,
    of: &NamedFile,
) -> Result<&'a IntermediateStatus, ControlError> {
    found(all, of, |row| of.changer.writes(&row.user, &FileGroups::from(row.groups.clone())))
}

/// Returns the file, if the user may do something to it. The owner learns that it does not exist, and others do not.
fn found<'a>(
    all: &'a IntermediateFiles,
    of: &NamedFile,
    may: impl Fn(&IntermediateStatus) -> bool,
) -> Result<&'a IntermediateStatus, ControlError> {
    match all.named(&of.user, &of.name) {
        Some(row) if may(row) => Ok(row),
        None if of.changer.has(&of.user) => Err(ControlError::UnknownIntermediate { name: of.name.clone() }),
        _ => Err(ControlError::IntermediateOfOther { user: of.user.clone() }),
    }
}

/// Changes the groups or the owner of a file. Whoever asks must know that the groups exist.
pub(super) fn change(
    all: &mut IntermediateFiles,
    outbox: &mut Outbox,
    of: &NamedFile,
    change: IntermediateChange,
) -> Result<(), ControlError> {
    let row = found(all, of, |row| of.changer.has(&row.user))?.clone();
    let row = match change {
        IntermediateChange::SetGroups { read, write } => {
            let read = GroupSetting::from(&read).over(row.groups.read.as_ref());
            let write = GroupSetting::from(&write).over(row.groups.write.as_ref());
            IntermediateStatus { groups: StoredGroups { read, write }, ..row }
        }
        IntermediateChange::SetOwner { user } => {
            check_owner(all, of, &user)?;
            IntermediateStatus { user, ..row }
        }
    };
    outbox.write(Change::Intermediate { row: Box::new(row.clone()) });
    all.remove(row.file);
    all.insert(row);
    Ok(())
}

fn check_owner(all: &IntermediateFiles, of: &NamedFile, user: &str) -> Result<(), ControlError> {
    if of.changer.user().is_some() {
        return Err(ControlError::OwnerOfIntermediate { name: of.name.clone() });
    }
    if !is_user_name(user) {
        return Err(ControlError::BadUser { user: user.to_string() });
    }
    if user == of.user {
        return Ok(());
    }
    if let Some(known) = all.named(user, &of.name) {
        let (name, state) = (of.name.clone(), known.state.word());
        return Err(ControlError::IntermediateExists { name, state });
    }
    match all.count_of(user) >= USER_INTERMEDIATES_MAX {
        true => Err(ControlError::TooManyIntermediates { max: USER_INTERMEDIATES_MAX }),
        false => Ok(()),
    }
}
