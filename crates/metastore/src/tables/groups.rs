//! Groups of users. Each change is one transaction, and durable when it returns.

use crate::database::Session;
use crate::transaction::{ApplyError, Ending};
use crate::{Metastore, StoreError};
use rows::UserGroupRow;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of groups, and of members of one.
const GROUPS_MAX: u64 = 10_000;
const MEMBERS_MAX: u64 = 10_000;

/// Reason why a group is not changed. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupRefusal {
    #[error("there is a group {0:?} already")]
    Exists(String),
    /// Its old members would not expect that others get their rights.
    #[error(
        "files still have a deleted group {0:?}: choose another name, or change them by `sailfish files chmod` or \
         `sailfish intermediate chmod`"
    )]
    StillNamed(String),
    #[error("there is no group {0:?}")]
    Missing(String),
    #[error("there is no user {0:?}: `sailfish token create` adds users")]
    NoSuchUser(String),
    #[error("{user:?} is not in the group {group:?}")]
    NotAMember { group: String, user: String },
    #[error("there are {0} groups already, which is the maximum")]
    TooManyGroups(u64),
    #[error("the group has {0} members already, which is the maximum")]
    TooManyMembers(u64),
}

type Judged = Result<Ending<Result<(), GroupRefusal>>, ApplyError>;

fn refused(refusal: GroupRefusal) -> Judged {
    Ok(Ending::Rollback(Err(refusal)))
}

async fn found(db: &mut Session<'_>, statement: &'static str, name: &str) -> Result<bool, ApplyError> {
    Ok(!db.fetch(statement, [name.into()]).await?.is_empty())
}

/// Locks a group until the transaction ends, so that nobody deletes it meanwhile. Returns false if there is none.
pub(super) async fn locked(db: &mut Session<'_>, group: &str) -> Result<bool, ApplyError> {
    let statement = "UPDATE user_groups SET created_ns = created_ns WHERE name = $1";
    Ok(db.execute(statement, [group.into()]).await? > 0)
}

pub(super) const GROUPS_OF_USER: &str = "SELECT group_name FROM group_members WHERE user_name = $1";

impl Metastore {
    /// Creates a group without members.
    pub async fn create_group(
        &self,
        group: &str,
        now_ns: u64,
    ) -> Result<Result<(), GroupRefusal>, StoreError> {
        self.in_transaction(async |db| {
            if found(db, "SELECT name FROM user_groups WHERE name = $1", group).await? {
                return refused(GroupRefusal::Exists(group.to_string()));
            }
            for statement in [
                "SELECT name FROM file_names WHERE read_group = $1 LIMIT 1",
                "SELECT name FROM file_names WHERE write_group = $1 LIMIT 1",
                "SELECT name FROM intermediate_files WHERE read_group = $1 OR write_group = $1 LIMIT 1",
            ] {
                if found(db, statement, group).await? {
                    return refused(GroupRefusal::StillNamed(group.to_string()));
                }
            }
            let count = db.fetch("SELECT count(*) AS found FROM user_groups", []).await?;
            if self.count(&count)? >= GROUPS_MAX {
                return refused(GroupRefusal::TooManyGroups(GROUPS_MAX));
            }
            let statement = "INSERT INTO user_groups (name, created_ns) VALUES ($1, $2)";
            db.execute(statement, [group.into(), now_ns.into()]).await?;
            Ok(Ending::Commit(Ok(())))
        })
        .await
    }

    /// Deletes a group with its memberships. Names of files keep it, so that nobody gets their rights by the deletion.
    pub async fn delete_group(&self, group: &str) -> Result<Result<(), GroupRefusal>, StoreError> {
        self.in_transaction(async |db| {
            if !locked(db, group).await? {
                return refused(GroupRefusal::Missing(group.to_string()));
            }
            db.execute("DELETE FROM group_members WHERE group_name = $1", [group.into()]).await?;
            db.execute("DELETE FROM user_groups WHERE name = $1", [group.into()]).await?;
            Ok(Ending::Commit(Ok(())))
        })
        .await
    }

    /// Adds a user to a group; one who is in it stays.
    pub async fn add_to_group(
        &self,
        group: &str,
        user: &str,
    ) -> Result<Result<(), GroupRefusal>, StoreError> {
        self.in_transaction(async |db| {
            if !locked(db, group).await? {
                return refused(GroupRefusal::Missing(group.to_string()));
            }
            if !found(db, "SELECT name FROM users WHERE name = $1", user).await? {
                return refused(GroupRefusal::NoSuchUser(user.to_string()));
            }
            let statement = "SELECT count(*) AS found FROM group_members WHERE group_name = $1";
            if self.count(&db.fetch(statement, [group.into()]).await?)? >= MEMBERS_MAX {
                return refused(GroupRefusal::TooManyMembers(MEMBERS_MAX));
            }
            let statement = "INSERT INTO group_members (group_name, user_name) VALUES ($1, $2) \
                             ON CONFLICT (group_name, user_name) DO NOTHING";
            db.execute(statement, [group.into(), user.into()]).await?;
            Ok(Ending::Commit(Ok(())))
        })
        .await
    }

    /// Removes a user from a group.
    pub async fn remove_from_group(
        &self,
        group: &str,
        user: &str,
    ) -> Result<Result<(), GroupRefusal>, StoreError> {
        self.in_transaction(async |db| {
            if !locked(db, group).await? {
                return refused(GroupRefusal::Missing(group.to_string()));
            }
            let statement = "DELETE FROM group_members WHERE group_name = $1 AND user_name = $2";
            if db.execute(statement, [group.into(), user.into()]).await? == 0 {
                let (group, user) = (group.to_string(), user.to_string());
                return refused(GroupRefusal::NotAMember { group, user });
            }
            Ok(Ending::Commit(Ok(())))
        })
        .await
    }

    fn count(&self, rows: &[crate::database::Row]) -> Result<u64, StoreError> {
        rows.first().map_or(Ok(0), |row| self.number(row, "found"))
    }

    /// Returns all groups with their members, by name.
    pub async fn user_groups(&self) -> Result<Vec<UserGroupRow>, StoreError> {
        let mut groups: BTreeMap<String, UserGroupRow> = BTreeMap::new();
        for row in self.rows("SELECT name, created_ns FROM user_groups", []).await? {
            let name: String = self.get(&row, "name")?;
            let created_ns = self.number(&row, "created_ns")?;
            groups.insert(name.clone(), UserGroupRow { name, created_ns, members: Vec::new() });
        }
        for row in self.rows("SELECT group_name, user_name FROM group_members ORDER BY user_name", []).await?
        {
            let group: String = self.get(&row, "group_name")?;
            // One that was created after the first statement is in the next list.
            if let Some(group) = groups.get_mut(&group) {
                group.members.push(self.get(&row, "user_name")?);
            }
        }
        Ok(groups.into_values().collect())
    }

    /// Returns one of these groups that does not exist.
    pub async fn missing_group(&self, groups: &[String]) -> Result<Option<String>, StoreError> {
        for group in groups {
            let statement = "SELECT name FROM user_groups WHERE name = $1";
            if self.rows(statement, [group.as_str().into()]).await?.is_empty() {
                return Ok(Some(group.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the groups of a user.
    pub async fn groups_of_user(&self, user: &str) -> Result<BTreeSet<String>, StoreError> {
        let rows = self.rows(GROUPS_OF_USER, [user.into()]).await?;
        rows.iter().map(|row| self.get(row, "group_name")).collect()
    }
}
