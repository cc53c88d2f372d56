//! Errors of objects, and their blame.

use crate::url::ObjectUrl;
use api::Blame;
use object_store::Error as StoreError;

/// Characters of a cause that are shown.
const CAUSE_CHARS_MAX: usize = 300;
/// Host that the library contacts for credentials if the settings have none.
const MACHINE_ROLE_HOST: &str = "169.254.169.254";

/// Text of a refusal for calls, such as a listing, for which the library does not distinguish it from other failures.
const REFUSALS: [&str; 2] = ["403 Forbidden", "401 Unauthorized"];

/// Every variant names the object.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("{url} is not the URL of an object: {reason}")]
    BadUrl { url: String, reason: &'static str },
    #[error("{url}: {scheme}: URLs are not supported: use s3://, or the path of a local file")]
    Scheme { url: String, scheme: String },
    #[error("{url} does not exist: there is no object of this name and none below it")]
    Missing { url: ObjectUrl },
    #[error("the bucket of {url} does not exist: create it, or correct its name or AWS_ENDPOINT_URL")]
    NoBucket { url: ObjectUrl },
    #[error(
        "cannot {action} {url}: access denied ({answer}); give this process AWS_ACCESS_KEY_ID and \
         AWS_SECRET_ACCESS_KEY of a user with access, in its environment or in the file named by \
         --objects-config"
    )]
    Denied { url: ObjectUrl, action: &'static str, answer: String },
    #[error(
        "cannot {action} {url}: there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the \
         environment of this process or in the file named by --objects-config (or AWS_SKIP_SIGNATURE=true for public \
         objects)"
    )]
    NoCredentials { url: ObjectUrl, action: &'static str },
    #[error("{url}: object changed during the run")]
    Changed { url: ObjectUrl },
    #[error(
        "{url} is both an object and a prefix of other objects: give a glob that matches only the wanted \
         objects"
    )]
    Ambiguous { url: ObjectUrl },
    #[error("there are more than {max} objects below {url}: give a longer prefix")]
    TooMany { url: ObjectUrl, max: usize },
    #[error("the output {url} appeared while the job ran; nothing was written there")]
    Appeared { url: ObjectUrl },
    #[error(
        "the output {url} holds {key:?}, which no job wrote there: --overwrite replaces only the output of a \
         job; choose another prefix, or move the object away"
    )]
    NotOurs { url: ObjectUrl, key: String },
    #[error("the attempt was cancelled")]
    Cancelled,
    #[error(
        "{url} cannot be larger than {max} pieces of {piece_bytes} bytes: give more --memory or --partitions"
    )]
    TooLarge { url: ObjectUrl, max: usize, piece_bytes: usize },
    #[error("{url} is damaged: {what}")]
    Damaged { url: ObjectUrl, what: &'static str },
    #[error("cannot {action} {url}: {cause}")]
    Failed { url: ObjectUrl, action: &'static str, cause: String },
    #[error("the settings for objects cannot be used: {reason}")]
    Settings { reason: String },
    #[error("the threads that read and write objects have ended: {reason}")]
    Threads { reason: String },
}

impl ObjectError {
    /// Returns the blame of the error. Missing credentials are the machine's fault: another node may have them.
    pub fn blame(&self) -> Blame {
        match self {
            Self::BadUrl { .. }
            | Self::Scheme { .. }
            | Self::Missing { .. }
            | Self::NoBucket { .. }
            | Self::Changed { .. }
            | Self::Ambiguous { .. }
            | Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::NotOurs { .. }
            | Self::Appeared { .. } => Blame::UserData,
            Self::Cancelled => Blame::Cancelled,
            Self::Damaged { .. } => Blame::Engine,
            Self::Denied { .. }
            | Self::NoCredentials { .. }
            | Self::Failed { .. }
            | Self::Settings { .. }
            | Self::Threads { .. } => Blame::Environment,
        }
    }

    /// Converts an error of the library during `action` on an object.
    pub(crate) fn of_store(action: &'static str, url: &ObjectUrl, error: &StoreError) -> Self {
        let (url, text) = (url.clone(), text_of(error));
        if text.contains("NoSuchBucket") {
            return Self::NoBucket { url };
        }
        if text.contains(MACHINE_ROLE_HOST) {
            return Self::NoCredentials { url, action };
        }
        match error {
            StoreError::NotFound { .. } => Self::Missing { url },
            StoreError::Precondition { .. } | StoreError::NotModified { .. } => Self::Changed { url },
            // A range beyond the end: the object has become shorter.
            _ if text.contains("InvalidRange") => Self::Changed { url },
            _ if REFUSALS.iter().any(|refusal| text.contains(refusal)) || is_refusal(error) => {
                let answer = answer_of(&text).unwrap_or_else(|| "no reason given".to_string());
                Self::Denied { url, action, answer }
            }
            _ => Self::Failed { url, action, cause: answer_of(&text).unwrap_or_else(|| shortened(&text)) },
        }
    }
}

fn is_refusal(error: &StoreError) -> bool {
    matches!(error, StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. })
}

impl From<ObjectError> for std::io::Error {
    fn from(error: ObjectError) -> Self {
        std::io::Error::other(error)
    }
}

/// Joins the chain of causes.
fn text_of(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

/// Returns code and message of a server's XML answer; None without a code. The rest of the answer may quote the
/// request.
fn answer_of(text: &str) -> Option<String> {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (inside, _) = rest.split_once(&format!("</{name}>"))?;
        Some(shortened(inside))
    };
    let code = element("Code")?;
    Some(match element("Message") {
        Some(message) => format!("{code}: {message}"),
        None => code,
    })
}

/// Shortens a text to one line of bounded length.
fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(CAUSE_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::{ObjectError, answer_of};
    use crate::ObjectUrl;
    use api::Blame;
    use object_store::Error;

    fn of(error: &Error) -> ObjectError {
        ObjectError::of_store("read", &ObjectUrl::parse("s3://b/k").unwrap(), error)
    }

    #[test]
    fn answers_of_a_server_become_causes() {
        let generic = |text: &str| Error::Generic { store: "S3", source: text.into() };
        let denied = Error::PermissionDenied {
            path: "k".to_string(),
            source: "<Error><Code>SignatureDoesNotMatch</Code><Message>no</Message>\
                     <StringToSign>secret</StringToSign></Error>"
                .into(),
        };
        let text = of(&denied).to_string();
        assert!(text.contains("SignatureDoesNotMatch: no") && !text.contains("secret"), "{text}");
        let absent = Error::NotFound { path: "k".to_string(), source: "<Code>NoSuchBucket</Code>".into() };
        assert!(matches!(of(&absent), ObjectError::NoBucket { .. }));
        assert!(matches!(of(&generic("<Code>InvalidRange</Code>")), ObjectError::Changed { .. }));
        assert!(matches!(of(&generic("status code: 403 Forbidden: ")), ObjectError::Denied { .. }));
        assert!(matches!(of(&generic("at http://169.254.169.254/x")), ObjectError::NoCredentials { .. }));
        let other = of(&generic(&"x".repeat(1000)));
        assert!(other.to_string().len() < 500 && other.blame() == Blame::Environment);
        assert_eq!(answer_of("no xml"), None);
    }
}
