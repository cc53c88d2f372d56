//! Access to the server and to the data ports: tokens of users, and the keys that sign rights to data.

mod data_keys;
mod users;

pub(crate) use data_keys::{EarlierKeys, Signing, key_made};
pub use users::NewToken;
