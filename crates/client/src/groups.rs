//! Calls about groups of users.

use crate::{Client, ClientError};
use api::people::{GroupList, NewGroup, NewMember};
use serde::Serialize;

impl Client {
    async fn of_group(&self, group: &str, rest: &[&str], body: &impl Serialize) -> Result<(), ClientError> {
        let path = self.path_of(&[&["v1", "groups", group], rest].concat())?;
        self.post(&path, body).await
    }

    /// Returns the groups in which the user is; all, for an administrator.
    pub async fn groups(&self) -> Result<GroupList, ClientError> {
        self.patiently(async || self.get("/v1/groups").await).await
    }

    /// Creates a group. Sent once: a repeated request would find it.
    pub async fn create_group(&self, name: &str) -> Result<(), ClientError> {
        let new = NewGroup { name: name.to_string() };
        self.once(async || self.post("/v1/groups", &new).await).await
    }

    /// Deletes a group.
    pub async fn delete_group(&self, group: &str) -> Result<(), ClientError> {
        self.once(async || self.of_group(group, &["delete"], &()).await).await
    }

    /// Adds a user to a group.
    pub async fn add_to_group(&self, group: &str, user: &str) -> Result<(), ClientError> {
        let new = NewMember { user: user.to_string() };
        self.patiently(async || self.of_group(group, &["members"], &new).await).await
    }

    /// Removes a user from a group.
    pub async fn remove_from_group(&self, group: &str, user: &str) -> Result<(), ClientError> {
        let member = NewMember { user: user.to_string() };
        self.once(async || self.of_group(group, &["members", "remove"], &member).await).await
    }
}
