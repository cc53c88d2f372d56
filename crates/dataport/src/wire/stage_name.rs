//! Names of stage files within their job.

use api::flow::stage_file_name;
use ids::{AttemptNumber, IntermediateId, TaskIndex};
use std::fmt;

/// Bytes of the longest name, and of the field that carries one.
pub const STAGE_FILE_NAME_BYTES_MAX: usize = 64;
/// Words of a name before its extension, and digits of a number in one.
const WORDS_MAX: usize = 4;
const DIGITS_MAX: usize = 10;
const EXTENSION: &str = "stage";
const USER_FILE: &str = "file-";

/// The name of a stage file, as `part-00003.attempt-0.stage`: up to four words with a number each, and the extension.
/// So it is always exactly one component of a path: not hidden, and without a way to another directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StageFileName(String);

impl StageFileName {
    /// None where the text is no such name.
    pub fn new(text: impl Into<String>) -> Option<Self> {
        let text = text.into();
        let words = text.strip_suffix(EXTENSION)?.strip_suffix('.')?;
        let count = words.split('.').count();
        let fits =
            text.len() <= STAGE_FILE_NAME_BYTES_MAX && count <= WORDS_MAX && words.split('.').all(is_word);
        fits.then_some(Self(text))
    }

    /// The file that an attempt writes in place of a part.
    pub fn of_part(part_index: u32, attempt: AttemptNumber) -> Self {
        Self(stage_file_name(TaskIndex(part_index), attempt))
    }

    /// An intermediate file of a user.
    pub fn of_user_file(file: IntermediateId) -> Self {
        Self(format!("{USER_FILE}{file}.{EXTENSION}"))
    }

    /// The intermediate file that has this name.
    pub fn user_file(&self) -> Option<IntermediateId> {
        let file = self.0.strip_prefix(USER_FILE)?.split('.').next()?.parse().ok().map(IntermediateId)?;
        (Self::of_user_file(file) == *self).then_some(file)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lower-case letters, a dash, digits.
fn is_word(word: &str) -> bool {
    word.split_once('-').is_some_and(|(name, number)| {
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
        is_name
            && (1..=DIGITS_MAX).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

impl fmt::Display for StageFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StageFileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::StageFileName;
    use ids::{AttemptNumber, IntermediateId};

    #[test]
    fn name_is_one_component_of_our_paths() {
        let check = |text: &str, is_one: bool| {
            assert_eq!(StageFileName::new(text).is_some(), is_one, "{text:?}");
        };
        check("part-00003.attempt-0.stage", true);
        check("stage-2.part-4294967295.attempt-4294967295.stage", true);
        check("part-1.stage", true);
        for text in [
            "",
            "stage",
            ".stage",
            "part-1",
            "part-1.",
            "part-1.stage.",
            "part.stage",
            "part-.stage",
            "-1.stage",
            "part-1..stage",
            "..part-1.stage",
            "../part-1.stage",
            "part-1/../part-2.stage",
            "/part-1.stage",
            "part-1\\2.stage",
            "part-1.stage\0",
            "part-1\n.stage",
            "Part-1.stage",
            "part-1.STAGE",
            "part-12345678901.stage",
            "part-1a.stage",
            "part--1.stage",
            "pärt-1.stage",
            "part-١.stage",
            " part-1.stage",
            "a-1.b-1.c-1.d-1.e-1.stage",
            "run-000001.ifile",
        ] {
            check(text, false);
        }
        check(&format!("{}-1.stage", "a".repeat(56)), true);
        check(&format!("{}-1.stage", "a".repeat(57)), false);
        let longest = StageFileName::of_part(u32::MAX, AttemptNumber(u32::MAX));
        assert_eq!(StageFileName::new(longest.as_str()), Some(longest));
        assert_eq!(StageFileName::of_part(3, AttemptNumber(0)).as_str(), "part-00003.attempt-0.stage");
        let of_user = StageFileName::of_user_file(IntermediateId(9_999_999_999));
        assert_eq!(StageFileName::new(of_user.as_str()), Some(of_user.clone()));
        assert_eq!(of_user.user_file(), Some(IntermediateId(9_999_999_999)));
        for other in ["file-07.stage", "file-7.attempt-0.stage", "part-7.stage"] {
            assert_eq!(StageFileName::new(other).and_then(|name| name.user_file()), None, "{other}");
        }
    }
}
