//! Longest records, and the reason why a longer one is refused.

/// Limit of any record in bytes, independent of memory.
pub const RECORD_BYTES_LIMIT: u64 = 1 << 30;
/// Divisor of the memory budget that gives the limit of a record.
const RECORD_MEMORY_SHARE: u64 = 4;

/// Returns the reason for refusing a record longer than a quarter of the budget: the limit that it exceeds, and the
/// required memory if more memory helps.
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
