//! The address of the server's database, with a password that lists of processes do not show.

use super::ServerArgs;
use crate::show::terminal::tell;
use anyhow::{Context, ensure};
use std::fs::File;
use std::io::Read;
use std::path::Path;

const PASSWORD_BYTES_MAX: u64 = 4 << 10;

/// Returns the address of `--database`, with the password of `--database-password-file`.
pub fn url(args: &ServerArgs) -> anyhow::Result<Option<String>> {
    let Some(url) = &args.database else { return Ok(None) };
    let has_password = has_password(url);
    if let Some(path) = &args.database_password_file {
        ensure!(!has_password, "--database and --database-password-file both give a password: leave one out");
        let named = || format!("--database-password-file {}", path.display());
        let password = read_password(path).with_context(named)?;
        let sign = if url.contains('?') { '&' } else { '?' };
        return Ok(Some(format!("{url}{sign}password={}", percent_encoded(&password))));
    }
    if has_password {
        tell(
            "sailfish: all users of this machine can see the password in --database: use \
             --database-password-file or PGPASSFILE",
        );
    }
    Ok(Some(url.clone()))
}

fn has_password(url: &str) -> bool {
    let (address, parameters) = url.split_once('?').unwrap_or((url, ""));
    let login = address.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    login.is_some_and(|(login, _)| login.contains(':'))
        || parameters.split('&').any(|parameter| parameter.starts_with("password="))
}

/// Reads a password, without the end of its line.
fn read_password(path: &Path) -> anyhow::Result<String> {
    let mut password = String::new();
    let bytes = File::open(path)?.take(PASSWORD_BYTES_MAX + 1).read_to_string(&mut password)?;
    ensure!(bytes as u64 <= PASSWORD_BYTES_MAX, "it is longer than {PASSWORD_BYTES_MAX} bytes");
    let password = password.trim_end_matches(['\r', '\n']);
    ensure!(!password.is_empty(), "it is empty");
    Ok(password.to_string())
}

/// Encodes a text for the part after `?`: every byte with a meaning there, and others, as `%` and two digits.
fn percent_encoded(text: &str) -> String {
    let encoded = |byte: u8| match byte.is_ascii_alphanumeric() {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::{has_password, percent_encoded};

    #[test]
    fn a_password_in_an_address_is_seen() {
        for with in ["postgres://me:secret@host/db", "postgres://host/db?a=b&password=x"] {
            assert!(has_password(with), "{with}");
        }
        for without in
            ["postgres://me@host:5432/db", "postgres:///db?host=/run", "postgres://me@[::1]:5432/db"]
        {
            assert!(!has_password(without), "{without}");
        }
    }

    #[test]
    fn a_password_has_no_meaning_in_an_address() {
        assert_eq!(percent_encoded("a1 &%+é"), "a1%20%26%25%2B%C3%A9");
    }
}
