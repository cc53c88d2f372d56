//! Conversions between our types and the columns.

use crate::StoreError;
use std::path::Path;

/// Converts a count or size for the store. Real ones do not reach 2^63; larger ones saturate instead of wrapping.
pub(crate) fn stored(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Converts a wrapping 128-bit sum to 16 bytes, big-endian, so that the column sorts like the number.
pub(crate) fn hash_sum_bytes(sum: u128) -> Vec<u8> {
    sum.to_be_bytes().to_vec()
}

/// Converts numbers and paths of rows back; an error names the column.
pub(crate) struct Reader<'a> {
    pub database: &'a Path,
}

impl Reader<'_> {
    pub fn damaged(&self, column: &'static str, value: impl ToString) -> StoreError {
        StoreError::DamagedValue { path: self.database.to_path_buf(), column, value: value.to_string() }
    }

    /// Converts a number to any of our integer types.
    pub fn number<T: TryFrom<i64>>(&self, column: &'static str, value: i64) -> Result<T, StoreError> {
        T::try_from(value).map_err(|_| self.damaged(column, value))
    }

    pub fn number_or_none<T: TryFrom<i64>>(
        &self,
        column: &'static str,
        value: Option<i64>,
    ) -> Result<Option<T>, StoreError> {
        value.map(|value| self.number(column, value)).transpose()
    }

    pub fn hash_sum(&self, column: &'static str, bytes: &[u8]) -> Result<u128, StoreError> {
        let array = <[u8; 16]>::try_from(bytes).map_err(|_| self.damaged(column, bytes.len()))?;
        Ok(u128::from_be_bytes(array))
    }
}

/// Converts a message to JSON.
pub(crate) fn json<T: serde::Serialize + ?Sized>(value: &T) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::Json)
}

/// Converts a path to text, so that users can read it with SQL and we get the same path back.
pub(crate) fn path_text(path: &Path) -> Result<&str, StoreError> {
    path.to_str().ok_or_else(|| StoreError::PathNotText { path: path.to_path_buf() })
}
