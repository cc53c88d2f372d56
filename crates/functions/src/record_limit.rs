//! Longest records, and the reason why a longer one is refused.

/// No record is longer than this, whatever the memory.
pub const RECORD_BYTES_LIMIT: u64 = 1 << 30;
/// A record may take this share of the memory budget, as a divisor.
const RECORD_MEMORY_SHARE: u64 = 4;

/// Returns the reason for the refusal of a record longer than a quarter of the budget: the limit that it breaks, and the
/// memory that it needs if more memory helps.
pub fn record_too_long(record_bytes: u64, record_bytes_max: u64) -> String {
    if record_bytes > RECORD_BYTES_LIMIT {
        return format!("it has more than {RECORD_BYTES_LIMIT} bytes, the limit of any record");
    }
    let needed_mib = (record_bytes * RECORD_MEMORY_SHARE).div_ceil(1 << 20);
    format!(
        "it has {record_bytes} bytes, but a record may have {record_bytes_max} here; it needs --memory \
         {needed_mib}M"
    )
}
