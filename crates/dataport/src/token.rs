//! The bearer token of the data port.

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use ids::IntermediateId;
use std::time::{SystemTime, UNIX_EPOCH};
use subtle::ConstantTimeEq;
use trust::{FileGrant, FileRight};

/// A secret that both ends know. What it is and for which jobs it is good is not known here.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// None where the text cannot stand in a header: only visible ASCII can.
    pub fn new(text: String) -> Option<Self> {
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then_some(Self(text))
    }

    /// What goes into the header `authorization`.
    pub(crate) fn header_value(&self) -> String {
        format!("Bearer {}", self.0)
    }

    /// Compares in a time that does not tell how much of it is right.
    fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// What the headers say of the right to be here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    Admitted,
    /// No token was given, or none that can be read.
    NoToken,
    WrongToken,
}

/// Checks the header `authorization` against the token that is expected; None lets everybody in.
pub(crate) fn check(expected: Option<&Token>, headers: &HeaderMap) -> Admission {
    let Some(expected) = expected else { return Admission::Admitted };
    let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
    match given.and_then(|value| value.split_at_checked(7)) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(b"bearer ") => match expected.matches(token) {
            true => Admission::Admitted,
            false => Admission::WrongToken,
        },
        _ => Admission::NoToken,
    }
}

/// Whether the header holds a grant of this right to a file, signed with the token of the data ports.
pub(crate) fn is_granted(token: &Token, file: IntermediateId, right: FileRight, headers: &HeaderMap) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|value| value.split_at_checked(7));
    let Some((scheme, text)) = given else { return false };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    scheme.eq_ignore_ascii_case("bearer ") && FileGrant::is_given(file.0, right, text, &token.0, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_admitted() {
        let token = Token::new("secret".into()).unwrap();
        let check = |header: Option<&str>, expected| {
            let mut headers = HeaderMap::new();
            if let Some(header) = header {
                headers.insert(AUTHORIZATION, header.parse().unwrap());
            }
            assert_eq!(super::check(Some(&token), &headers), expected, "{header:?}");
        };
        check(Some("Bearer secret"), Admission::Admitted);
        check(Some("bearer secret"), Admission::Admitted);
        check(Some("Bearer secre"), Admission::WrongToken);
        check(Some("Bearer secret2"), Admission::WrongToken);
        check(Some("Bearer "), Admission::WrongToken);
        check(Some("Basic secret"), Admission::NoToken);
        check(Some("secret"), Admission::NoToken);
        check(None, Admission::NoToken);
        assert_eq!(super::check(None, &HeaderMap::new()), Admission::Admitted);
        assert!(Token::new(String::new()).is_none() && Token::new("a\nb".into()).is_none());
    }
}
