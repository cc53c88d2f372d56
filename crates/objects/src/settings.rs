//! Address and credentials of the store: from the environment of this process, and from a file that overrides it.

use crate::error::ObjectError;
use object_store::ClientConfigKey;
use object_store::RetryConfig;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Variable with the path of the settings file.
pub const SETTINGS_FILE_VARIABLE: &str = "SAILFISH_OBJECTS_CONFIG";
/// Prefix of the name of every setting.
const PREFIX: &str = "AWS_";
/// Number of tries of a request, as in the tools of AWS.
const ATTEMPTS_SETTING: &str = "AWS_MAX_ATTEMPTS";
const ATTEMPTS_DEFAULT: usize = 8;
/// Time after the first attempt in which retries begin.
const RETRY_TIME_MAX: Duration = Duration::from_secs(60);
/// Timeout of a window or a piece.
const REQUEST_TIME: &str = "300s";
const CONNECT_TIME: &str = "10s";

static FROM_FILE: OnceLock<Vec<(String, String)>> = OnceLock::new();

/// Reads a file of lines `NAME=VALUE` with the names of the environment; `#` begins a comment. Call it at most once,
/// before anything else of this crate.
pub fn read_settings_file(path: &Path) -> Result<(), ObjectError> {
    let wrong = |reason: String| ObjectError::Settings { reason: format!("{}: {reason}", path.display()) };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let settings =
        parse(&text).map_err(|line| wrong(format!("line {line} is not AWS_NAME=VALUE with a known name")))?;
    FROM_FILE
        .set(settings)
        .map_err(|_| wrong("this process has read another settings file already".to_string()))
}

/// Parses the settings in a text; the error is the number of the first invalid line. A message never repeats a value.
fn parse(text: &str) -> Result<Vec<(String, String)>, usize> {
    let mut settings = Vec::new();
    for (index, line) in text.lines().map(str::trim).enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(index + 1)?;
        let name = name.trim();
        if name != ATTEMPTS_SETTING && config_key(name).is_none() {
            return Err(index + 1);
        }
        settings.push((name.to_string(), value.trim().to_string()));
    }
    Ok(settings)
}

fn config_key(name: &str) -> Option<AmazonS3ConfigKey> {
    name.starts_with(PREFIX).then(|| name.to_ascii_lowercase().parse().ok()).flatten()
}

/// Makes a client's settings for a bucket.
pub(crate) fn builder(bucket: &str) -> Result<AmazonS3Builder, ObjectError> {
    let from_environment = std::env::vars().filter(|(name, _)| name.starts_with(PREFIX));
    let from_file = FROM_FILE.get().into_iter().flatten().cloned();
    let client = |key| AmazonS3ConfigKey::Client(key);
    let mut builder = AmazonS3Builder::new()
        .with_config(client(ClientConfigKey::Timeout), REQUEST_TIME)
        .with_config(client(ClientConfigKey::ConnectTimeout), CONNECT_TIME);
    let mut attempts = ATTEMPTS_DEFAULT;
    for (name, value) in from_environment.chain(from_file) {
        if name == ATTEMPTS_SETTING {
            let reason = || format!("{ATTEMPTS_SETTING} is not a number");
            attempts = value.parse().map_err(|_| ObjectError::Settings { reason: reason() })?;
        } else if let Some(key) = config_key(&name) {
            builder = builder.with_config(key, value);
        }
    }
    check_endpoint(&builder)?;
    let retry = RetryConfig {
        max_retries: attempts.saturating_sub(1),
        retry_timeout: RETRY_TIME_MAX,
        ..Default::default()
    };
    Ok(builder.with_bucket_name(bucket).with_retry(retry))
}

fn check_endpoint(builder: &AmazonS3Builder) -> Result<(), ObjectError> {
    let value = |key| builder.get_config_value(&key);
    let endpoint = value(AmazonS3ConfigKey::S3Endpoint).or_else(|| value(AmazonS3ConfigKey::Endpoint));
    let in_clear = value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp));
    match endpoint {
        Some(url) if url.starts_with("http://") && in_clear.as_deref() != Some("true") => {
            let reason = "AWS_ENDPOINT_URL begins with http://: data would travel unencrypted; use \
                          https://, or set AWS_ALLOW_HTTP=true to allow it";
            Err(ObjectError::Settings { reason: reason.to_string() })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn settings_are_lines() {
        let text = "# of the test\n\nAWS_ACCESS_KEY_ID = a\nAWS_SECRET_ACCESS_KEY=b=c\nAWS_MAX_ATTEMPTS=2\n";
        let settings = parse(text).unwrap();
        assert_eq!(settings[1], ("AWS_SECRET_ACCESS_KEY".to_string(), "b=c".to_string()));
        assert_eq!(settings.len(), 3);
        assert_eq!(parse("AWS_REGION=x\nnonsense"), Err(2));
        assert_eq!(parse("PATH=x"), Err(1));
        assert_eq!(parse("AWS_NO_SUCH_THING=x"), Err(1));
    }
}
