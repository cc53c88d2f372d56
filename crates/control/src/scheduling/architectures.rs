//! Architectures of nodes, by their numbers in the scheduler.

/// Architectures by number.
#[derive(Default)]
pub(crate) struct Architectures(Vec<String>);

impl Architectures {
    pub fn number(&mut self, name: &str) -> u32 {
        let known = self.0.iter().position(|each| each == name);
        let index = known.unwrap_or_else(|| {
            self.0.push(name.to_string());
            self.0.len() - 1
        });
        index as u32
    }

    pub fn name(&self, number: u32) -> &str {
        self.0.get(number as usize).map_or("", String::as_str)
    }
}
