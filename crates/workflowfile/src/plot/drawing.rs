//! The text of a drawing.

use super::layers::{Layout, Pixels};
use quick_xml::escape::escape;
use std::fmt::Write;

/// Width of a character, height of a line, and space inside a box, in pixels.
const CHARACTER: f64 = 7.25;
const LINE: f64 = 17.0;
const PADDING: f64 = 9.0;
/// Maximum number of characters of a line in a box; more are left out in the middle.
const CHARACTERS_MAX: usize = 34;

/// Colours by the scheme of the reader, with a ground of their own, so that both are legible anywhere.
const STYLE: &str = "\
text{font:12px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1f2328}
.ground{fill:#ffffff}.box{fill:#eef4fb;stroke:#4a7ab5;stroke-width:1.2}
.name{font-weight:bold}.kept{fill:#1a6b35}.temporary{fill:#6a737d;font-style:italic}
.line{fill:none;stroke:#57606a;stroke-width:1.2}.tip{fill:#57606a}.stream{stroke:#b3541e;stroke-width:1.8;stroke-dasharray:6 4}
g:hover>.box,g:hover>.line{stroke-width:3}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.ground{fill:#0d1117}.box{fill:#16253a;stroke:#6ea8e8}
.kept{fill:#6fd08c}.temporary{fill:#9aa4af}.line{stroke:#9aa4af}.tip{fill:#9aa4af}.stream{stroke:#f0a070}}
";

/// A box.
pub struct Shape {
    pub name: String,
    /// Outputs that stay, and those that a run removes.
    pub kept: Vec<String>,
    pub temporary: Vec<String>,
    /// Shown by viewers below the pointer.
    pub title: String,
}

/// A line with a tip.
pub struct Arrow {
    /// True: a stream without a file between.
    pub streams: bool,
    pub title: String,
    pub points: Vec<Pixels>,
}

pub struct Drawing<'a> {
    pub shapes: &'a [Shape],
    pub layout: &'a Layout,
    pub arrows: &'a [Arrow],
}

impl Shape {
    /// Returns the lines of the box, each with its class.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("name", shortened(&self.name))];
        let outputs = [("kept", &self.kept), ("temporary", &self.temporary)];
        for (class, names) in outputs {
            match names.as_slice() {
                [] => {}
                [name] => lines.push((class, shortened(name))),
                [first, more @ ..] => {
                    let more = format!(" +{}", more.len());
                    lines.push((class, format!("{}{more}", shortened(first))));
                }
            }
        }
        lines
    }

    pub fn size(&self) -> Pixels {
        let lines = self.lines();
        let longest = lines.iter().map(|(_, text)| text.chars().count()).max().unwrap_or(0);
        Pixels {
            x: longest as f64 * CHARACTER + 2.0 * PADDING,
            y: lines.len() as f64 * LINE + 2.0 * PADDING - 4.0,
        }
    }
}

impl Drawing<'_> {
    pub fn svg(&self) -> String {
        let Pixels { x: width, y: height } = self.layout.size;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 \
             {width:.0} {height:.0}\">\n<style>{STYLE}</style>\n\
             <marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"8\" markerHeight=\"8\" \
             markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker>\n\
             <rect class=\"ground\" width=\"100%\" height=\"100%\"/>\n"
        );
        for arrow in self.arrows {
            let class = if arrow.streams { "line stream" } else { "line" };
            let (title, path) = (xml(&arrow.title), path(&arrow.points));
            let _ = writeln!(
                svg,
                "<g><title>{title}</title><path class=\"{class}\" marker-end=\"url(#tip)\" d=\"{path}\"/></g>"
            );
        }
        let places = self.layout.corners.iter().zip(&self.layout.sizes);
        for (shape, (corner, size)) in self.shapes.iter().zip(places) {
            let _ = write!(
                svg,
                "<g><title>{}</title><rect class=\"box\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"5\"/>",
                xml(&shape.title),
                corner.x,
                corner.y,
                size.x,
                size.y
            );
            for (index, (class, text)) in shape.lines().iter().enumerate() {
                let (x, y) = (corner.x + PADDING, corner.y + PADDING + 10.0 + index as f64 * LINE);
                let _ = write!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", xml(text));
            }
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// Returns a path that is level at both ends of each curve. Points are a start, ends of level pieces, and the end.
fn path(points: &[Pixels]) -> String {
    let Some((first, rest)) = points.split_first() else { return String::new() };
    let (mut path, mut last) = (format!("M{:.1} {:.1}", first.x, first.y), *first);
    for point in rest {
        let _ = match point.y == last.y {
            true => write!(path, "L{:.1} {:.1}", point.x, point.y),
            false => {
                let middle = (last.x + point.x) / 2.0;
                let (from, to) = (last.y, point.y);
                write!(path, "C{middle:.1} {from:.1} {middle:.1} {to:.1} {:.1} {to:.1}", point.x)
            }
        };
        last = *point;
    }
    path
}

/// Returns a text of limited length: its beginning and its end tell most.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= CHARACTERS_MAX {
        return text.to_string();
    }
    let half = (CHARACTERS_MAX - 1) / 2;
    let (first, last) = (text.chars().take(half), text.chars().skip(count - half));
    first.chain(['…']).chain(last).collect()
}

/// Returns text for XML, which has no control characters besides the end of a line.
fn xml(text: &str) -> String {
    let plain = |each: char| match each {
        '\n' => each,
        each if each.is_control() || matches!(each, '\u{fffe}' | '\u{ffff}') => '\u{fffd}',
        each => each,
    };
    escape(text.chars().map(plain).collect::<String>()).into_owned()
}
