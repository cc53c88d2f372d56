//! The addresses of a server: its own, and those of standbys. One of them is used until it does not respond, and then
//! the next.

use crate::ClientError;
use reqwest::Url;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Maximum number of addresses of a server.
const ADDRESSES_MAX: usize = 16;

/// Shared by all copies of a client, so that each learns what one has found out.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// Never empty.
    all: Arc<[Url]>,
    current: Arc<AtomicUsize>,
}

impl Addresses {
    /// Parses `http://127.0.0.1:7070`, or several such addresses separated by commas.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let read = |url: &str| {
            let parsed = Url::parse(url).ok().filter(|parsed| parsed.host_str().is_some());
            parsed.ok_or_else(|| ClientError::BadUrl { url: url.to_string() })
        };
        let all = text.split(',').map(str::trim).map(read).collect::<Result<Vec<_>, _>>()?;
        if all.len() > ADDRESSES_MAX {
            return Err(ClientError::TooManyAddresses { count: all.len(), max: ADDRESSES_MAX });
        }
        Ok(Self { all: all.into(), current: Arc::default() })
    }

    pub fn all(&self) -> &[Url] {
        &self.all
    }

    /// Returns whether there are several addresses.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// Returns the current address.
    pub fn current(&self) -> &Url {
        &self.all[self.current.load(Ordering::Relaxed)]
    }

    /// Moves to the next address after a failure of `asked`, unless another request has done so already.
    pub fn pass_over(&self, asked: &Url) {
        let is_it = |address: &Url| address.origin() == asked.origin();
        if let Some(index) = self.all.iter().position(is_it) {
            let next = (index + 1) % self.all.len();
            let _ = self.current.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Addresses;
    use reqwest::Url;

    #[test]
    fn the_next_one_is_asked_where_one_fails() {
        let addresses = Addresses::parse("http://a:1, http://b:2,http://c:3/").unwrap();
        let asked = |text: &str| Url::parse(text).unwrap();
        assert!(addresses.are_several() && addresses.all().len() == 3);
        let shared = addresses.clone();
        shared.pass_over(&asked("http://a:1/v1/jobs?limit=3"));
        assert_eq!(addresses.current().as_str(), "http://b:2/");
        // Another request to the same address failed too, which has no further effect.
        addresses.pass_over(&asked("http://a:1/v1/nodes"));
        assert_eq!(addresses.current().as_str(), "http://b:2/");
        addresses.pass_over(&asked("http://b:2/v1/nodes"));
        addresses.pass_over(&asked("http://c:3/v1/nodes"));
        assert_eq!(addresses.current().as_str(), "http://a:1/");
        let one = Addresses::parse("http://a:1").unwrap();
        one.pass_over(one.current());
        assert!(!one.are_several() && one.current().as_str() == "http://a:1/");
    }

    #[test]
    fn each_must_be_an_address() {
        for text in ["", "nowhere", "http://a:1,", "http://a:1,b", "mailto:x@y"] {
            assert!(Addresses::parse(text).is_err(), "{text:?}");
        }
        assert!(Addresses::parse(&vec!["http://a:1"; 17].join(",")).is_err());
    }
}
