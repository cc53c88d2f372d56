//! `sailfish token`: the tokens and roles of users of a server.

use crate::commands::inspect::jobs::now_ns;
use crate::exit::Failure;
use crate::options::connect::CredentialArgs;
use crate::show::quantity::date_and_time;
use crate::show::tables::{left, table};
use crate::show::terminal::{print, tell};
use anyhow::Context;
use api::people::{Role, TokenRequest, TokenStatus};
use clap::{Args, Subcommand};
use jobspec::duration;
use std::path::PathBuf;
use trust::TrustError;

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token and print it; it cannot be shown again
    #[command(
        after_help = "Examples:\n  sailfish token create --server https://db1:7070 --token-file admin.token \\\n      \
        --user ann --role user --expires 90d --output ann.token\n  sailfish token create ... --user rack-1 --role node --output join.token"
    )]
    Create(CreateArgs),
    /// Revoke a token
    Revoke(RevokeArgs),
    /// List tokens, without their secrets
    Ls(ListArgs),
}

#[derive(Debug, Args)]
pub struct AdminArgs {
    /// The server, as in http://127.0.0.1:7070
    #[arg(long, value_name = "URL")]
    pub server: String,
    #[command(flatten)]
    pub credentials: CredentialArgs,
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    #[command(flatten)]
    pub server: AdminArgs,
    /// User of the token; a new name creates a user
    #[arg(long, value_name = "NAME")]
    pub user: String,
    /// Role of the user: admin, user (submits jobs, cancels own jobs), read-only (lists and reads), node (runs tasks)
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub role: Role,
    /// Time after which the token expires, as in 12h or 90d [default: it does not expire]
    #[arg(long, value_name = "DURATION")]
    pub expires: Option<String>,
    /// Write the token to this new file, readable only by its owner, instead of printing it
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// Name of the token
    pub name: String,
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

fn role(word: &str) -> Result<Role, String> {
    let words = || Role::ALL.map(Role::word).join(", ");
    Role::parse(word).ok_or_else(|| format!("the roles are {}", words()))
}

/// Runs a subcommand.
pub fn run(command: &TokenCommand) -> Result<(), Failure> {
    match command {
        TokenCommand::Create(args) => create(args),
        TokenCommand::Revoke(args) => {
            let connection = args.server.credentials.connect(&args.server.server)?;
            let revoked = connection.run(async |client| client.revoke_token(&args.name).await);
            revoked.map_err(Failure::from_client)
        }
        TokenCommand::Ls(args) => list(args),
    }
}

fn create(args: &CreateArgs) -> Result<(), Failure> {
    let seconds = args.expires.as_deref().map(duration::parse).transpose();
    let seconds = seconds.context("--expires").map_err(Failure::refused)?.map(|expires| expires.as_secs());
    if let Some(path) = args.output.as_ref().filter(|path| path.symlink_metadata().is_ok()) {
        // Checked first, so that no token is issued that cannot be stored.
        let path = path.clone();
        return Err(Failure::refused(TrustError::Exists { path }));
    }
    let request = TokenRequest { user: args.user.clone(), role: args.role, seconds };
    let connection = args.server.credentials.connect(&args.server.server)?;
    let issued = connection.run(async |client| client.issue_token(&request).await);
    let issued = issued.map_err(Failure::from_client)?;
    match &args.output {
        None => Ok(print(&format!("{}\n", issued.token))?),
        Some(path) => {
            let text = format!("{}\n", issued.token);
            let written = trust::write_new_private(path, &text);
            written.with_context(|| format!("--output: the token is not stored, revoke {}", issued.name))?;
            tell(&format!("sailfish: token {} is in {}", issued.name, path.display()));
            Ok(())
        }
    }
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let connection = args.server.credentials.connect(&args.server.server)?;
    let list = connection.run(async |client| client.tokens().await).map_err(Failure::from_client)?;
    if args.json {
        let text = serde_json::to_string_pretty(&list.tokens).map_err(anyhow::Error::from)?;
        return Ok(print(&format!("{text}\n"))?);
    }
    let columns = [left("token"), left("user"), left("role"), left("made"), left("state")];
    let now_ns = now_ns();
    let cells = |token: &TokenStatus| {
        vec![
            token.name.clone(),
            token.user.clone(),
            token.role.word().to_string(),
            date_and_time(token.created_ns),
            state(token, now_ns),
        ]
    };
    Ok(print(&table(&columns, list.tokens.iter().map(cells).collect()))?)
}

fn state(token: &TokenStatus, now_ns: u64) -> String {
    match (token.revoked_ns, token.expires_ns) {
        (Some(revoked_ns), _) => format!("revoked {}", date_and_time(revoked_ns)),
        (None, Some(end_ns)) if end_ns <= now_ns => format!("expired {}", date_and_time(end_ns)),
        (None, Some(end_ns)) => format!("valid until {}", date_and_time(end_ns)),
        (None, None) => "good".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Role, TokenStatus, role, state};

    #[test]
    fn states_are_told() {
        let token = |expires_ns, revoked_ns| TokenStatus {
            name: "ann-1".to_string(),
            user: "ann".to_string(),
            role: Role::User,
            created_ns: 1,
            expires_ns,
            revoked_ns,
        };
        let begins = |expires_ns, revoked_ns| state(&token(expires_ns, revoked_ns), 100);
        assert_eq!(begins(None, None), "good");
        assert!(begins(Some(101), None).starts_with("valid until "));
        assert!(begins(Some(100), None).starts_with("expired "));
        assert!(begins(Some(100), Some(50)).starts_with("revoked "));
    }

    #[test]
    fn roles_are_their_words() {
        assert_eq!(role("read-only"), Ok(Role::ReadOnly));
        assert_eq!(role("king"), Err("the roles are admin, user, read-only, node".to_string()));
    }
}
