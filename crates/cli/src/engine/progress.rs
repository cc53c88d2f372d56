//! Progress on standard error: bars on a terminal, otherwise occasional lines, or JSON lines for a program that draws
//! bars.

use crate::engine::meter::Meter;
use crate::engine::phases::{Phase, Standing};
use crate::show::quantity;
use crate::show::terminal::{self, tell};
use indicatif::{ProgressBar, ProgressStyle};
use jobspec::Plan;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval between two readings of the counters.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Interval between two lines without a terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// Display of the progress of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Display {
    Bars,
    Lines,
    /// For a program: lines of JSON, [`told_to_programs`].
    Json,
    Nothing,
}

/// Variable that is set to `json` by programs that show progress themselves.
const PROGRESS_VARIABLE: &str = "SAILFISH_PROGRESS";

impl Display {
    /// Chooses bars on a terminal and lines without one, but neither beside a report for a program, unless it asks for
    /// them. The plans are the jobs whose progress is shown together.
    pub fn choose<'a>(plans: impl IntoIterator<Item = &'a Plan>) -> Display {
        let json = plans.into_iter().any(|plan| plan.json);
        if std::env::var_os(PROGRESS_VARIABLE).is_some_and(|asked| asked == "json") {
            return Display::Json;
        }
        match (std::io::stderr().is_terminal(), json) {
            (true, _) => Display::Bars,
            (false, false) => Display::Lines,
            (false, true) => Display::Nothing,
        }
    }
}

/// Shows progress until `stop` is dropped or sent to. `look` returns the phases of the job.
pub fn show(display: Display, look: impl Fn() -> Vec<Phase>, stop: &Receiver<()>) {
    let mut screen: Box<dyn Screen> = match display {
        Display::Nothing => return,
        Display::Bars => Box::new(Bars::default()),
        Display::Lines => Box::new(Lines::default()),
        Display::Json => Box::new(Told::default()),
    };
    let start = Instant::now();
    let mut tracks = Vec::new();
    loop {
        let running = stop.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout);
        let now = start.elapsed();
        follow(&mut tracks, look(), now);
        screen.draw(&mut tracks, now);
        if !running {
            return screen.close();
        }
    }
}

/// A phase over time.
struct Track {
    phase: Phase,
    meter: Meter,
    /// Time since which it runs.
    started: Option<Duration>,
    /// True after its end was printed.
    told: bool,
}

impl Track {
    fn summary(&self, now: Duration) -> String {
        let seconds = self.started.map_or(0.0, |started| (now - started).as_secs_f64());
        let total = self.phase.total_bytes;
        let speed = if seconds > 0.0 { total as f64 / seconds } else { 0.0 };
        format!("{} in {}, {}", quantity::bytes(total), quantity::seconds(seconds), quantity::rate(speed))
    }
}

fn follow(tracks: &mut Vec<Track>, phases: Vec<Phase>, now: Duration) {
    for (index, phase) in phases.into_iter().enumerate() {
        if index == tracks.len() {
            tracks.push(Track { phase: phase.clone(), meter: Meter::default(), started: None, told: false });
        }
        let track = &mut tracks[index];
        if phase.standing != Standing::Waiting {
            track.started.get_or_insert(now.saturating_sub(LOOK_EVERY));
            track.meter.read(now, phase.done_bytes);
        }
        track.phase = phase;
    }
}

trait Screen {
    fn draw(&mut self, tracks: &mut [Track], now: Duration);
    fn close(&mut self);
}

#[derive(Default)]
struct Lines {
    last_at: Duration,
    last_line: String,
}

impl Screen for Lines {
    fn draw(&mut self, tracks: &mut [Track], now: Duration) {
        for track in tracks.iter_mut() {
            if track.phase.standing == Standing::Done && !track.told {
                track.told = true;
                tell(&format!("sailfish: {} done: {}", track.phase.name, track.summary(now)));
            }
        }
        if now - self.last_at < LINE_EVERY {
            return;
        }
        self.last_at = now;
        let running = tracks.iter().filter(|track| track.phase.standing == Standing::Running);
        let moved: Vec<String> = running.clone().map(position).collect();
        if moved.is_empty() || moved.join("; ") == self.last_line {
            return;
        }
        self.last_line = moved.join("; ");
        let texts: Vec<String> =
            running.map(|track| format!("{}{}", position(track), speed(track))).collect();
        tell(&format!("sailfish: {}", texts.join("; ")));
    }

    fn close(&mut self) {}
}

/// Returns a line for a program: `{"progress": [{"name": "map", "done": 3, "total": 10}]}`. Counts are bytes or tasks.
pub fn told_to_programs(rows: &[(String, u64, u64)]) -> String {
    let rows: Vec<serde_json::Value> = rows
        .iter()
        .map(|(name, done, total)| serde_json::json!({ "name": name, "done": done, "total": total }))
        .collect();
    serde_json::json!({ "progress": rows }).to_string()
}

#[derive(Default)]
struct Told {
    last_line: String,
}

impl Screen for Told {
    fn draw(&mut self, tracks: &mut [Track], _: Duration) {
        let begun = tracks.iter().filter(|track| track.phase.standing != Standing::Waiting);
        let row =
            |track: &Track| (track.phase.name.to_string(), track.phase.done_bytes, track.phase.total_bytes);
        let line = told_to_programs(&begun.map(row).collect::<Vec<_>>());
        if line != self.last_line {
            tell(&line);
            self.last_line = line;
        }
    }

    fn close(&mut self) {}
}

/// Formats `map 45 % of 2.60 GiB`.
fn position(track: &Track) -> String {
    let Phase { name, done_bytes, total_bytes, .. } = track.phase;
    let percent = 100.0 * done_bytes as f64 / total_bytes.max(1) as f64;
    format!("{name} {percent:.0} % of {}", quantity::bytes(total_bytes))
}

/// Formats `, 310 MiB/s, 5 s left`, as far as it is known: the end is unknown while the total may grow.
fn speed(track: &Track) -> String {
    let rate = track.meter.bytes_per_second().map(|speed| format!(", {}", quantity::rate(speed)));
    let left = track.meter.seconds_left(track.phase.total_bytes).filter(|_| track.phase.total_is_known);
    let left = left.map(|seconds| format!(", {} left", quantity::whole_seconds(seconds)));
    format!("{}{}", rate.unwrap_or_default(), left.unwrap_or_default())
}

/// The bars of a terminal. They are cleared at the end, because the summary repeats everything.
#[derive(Default)]
struct Bars {
    bars: Vec<ProgressBar>,
}

impl Screen for Bars {
    fn draw(&mut self, tracks: &mut [Track], now: Duration) {
        for (index, track) in tracks.iter_mut().enumerate() {
            if index == self.bars.len() {
                self.bars.push(terminal::bars().add(bar(track.phase.name)));
            }
            let drawn = &self.bars[index];
            // A bar of length 0 would count as full.
            drawn.set_length(track.phase.total_bytes.max(1));
            if !track.told {
                drawn.set_position(track.phase.done_bytes);
            }
            match track.phase.standing {
                Standing::Waiting => {}
                Standing::Running => drawn.set_message(format!("{}{}", so_far(&track.phase), speed(track))),
                Standing::Done if !track.told => {
                    track.told = true;
                    drawn.set_position(track.phase.total_bytes.max(1));
                    drawn.set_message(track.summary(now));
                }
                Standing::Done => {}
            }
            drawn.tick();
        }
    }

    fn close(&mut self) {
        self.bars.iter().for_each(ProgressBar::finish_and_clear);
        // A terminal that is gone does not matter.
        let _ = terminal::bars().clear();
    }
}

/// Formats `1.20 GiB of 2.60 GiB`.
fn so_far(phase: &Phase) -> String {
    format!("{} of {}", quantity::bytes(phase.done_bytes), quantity::bytes(phase.total_bytes))
}

/// Returns a bar over bytes; the text after it is ours, because the library would average the speed over the whole
/// life.
pub fn bar(name: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{prefix:<7}{bar:24} {percent:>3} %  {msg}")
        .expect("the template is a constant")
        .progress_chars("━╸─");
    ProgressBar::new(0).with_style(style).with_prefix(name)
}
