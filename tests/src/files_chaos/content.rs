//! Contents by numbers: the bytes of every file follow from the seed and the number of its content, and begin with that number. So
//! a reader knows which content it got, and whether it is whole.

use crate::Random;
use std::collections::BTreeMap;

/// Word at the beginning of each file, before the number of the content.
const MARK: &str = "content-";
const DIGITS: usize = 6;
/// Files that travel together.
const SMALL_FILES: std::ops::Range<u64> = 12..24;
const SMALL_BYTES_MAX: u64 = 4000;
/// More than is put and read together with others.
const LARGE_BYTES: u64 = (1 << 20) + 1000;
const LARGE_BYTES_MORE: u64 = 200_000;
/// Bytes between two lines that say where they stand: less than a block with a checksum.
const STRETCH_BYTES: usize = 8 << 10;

/// A file that every tree has, and one that most have.
pub(super) const SMALL_FILE: &str = "small/03";
pub(super) const LARGE_FILE: &str = "large/0";

/// Kinds of contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Shape {
    /// A directory with small files and a large one.
    Tree,
    /// One file.
    Single,
    /// The words of a tree and their counts, as a job writes them, in any order.
    Counts,
}

/// A content, which may have several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Content {
    pub shape: Shape,
    pub number: u32,
}

/// The files of a content by their names below its own; a single file has the empty name.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

impl Content {
    /// Makes the files. The lines of counts are sorted.
    pub fn files(self, seed: u64) -> Files {
        let mut random = Random::new(seed ^ (u64::from(self.number) << 32));
        match self.shape {
            Shape::Tree => self.tree(&mut random),
            Shape::Single => {
                let bytes = match random.chance(50) {
                    true => random.below(SMALL_BYTES_MAX),
                    false => LARGE_BYTES + random.below(LARGE_BYTES_MORE),
                };
                Files::from([(String::new(), self.text("", bytes, &mut random))])
            }
            Shape::Counts => {
                let tree = Content { shape: Shape::Tree, ..self };
                Files::from([(String::new(), counts(&tree.files(seed)))])
            }
        }
    }

    fn tree(self, random: &mut Random) -> Files {
        let small = SMALL_FILES.start + random.below(SMALL_FILES.end - SMALL_FILES.start);
        let mut files = Files::new();
        for number in 0..small {
            let name = format!("small/{number:02}");
            let text = self.text(&name, random.below(SMALL_BYTES_MAX), random);
            files.insert(name, text);
        }
        if random.chance(80) {
            let bytes = LARGE_BYTES + random.below(LARGE_BYTES_MORE);
            files.insert(LARGE_FILE.to_string(), self.text(LARGE_FILE, bytes, random));
        }
        files.insert("deep/er/one".to_string(), self.text("one", 100, random));
        files
    }

    /// Writes lines of words. Each stretch says the content, the file and its place.
    fn text(self, name: &str, bytes: u64, random: &mut Random) -> Vec<u8> {
        let first = format!("{MARK}{:0DIGITS$}\n", self.number);
        let bytes = (bytes as usize).max(first.len());
        let words: Vec<String> = (0..200).map(|_| format!("word{}", random.below(500))).collect();
        let mut stretch = String::new();
        while stretch.len() < STRETCH_BYTES.min(bytes) {
            stretch.push_str(&words[random.below(words.len() as u64) as usize]);
            stretch.push(if random.chance(10) { '\n' } else { ' ' });
        }
        let mut text = first.into_bytes();
        let mut place = 0;
        while text.len() < bytes {
            text.extend_from_slice(format!("{name}:{}:{place}\n{stretch}\n", self.number).as_bytes());
            place += 1;
        }
        text.truncate(bytes);
        text
    }

    /// Returns the sizes of the files.
    pub fn sizes(self, seed: u64) -> BTreeMap<String, u64> {
        self.files(seed).into_iter().map(|(name, bytes)| (name, bytes.len() as u64)).collect()
    }
}

/// Returns the number of the content that a file says it belongs to.
pub(super) fn number_in(bytes: &[u8]) -> Option<u32> {
    let digits = bytes.strip_prefix(MARK.as_bytes())?.get(..DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the number of the content whose words were counted.
pub(super) fn number_in_counts(bytes: &[u8]) -> Option<u32> {
    bytes.split(|byte| *byte == b'\n').find_map(number_in)
}

/// Sorts the lines of an output, whose parts hold them in no order.
pub(super) fn sorted_counts(bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    lines.sort_unstable();
    lines.concat()
}

fn counts(files: &Files) -> Vec<u8> {
    let mut counts: BTreeMap<&[u8], u64> = BTreeMap::new();
    for bytes in files.values() {
        let words = bytes.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.for_each(|word| *counts.entry(word).or_default() += 1);
    }
    let mut text = Vec::new();
    for (word, count) in counts {
        text.extend_from_slice(word);
        text.extend_from_slice(format!("\t{count}\n").as_bytes());
    }
    sorted_counts(&text)
}
