//! The combine window of `builtin:aggregate`: pairs that can be folded in parts are folded, the rest is kept unchanged.

use api::TaskFailure;
use functions::Emitter;
use functions::aggregate::{Aggregate, AggregateError, Kind, kind_and_name};
use std::collections::HashMap;

/// Memory counted for each key or value that is kept, beside its bytes.
const COST_BYTES: u64 = 160;

/// The pairs of a window.
#[derive(Default)]
pub(crate) struct AggregateWindow {
    /// Index into `folded`.
    places: HashMap<Vec<u8>, usize>,
    /// In order of the keys' arrival.
    folded: Vec<(Vec<u8>, Kind, Aggregate)>,
    /// Pairs that only the reducer can fold.
    waiting: Vec<(Vec<u8>, Vec<u8>)>,
    kept_bytes: u64,
}

impl AggregateWindow {
    /// Folds a pair in; returns the memory in use.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<u64, TaskFailure> {
        let failure = |error: AggregateError| error.failure(key, value);
        if let Some(place) = self.places.get(key) {
            let (_, kind, state) = &mut self.folded[*place];
            kind.add(state, value).map_err(failure)?;
            return Ok(self.kept_bytes);
        }
        let (kind, _) = kind_and_name(key).map_err(failure)?;
        self.kept_bytes += COST_BYTES + (key.len() + value.len()) as u64;
        if kind.folds_in_parts() {
            let state = kind.start(value).map_err(failure)?;
            self.places.insert(key.to_vec(), self.folded.len());
            self.folded.push((key.to_vec(), kind, state));
        } else {
            self.waiting.push((key.to_vec(), value.to_vec()));
        }
        Ok(self.kept_bytes)
    }

    /// Emits the content of the window and empties it.
    pub(crate) fn drain(&mut self, output: &mut dyn Emitter) -> Result<(), TaskFailure> {
        for (key, _, state) in self.folded.drain(..) {
            output.emit(&key, &state.finish())?;
        }
        for (key, value) in self.waiting.drain(..) {
            output.emit(&key, &value)?;
        }
        self.places.clear();
        self.kept_bytes = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::AggregateWindow;
    use api::TaskFailure;
    use functions::Emitter;

    struct Pairs(Vec<String>);

    impl Emitter for Pairs {
        fn emit(&mut self, key: &[u8], value: &[u8]) -> Result<(), TaskFailure> {
            self.0.push(format!("{}={}", key.escape_ascii(), value.escape_ascii()));
            Ok(())
        }
    }

    #[test]
    fn associative_functions_are_folded_in_parts() {
        let mut window = AggregateWindow::default();
        let pairs = [
            ("LongValueSum:a", "1"),
            ("DoubleValueSum:a", "0.1"),
            ("LongValueSum:a", "2"),
            ("UniqValueCount:a", "x"),
            ("StringValueMax:a", "b"),
            ("StringValueMax:a", "c"),
            ("UniqValueCount:a", "x"),
        ];
        for (key, value) in pairs {
            assert!(window.add(key.as_bytes(), value.as_bytes()).unwrap() > 0);
        }
        let mut output = Pairs(Vec::new());
        window.drain(&mut output).unwrap();
        let expected = [
            "LongValueSum:a=3",
            "StringValueMax:a=c",
            "DoubleValueSum:a=0.1",
            "UniqValueCount:a=x",
            "UniqValueCount:a=x",
        ];
        assert_eq!(output.0, expected);
        window.drain(&mut output).unwrap();
        assert_eq!(output.0.len(), expected.len());
        assert!(window.add(b"nothing", b"1").is_err() && window.add(b"LongValueSum:a", b"x").is_err());
    }
}
