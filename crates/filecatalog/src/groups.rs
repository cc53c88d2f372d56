//! Groups of users, and the groups of those who ask. They are read from the store for each request, so that a removal
//! counts at once.

use crate::asked::now_ns;
use crate::{Asker, Catalog, CatalogError};
use api::people::{GroupList, UserGroup, is_user_name};
use filetree::{Changer, TreeError};

/// Word for no group, at the command line.
const NO_GROUP: &str = "none";

impl Catalog {
    /// Returns the changer with the groups of the user.
    pub async fn with_groups(&self, changer: &Changer) -> Result<Changer, CatalogError> {
        Ok(match changer.user() {
            None => Changer::Anybody,
            Some(user) => changer.in_groups(self.store.groups_of_user(user).await?),
        })
    }

    /// Returns all groups; for a user those in which the user is.
    pub async fn groups(&self, asker: &Asker) -> Result<GroupList, CatalogError> {
        let user = asker.changer.user();
        let rows = self.store.user_groups().await?.into_iter();
        let shown =
            rows.filter(|row| user.is_none_or(|user| row.members.iter().any(|member| member == user)));
        let group = |row: rows::UserGroupRow| UserGroup {
            name: row.name,
            created_ns: row.created_ns,
            members: row.members,
        };
        Ok(GroupList { groups: shown.map(group).collect() })
    }

    /// Returns an error if one of these groups does not exist.
    pub async fn check_groups(&self, groups: &[String]) -> Result<(), CatalogError> {
        match self.store.missing_group(groups).await? {
            Some(group) => Err(TreeError::NoSuchGroup(group).into()),
            None => Ok(()),
        }
    }

    /// Creates a group without members.
    pub async fn create_group(&self, group: &str) -> Result<(), CatalogError> {
        if !is_user_name(group) || group == NO_GROUP {
            return Err(CatalogError::UserName(group.to_string()));
        }
        Ok(self.store.create_group(group, now_ns()).await??)
    }

    /// Deletes a group. Its members lose the rights that they had by it.
    pub async fn delete_group(&self, group: &str) -> Result<(), CatalogError> {
        Ok(self.store.delete_group(group).await??)
    }

    pub async fn add_to_group(&self, group: &str, user: &str) -> Result<(), CatalogError> {
        Ok(self.store.add_to_group(group, user).await??)
    }

    pub async fn remove_from_group(&self, group: &str, user: &str) -> Result<(), CatalogError> {
        Ok(self.store.remove_from_group(group, user).await??)
    }
}
