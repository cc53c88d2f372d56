//! `sailfish group`: groups of users, for the rights to stored files.

use super::tokens::AdminArgs;
use crate::exit::Failure;
use crate::show::escape;
use crate::show::quantity::date_and_time;
use crate::show::tables::{left, right, table};
use crate::show::terminal::print;
use api::people::UserGroup;
use clap::{Args, Subcommand};
use client::{Client, ClientError};

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create a group without members
    Create(OneGroup),
    /// Add users to a group
    Add(GroupAndUsers),
    /// Remove users from a group: they lose its rights at once
    Remove(GroupAndUsers),
    /// Delete a group. Files keep its name, so that no other group can have it before they have lost it
    Delete(OneGroup),
    /// List the groups in which you are with their members; all, for an administrator
    List(ListArgs),
}

#[derive(Debug, Args)]
pub struct OneGroup {
    /// Name of the group: letters, digits, and . - _ @
    pub group: String,
    #[command(flatten)]
    pub server: AdminArgs,
}

#[derive(Debug, Args)]
pub struct GroupAndUsers {
    /// Name of the group
    pub group: String,
    #[arg(value_name = "USER", required = true)]
    pub users: Vec<String>,
    #[command(flatten)]
    pub server: AdminArgs,
}

#[derive(Debug, Args)]
pub struct ListArgs {
    #[command(flatten)]
    pub server: AdminArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn ask(
    server: &AdminArgs,
    work: impl AsyncFnOnce(&Client) -> Result<(), ClientError>,
) -> Result<(), Failure> {
    let connection = server.credentials.connect(&server.server)?;
    connection.run(async |client| work(client).await).map_err(Failure::from_client)
}

/// Runs a subcommand.
pub fn run(command: &GroupCommand) -> Result<(), Failure> {
    match command {
        GroupCommand::Create(args) => {
            ask(&args.server, async |client| client.create_group(&args.group).await)
        }
        GroupCommand::Delete(args) => {
            ask(&args.server, async |client| client.delete_group(&args.group).await)
        }
        GroupCommand::Add(args) => ask(&args.server, async |client| {
            for user in &args.users {
                client.add_to_group(&args.group, user).await?;
            }
            Ok(())
        }),
        GroupCommand::Remove(args) => ask(&args.server, async |client| {
            for user in &args.users {
                client.remove_from_group(&args.group, user).await?;
            }
            Ok(())
        }),
        GroupCommand::List(args) => list(args),
    }
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let connection = args.server.credentials.connect(&args.server.server)?;
    let list = connection.run(async |client| client.groups().await).map_err(Failure::from_client)?;
    if args.json {
        let text = serde_json::to_string_pretty(&list.groups).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let columns = [left("group"), left("made"), right("members"), left("users")];
    let cells = |group: &UserGroup| {
        vec![
            escape::cell(&group.name),
            date_and_time(group.created_ns),
            group.members.len().to_string(),
            escape::cell(&group.members.join(" ")),
        ]
    };
    Ok(print(&table(&columns, list.groups.iter().map(cells).collect()))?)
}
