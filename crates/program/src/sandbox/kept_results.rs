//! Results about directories that are kept for the programs of the next moments: many short programs of a workflow ask the
//! same.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a result is kept: a directory may be exchanged, or a file system mounted over it, meanwhile.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(1);
/// Maximum number of kept results.
const KEPT_MAX: usize = 4;

struct Kept<K, V> {
    key: K,
    result: Arc<V>,
    found: Instant,
}

/// The newest results by key.
pub(super) struct KeptResults<K, V>(Mutex<Vec<Kept<K, V>>>);

impl<K: PartialEq, V> KeptResults<K, V> {
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Returns the result of a moment ago if it still holds, or finds it.
    pub fn get(&self, key: K, holds: impl FnOnce(&V) -> bool, find: impl FnOnce(&K) -> V) -> Arc<V> {
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |kept: &Kept<K, V>| kept.found.elapsed() < KEPT_FOR;
        let kept =
            all().iter().find(|kept| kept.key == key && is_new(kept)).map(|kept| Arc::clone(&kept.result));
        if let Some(result) = kept.filter(|result| holds(result)) {
            return result;
        }
        let found = Instant::now();
        let result = Arc::new(find(&key));
        let mut all = all();
        all.retain(|kept| kept.key != key && is_new(kept));
        if all.len() >= KEPT_MAX {
            all.remove(0);
        }
        all.push(Kept { key, result: Arc::clone(&result), found });
        result
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_FOR, KEPT_MAX, KeptResults};
    use std::time::Instant;

    #[test]
    fn results_are_found_again_after_their_time() {
        let results: KeptResults<u32, u32> = KeptResults::new();
        assert_eq!(*results.get(1, |_| true, |key| key + 10), 11);
        assert_eq!(*results.get(1, |_| true, |_| unreachable!("it is kept")), 11);
        assert_eq!(*results.get(1, |_| false, |key| key + 15), 16);
        let before = Instant::now().checked_sub(KEPT_FOR).expect("the machine has run for longer");
        results.0.lock().unwrap()[0].found = before;
        assert_eq!(*results.get(1, |_| true, |key| key + 20), 21);
        (2..9).for_each(|key| drop(results.get(key, |_| true, |key| *key)));
        assert_eq!(results.0.lock().unwrap().len(), KEPT_MAX);
    }
}
