//! Access to a server: callers on this machine need an issued token or the server's own one, and none with
//! `--no-tokens`; callers from other machines need an issued token, over TLS.

use super::ServerArgs;
use crate::commands::cluster::console;
use crate::engine::machine;
use crate::show::terminal::tell;
use anyhow::{Context, ensure};
use api::people::{Role, TokenRequest};
use controlport::{Access, Port, RepairPace, TokensAsked, UserLimits};
use jobspec::{duration, memory_size, state_dir};
use listener::{ConnectionLimits, Door, HostNames};
use roots::Roots;
use server::{ShippedOptions, UserQuota};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use trust::{Authority, ServerConfig};

/// Directory within that of the state, for the key and certificate of the authority.
const TRUST_DIR: &str = "trust";
/// File in the state directory with the token of the administrator who set up the server.
const ADMIN_TOKEN: &str = "admin.token";
const ADMIN: &str = "admin";

/// Returns an error for an address that other machines could reach without authentication.
pub fn check(args: &ServerArgs, listen: SocketAddr) -> anyhow::Result<()> {
    ensure!(
        listen.ip().is_loopback() || (args.require_tokens && args.tls),
        "--listen {listen} is not a loopback address, so other machines can reach it: add --require-tokens \
         --tls"
    );
    repair_pace(args)?;
    limits(args).map(drop)
}

fn size(name: &str, text: Option<&String>) -> anyhow::Result<Option<u64>> {
    text.map(|text| memory_size::parse(text).with_context(|| format!("{name} {text:?}"))).transpose()
}

fn time(name: &str, text: &str) -> anyhow::Result<Duration> {
    duration::parse(text).with_context(|| format!("{name} {text:?}"))
}

fn repair_pace(args: &ServerArgs) -> anyhow::Result<RepairPace> {
    Ok(RepairPace {
        after: time("--repair-after", &args.repair_after)?,
        grace: time("--repair-grace", &args.repair_grace)?,
        ..RepairPace::default()
    })
}

fn limits(args: &ServerArgs) -> anyhow::Result<UserLimits> {
    let defaults = UserLimits::default();
    let bytes_per_second = size("--user-bytes-per-second", args.user_bytes_per_second.as_ref())?;
    let quota = UserQuota {
        jobs_max: args.user_jobs_max.unwrap_or(defaults.quota.jobs_max),
        spec_bytes_max: size("--user-arguments-max", args.user_arguments_max.as_ref())?
            .unwrap_or(defaults.quota.spec_bytes_max),
        kept_bytes_max: size("--user-kept-max", args.user_kept_max.as_ref())?
            .unwrap_or(defaults.quota.kept_bytes_max),
        intermediate_bytes_max: size("--user-intermediate-max", args.user_intermediate_max.as_ref())?
            .unwrap_or(defaults.quota.intermediate_bytes_max),
        stored_bytes_max: size("--user-stored-max", args.user_stored_max.as_ref())?
            .unwrap_or(defaults.quota.stored_bytes_max),
    };
    Ok(UserLimits {
        quota,
        requests_per_second: args.user_requests_per_second.unwrap_or(defaults.requests_per_second),
        bytes_per_second: bytes_per_second.unwrap_or(defaults.bytes_per_second),
        body_bytes_max: defaults.body_bytes_max,
    })
}

/// Returns the directory of shipped files, and their limits.
pub fn shipped_options(args: &ServerArgs) -> anyhow::Result<ShippedOptions> {
    let mut options = ShippedOptions { dir: args.shipped_dir.clone(), ..ShippedOptions::default() };
    let limits = &mut options.limits;
    if let Some(bytes) = size("--shipped-max", args.shipped_max.as_ref())? {
        limits.total_bytes_max = bytes;
        limits.owner_bytes_max = limits.owner_bytes_max.min(bytes);
    }
    if let Some(bytes) = size("--user-shipped-max", args.user_shipped_max.as_ref())? {
        limits.owner_bytes_max = bytes;
    }
    Ok(options)
}

/// Returns the roots below which jobs may name paths and objects; None if there is no limit. A caller who needs a token
/// is not the operator: without a root such a caller could read with the rights of this process, which may read its own
/// keys.
pub fn roots(args: &ServerArgs, state_dir: &Path) -> anyhow::Result<Option<Roots>> {
    if args.allow_root.is_empty() && !args.require_tokens {
        return Ok(None);
    }
    if args.allow_root.is_empty() {
        tell("sailfish: jobs may name no paths and no objects: allow some with --allow-root");
    }
    let roots = Roots::of_operator(&args.allow_root).context("--allow-root")?;
    let shipped = args.shipped_dir.as_ref().map(std::path::absolute).transpose().context("--shipped-dir")?;
    let own = std::iter::once(state_dir.to_path_buf()).chain(shipped);
    Ok(Some(roots.without(&own.collect::<Vec<_>>())))
}

/// Returns the access rules of the port, and its TLS configuration. The first start with TLS makes keys.
pub fn open(
    args: &ServerArgs,
    state_dir: &Path,
    listen: SocketAddr,
) -> anyhow::Result<(Access, Option<Arc<ServerConfig>>)> {
    let mut access = Access {
        tokens: match (args.require_tokens, args.no_tokens) {
            (true, _) => TokensAsked::Issued,
            (false, true) => TokensAsked::Never,
            (false, false) => TokensAsked::OwnOrIssued,
        },
        limits: limits(args)?,
        sandbox: args.sandbox || (args.require_tokens && !args.no_sandbox),
        console: Some(console::program),
        private: args.private,
        repair: repair_pace(args)?,
        ..Access::default()
    };
    if !args.tls {
        return Ok((access, None));
    }
    let authority = Authority::open(&state_dir.join(TRUST_DIR))?;
    let tls = authority.control_port(&hosts(args, listen)).context("--tls-name")?;
    tell(&format!("sailfish: the certificate authority is in {}", authority.path().display()));
    access.authority = Some(authority);
    Ok((access, Some(tls)))
}

/// Returns the names of the port, and the limits for unknown callers.
pub fn door(args: &ServerArgs, tls: Option<Arc<ServerConfig>>) -> Door {
    let of_certificate = tls.as_ref().map(|_| trust::CONTROL_NAME.to_string());
    let names = args.host_name.iter().chain(&args.tls_name).cloned().chain(of_certificate);
    let limits = ConnectionLimits::within(machine::open_files_max());
    Door { tls, names: HostNames::new(names), limits, refuse: controlport::refuse }
}

/// Returns the names under which foreign clients may reach the server; our clients check another name.
fn hosts(args: &ServerArgs, listen: SocketAddr) -> Vec<String> {
    let mut hosts = vec!["localhost".to_string(), "127.0.0.1".to_string(), "::1".to_string()];
    hosts.push(listen.ip().to_string());
    let own = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let is_name = !own.is_empty() && own.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    hosts.extend(Some(own).filter(|_| is_name));
    hosts.extend(args.tls_name.iter().cloned());
    hosts.sort();
    hosts.dedup();
    hosts
}

/// Writes the token with which programs of this user get access, to the file where they look for it.
pub async fn keep_own_token(port: &Port, address: SocketAddr) -> anyhow::Result<()> {
    let kept = async {
        let dir = state_dir::servers_dir().context("finding the home directory: set HOME")?;
        trust::private_directory(&dir)?;
        Ok::<_, anyhow::Error>(port.keep_own_token(&client::own_token_path(&dir, address)).await?)
    };
    kept.await.context(
        "keeping the server's own token; a server with --require-tokens or --no-tokens \
                        needs none",
    )
}

/// Writes a new token into the file, if the file is missing or if there is no valid token of an administrator.
pub async fn give_admin_token(port: &Port, state_dir: &Path) -> anyhow::Result<()> {
    let path = state_dir.join(ADMIN_TOKEN);
    if path.exists() && port.has_admin_token().await? {
        return Ok(());
    }
    let request = TokenRequest { user: ADMIN.to_string(), role: Role::Admin, seconds: None };
    let issued = port.issue(request).await.context("making a token for the administrator")?;
    trust::write_private(&path, &format!("{}\n", issued.token))?;
    tell(&format!("sailfish: the administrator's token {} is in {}", issued.name, path.display()));
    Ok(())
}
