//! The lines of a timeline: axis, slots, stages.

use super::{Mark, Span, StageTime};

/// Columns before the drawing.
pub const LABEL_COLUMNS: usize = 10;
/// Least number of columns between two numbers on the axis.
const TICK_COLUMNS_MIN: f64 = 10.0;
const NANOS_PER_SECOND: f64 = 1e9;
const IDLE: char = '.';

/// The stretch of time that is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub start_ns: u64,
    pub end_ns: u64,
    pub columns: usize,
}

impl Frame {
    fn wall_ns(&self) -> f64 {
        (self.end_ns.saturating_sub(self.start_ns)).max(1) as f64
    }

    /// Returns the position of a time, in columns and fractions of one.
    fn position(&self, time_ns: u64) -> f64 {
        let since = time_ns.saturating_sub(self.start_ns) as f64;
        (since / self.wall_ns() * self.columns as f64).min(self.columns as f64)
    }

    fn column(&self, time_ns: u64) -> usize {
        (self.position(time_ns) as usize).min(self.columns - 1)
    }
}

/// Draws the line of a slot: a letter per column, for the longest work in it. A lost attempt gets at least one column.
pub fn slot_line(frame: &Frame, spans: &[Span]) -> String {
    let mut parts = vec![[0.0; Mark::ALL.len()]; frame.columns];
    for span in spans {
        let (from, to) = (frame.position(span.start_ns), frame.position(span.end_ns));
        let last = (to.ceil() as usize).min(frame.columns);
        let columns = parts.iter_mut().enumerate().take(last).skip(from as usize);
        for (column, part) in columns {
            let inside = to.min(column as f64 + 1.0) - from.max(column as f64);
            part[span.mark as usize] += inside.max(0.0);
        }
    }
    let mut letters: Vec<char> = parts.iter().map(most).collect();
    for span in spans.iter().filter(|span| span.mark == Mark::Lost) {
        let (first, last) = (frame.column(span.start_ns), frame.column(span.end_ns));
        if !letters[first..=last].contains(&Mark::Lost.letter()) {
            letters[(first + last) / 2] = Mark::Lost.letter();
        }
    }
    letters.into_iter().collect()
}

fn most(part: &[f64; Mark::ALL.len()]) -> char {
    let idle = (1.0 - part.iter().sum::<f64>()).max(0.0);
    let mut best = (idle, IDLE);
    for mark in Mark::ALL {
        // Work wins a tie, because users look for it.
        if part[mark as usize] >= best.0 && part[mark as usize] > 0.0 {
            best = (part[mark as usize], mark.letter());
        }
    }
    best.1
}

/// Draws two lines: seconds, and a mark below each number.
pub fn axis(frame: &Frame) -> String {
    let wall = frame.wall_ns() / NANOS_PER_SECOND;
    let step = tick_step(wall * TICK_COLUMNS_MIN / frame.columns as f64);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    let mut numbers = vec![' '; frame.columns + 2];
    let mut ticks = vec!['-'; frame.columns];
    let mut tick = 0.0;
    let mut free = 0;
    while tick <= wall {
        let column = (tick / wall * frame.columns as f64) as usize;
        let text: Vec<char> = format!("{tick:.decimals$}").chars().collect();
        if column < frame.columns {
            ticks[column] = '+';
        }
        if column >= free && column + text.len() <= numbers.len() {
            numbers[column..column + text.len()].copy_from_slice(&text);
            free = column + text.len() + 1;
        }
        tick += step;
    }
    let numbers: String = numbers.into_iter().collect();
    let ticks: String = ticks.into_iter().collect();
    let margin = " ".repeat(LABEL_COLUMNS);
    format!("{:<LABEL_COLUMNS$} {}\n{margin}|{ticks}|\n", "seconds", numbers.trim_end())
}

/// Returns the smallest of 1, 2, 5, 10, 20, ... (and below) that is not less.
fn tick_step(least: f64) -> f64 {
    let least = least.max(1e-6);
    let power = 10f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= least * 0.999)
        .unwrap_or(10.0 * power)
}

/// Draws the line of the stages: `^` in the column where a stage begins, and its name if there is room. Stages that
/// begin in the same column share their mark.
pub fn stage_line(frame: &Frame, stages: &[StageTime]) -> String {
    let mut line = vec![' '; frame.columns + 2];
    let starts: Vec<usize> = stages.iter().map(|stage| frame.column(stage.start_ns)).collect();
    let mut free = 0;
    for (index, stage) in stages.iter().enumerate() {
        let column = starts[index];
        if column < free {
            continue;
        }
        line[column] = '^';
        free = column + 1;
        let next = starts.iter().copied().find(|start| *start > column).unwrap_or(line.len());
        let name: Vec<char> = stage.name.chars().collect();
        if column + 1 + name.len() <= next {
            line[column + 1..column + 1 + name.len()].copy_from_slice(&name);
            free += name.len();
        }
    }
    let line: String = line.into_iter().collect();
    format!("{:<LABEL_COLUMNS$} {}\n", "stages", line.trim_end())
}

/// Returns a line with the colours of a terminal.
pub fn colour(line: &str) -> String {
    let mut text = String::new();
    let mut current = None;
    for letter in line.chars() {
        let code = match letter {
            '#' => 32,
            '%' => 33,
            '!' => 36,
            '=' => 35,
            '-' => 31,
            _ => 90,
        };
        if current != Some(code) {
            text.push_str(&format!("\u{1b}[{code}m"));
            current = Some(code);
        }
        text.push(letter);
    }
    if current.is_some() {
        text.push_str("\u{1b}[0m");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Frame, axis, colour, slot_line, stage_line, tick_step};
    use crate::commands::inspect::timeline::{Mark, Span, StageTime};

    const SECOND: u64 = 1_000_000_000;

    fn frame(seconds: u64, columns: usize) -> Frame {
        Frame { start_ns: 100 * SECOND, end_ns: (100 + seconds) * SECOND, columns }
    }

    fn span(mark: Mark, from_ms: u64, to_ms: u64) -> Span {
        let at = |ms: u64| 100 * SECOND + ms * 1_000_000;
        Span { slot: 0, mark, start_ns: at(from_ms), end_ns: at(to_ms) }
    }

    #[test]
    fn column_shows_its_longest_state() {
        let check = |spans: &[Span], expected: &str| assert_eq!(slot_line(&frame(10, 10), spans), expected);
        check(&[], "..........");
        check(&[span(Mark::Map, 0, 5000), span(Mark::Reduce, 6000, 10_000)], "#####.!!!!");
        check(
            &[span(Mark::Map, 0, 2600), span(Mark::Merge, 2600, 3200), span(Mark::Reduce, 3200, 4000)],
            "###!......",
        );
        // Shorter than a column, but lost.
        check(&[span(Mark::Map, 0, 4000), span(Mark::Lost, 4100, 4110)], "####-.....");
        check(&[span(Mark::Commit, 9990, 10_000)], "..........");
        check(&[span(Mark::Lost, 10_000, 10_000)], ".........-");
    }

    #[test]
    fn the_axis_counts_seconds() {
        let text = axis(&frame(10, 50));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "seconds    0         2         4         6         8         10");
        assert_eq!(lines[1], "          |+---------+---------+---------+---------+---------|");
        assert_eq!((tick_step(0.3), tick_step(2.0), tick_step(7.0)), (0.5, 2.0, 10.0));
        // A job without duration has an axis too.
        axis(&Frame { start_ns: 5, end_ns: 5, columns: 20 });
    }

    #[test]
    fn stages_are_named_where_there_is_room() {
        let stage = |name: &str, from_ms: u64| StageTime {
            name: name.to_string(),
            start_ns: 100 * SECOND + from_ms * 1_000_000,
            end_ns: 110 * SECOND,
        };
        let stages = [stage("map", 0), stage("seal", 4000), stage("reduce", 4100), stage("commit", 9900)];
        let line = stage_line(&frame(10, 20), &stages);
        assert_eq!(line, "stages     ^map    ^seal      ^\n");
    }

    #[test]
    fn colours_change_where_the_mark_does() {
        assert_eq!(colour("##-"), "\u{1b}[32m##\u{1b}[31m-\u{1b}[0m");
        assert_eq!(colour(""), "");
    }
}
