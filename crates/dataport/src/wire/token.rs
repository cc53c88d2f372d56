//! The tokens that requests to data ports show.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use ids::JobId;
use subtle::ConstantTimeEq;

/// A secret that a request shows. What it is and for which data it is good is not known here.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// None where the text cannot stand in a header: only visible ASCII can.
    pub fn new(text: String) -> Option<Self> {
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then_some(Self(text))
    }

    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the value of the header `authorization`.
    pub(crate) fn header_value(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Compares in a time that does not tell how much of it is right.
    pub fn is(&self, shown: &str) -> bool {
        self.0.as_bytes().ct_eq(shown.as_bytes()).into()
    }
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for Token {}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Knows what shows other nodes that this one has to do with a job.
pub trait JobTokens: Send + Sync {
    /// Those of a job, the newest first.
    fn tokens(&self, job: JobId) -> Vec<Token>;

    /// A node let none of them in: waits until the server has said which are good by now, or does not answer.
    fn renew(&self);
}

/// The token in the header `authorization`; None where no token can be read.
pub(crate) fn shown(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = given.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case("bearer ").then_some(token)
}

#[cfg(test)]
mod tests {
    use super::{Token, shown};
    use axum::http::HeaderMap;
    use axum::http::header::AUTHORIZATION;

    #[test]
    fn only_the_whole_token_is_the_same() {
        let token = Token::new("secret".into()).unwrap();
        assert!(token.is("secret"));
        for other in ["", "secre", "secret2", "Secret"] {
            assert!(!token.is(other), "{other}");
        }
        assert!(Token::new(String::new()).is_none() && Token::new("a\nb".into()).is_none());
    }

    #[test]
    fn header_gives_the_text_behind_its_scheme() {
        let check = |header: Option<&str>, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            assert_eq!(shown(&headers), expected, "{header:?}");
        };
        check(Some("Bearer secret"), Some("secret"));
        check(Some("bearer secret"), Some("secret"));
        check(Some("Bearer "), Some(""));
        check(Some("Basic secret"), None);
        check(Some("secret"), None);
        check(None, None);
    }
}
