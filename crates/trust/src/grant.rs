//! The right to one intermediate file: signed by the server with the secret of the data ports, and checked by them without asking
//! anybody, so that a user reaches their own file and nothing else of a node.

use ring::hmac;

const PREFIX: &str = "file";
/// Of a signature, as text.
const SIGNATURE_DIGITS: usize = 64;

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileRight {
    Read,
    /// Also to complete it, and to give it up.
    Write,
}

impl FileRight {
    fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The right to do something with one file until a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileGrant {
    pub file: i64,
    pub right: FileRight,
    /// Seconds since 1970.
    pub expires_seconds: u64,
}

impl FileGrant {
    fn claim(&self) -> String {
        format!("{PREFIX}.{}.{}.{}", self.file, self.right.word(), self.expires_seconds)
    }

    /// As it stands in a header, good for every data port that knows the secret, given by its text.
    pub fn sign(&self, secret: &str) -> String {
        let claim = self.claim();
        let signature = hmac::sign(&key(secret), claim.as_bytes());
        format!("{claim}.{}", hex::encode(signature.as_ref()))
    }

    /// Whether a text is this right, signed with the secret, at a time in seconds since 1970; `expires_seconds` is that of the text.
    pub fn is_given(file: i64, right: FileRight, text: &str, secret: &str, now_seconds: u64) -> bool {
        let Some((claim, signature)) = text.rsplit_once('.') else { return false };
        let expires = claim.rsplit('.').next().and_then(|word| word.parse().ok());
        let Some(expires_seconds) = expires.filter(|expires| *expires >= now_seconds) else { return false };
        let mut bytes = [0; SIGNATURE_DIGITS / 2];
        let is_signature = hex::decode_to_slice(signature, &mut bytes).is_ok();
        // One spelling: what it says is compared as text.
        is_signature
            && Self { file, right, expires_seconds }.claim() == claim
            && hmac::verify(&key(secret), claim.as_bytes(), &bytes).is_ok()
    }
}

fn key(secret: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::{FileGrant, FileRight};

    #[test]
    fn a_grant_is_for_one_file_and_one_right_until_its_time() {
        let grant = FileGrant { file: 7, right: FileRight::Read, expires_seconds: 100 };
        let text = grant.sign("secret");
        let check = |file, right, text: &str, secret, now, expected| {
            assert_eq!(
                FileGrant::is_given(file, right, text, secret, now),
                expected,
                "{file} {right:?} {text} {now}"
            );
        };
        check(7, FileRight::Read, &text, "secret", 100, true);
        check(7, FileRight::Read, &text, "secret", 101, false);
        check(7, FileRight::Write, &text, "secret", 1, false);
        check(8, FileRight::Read, &text, "secret", 1, false);
        check(7, FileRight::Read, &text, "another", 1, false);
        check(7, FileRight::Read, &text.replace(".100.", ".200."), "secret", 1, false);
        check(7, FileRight::Read, &text.replace(".100.", ".0100."), "secret", 1, false);
        for wrong in ["", "file", "file.7.read.100", &text[..text.len() - 2], &format!("{text}00")] {
            check(7, FileRight::Read, wrong, "secret", 1, false);
        }
    }
}
