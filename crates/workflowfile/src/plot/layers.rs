//! Places of boxes and lines.

use std::collections::BTreeMap;

/// Space between two layers, and between two boxes of a layer, in pixels.
const LAYER_GAP: f64 = 56.0;
const BOX_GAP: f64 = 14.0;
const LINE_HEIGHT: f64 = 4.0;
/// Rounds of the order and of the places: more change little.
const ROUNDS: usize = 12;
/// Space around all boxes.
const MARGIN: f64 = 20.0;

/// A width and a height, or a place, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pixels {
    pub x: f64,
    pub y: f64,
}

/// A line between two boxes.
#[derive(Clone, Debug)]
pub struct Line {
    pub from: usize,
    pub to: usize,
    /// Left and right ends of its level pieces, one for each layer between the boxes.
    pub points: Vec<Pixels>,
}

/// Left upper corners of boxes, lines, and the size of the whole.
#[derive(Debug)]
pub struct Layout {
    pub corners: Vec<Pixels>,
    pub sizes: Vec<Pixels>,
    pub lines: Vec<Line>,
    pub size: Pixels,
}

/// Boxes, and pieces of lines that cross a layer, which take a place as boxes do.
struct Graph {
    layers: Vec<Vec<usize>>,
    layer_of: Vec<usize>,
    heights: Vec<f64>,
    /// Neighbours in the layer to the left, and to the right.
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    /// The pieces of each line, in order.
    chains: Vec<(usize, usize, Vec<usize>)>,
}

impl Layout {
    /// Places boxes of these sizes, each to the right of those before it. None if the lines have too many pieces.
    pub fn new(before: &[Vec<u32>], sizes: &[Pixels], pieces_max: usize) -> Option<Self> {
        let mut graph = Graph::new(before, sizes, pieces_max)?;
        graph.order();
        let centers = graph.centers();
        let width = |layer: &Vec<usize>| {
            layer.iter().filter_map(|each| sizes.get(*each)).map(|size| size.x).fold(0.0, f64::max)
        };
        let widths: Vec<f64> = graph.layers.iter().map(width).collect();
        let mut lefts = Vec::new();
        let mut x = MARGIN;
        for width in &widths {
            lefts.push(x);
            x += width + LAYER_GAP;
        }
        let corner = |number: usize| Pixels {
            x: lefts[graph.layer_of[number]],
            y: centers[number] - sizes[number].y / 2.0,
        };
        let corners: Vec<Pixels> = (0..sizes.len()).map(corner).collect();
        let line = |(from, to, pieces): &(usize, usize, Vec<usize>)| {
            let mut points = vec![Pixels { x: corners[*from].x + sizes[*from].x, y: centers[*from] }];
            // Behind its own box a line is level up to the end of the layer, so that it crosses no wider box.
            points.push(Pixels {
                x: lefts[graph.layer_of[*from]] + widths[graph.layer_of[*from]],
                y: centers[*from],
            });
            for piece in pieces {
                let layer = graph.layer_of[*piece];
                let y = centers[*piece];
                points.push(Pixels { x: lefts[layer], y });
                points.push(Pixels { x: lefts[layer] + widths[layer], y });
            }
            points.push(Pixels { x: corners[*to].x, y: centers[*to] });
            Line { from: *from, to: *to, points }
        };
        let lines = graph.chains.iter().map(line).collect();
        let bottoms = corners.iter().zip(sizes).map(|(corner, size)| corner.y + size.y);
        let bottom = bottoms.chain(centers.iter().copied()).fold(0.0, f64::max);
        let size = Pixels { x: x - LAYER_GAP + MARGIN, y: bottom + MARGIN };
        Some(Self { corners, sizes: sizes.to_vec(), lines, size })
    }
}

impl Graph {
    fn new(before: &[Vec<u32>], sizes: &[Pixels], pieces_max: usize) -> Option<Self> {
        let layer_of = longest_paths(before);
        let edges = before
            .iter()
            .enumerate()
            .flat_map(|(to, before)| before.iter().map(move |from| (*from as usize, to)));
        let edges: Vec<(usize, usize)> = edges.collect();
        let pieces: usize = edges.iter().map(|(from, to)| layer_of[*to] - layer_of[*from]).sum();
        if pieces > pieces_max {
            return None;
        }
        let count = layer_of.iter().max().map_or(0, |last| last + 1);
        let mut graph = Self {
            layers: vec![Vec::new(); count],
            layer_of,
            heights: sizes.iter().map(|size| size.y).collect(),
            left: vec![Vec::new(); sizes.len()],
            right: vec![Vec::new(); sizes.len()],
            chains: Vec::new(),
        };
        (0..sizes.len()).for_each(|number| graph.layers[graph.layer_of[number]].push(number));
        for (from, to) in edges {
            let (mut last, mut pieces) = (from, Vec::new());
            for layer in graph.layer_of[from] + 1..graph.layer_of[to] {
                let piece = graph.heights.len();
                graph.heights.push(LINE_HEIGHT);
                graph.layer_of.push(layer);
                graph.layers[layer].push(piece);
                graph.left.push(Vec::new());
                graph.right.push(Vec::new());
                graph.connect(last, piece);
                pieces.push(piece);
                last = piece;
            }
            graph.connect(last, to);
            graph.chains.push((from, to, pieces));
        }
        Some(graph)
    }

    fn connect(&mut self, from: usize, to: usize) {
        self.right[from].push(to);
        self.left[to].push(from);
    }

    /// Orders each layer by the mean place of its neighbours, to the right and back, and keeps the order with the fewest
    /// crossings.
    fn order(&mut self) {
        let mut best = (self.crossings(), self.layers.clone());
        for round in 0..ROUNDS {
            let to_right = round % 2 == 0;
            let numbers: Vec<usize> = match to_right {
                true => (0..self.layers.len()).collect(),
                false => (0..self.layers.len()).rev().collect(),
            };
            let mut places = self.places();
            for number in numbers {
                let neighbours = if to_right { &self.left } else { &self.right };
                let mean = |each: &usize| mean(&neighbours[*each], &places).unwrap_or(places[*each]);
                let mut layer: Vec<(f64, usize)> =
                    self.layers[number].iter().map(|each| (mean(each), *each)).collect();
                layer.sort_by(|one, other| one.0.total_cmp(&other.0));
                self.layers[number] = layer.into_iter().map(|(_, each)| each).collect();
                let length = self.layers[number].len() as f64;
                self.layers[number].iter().zip(0..).for_each(|(each, place)| {
                    places[*each] = (f64::from(place) + 0.5) / length;
                });
            }
            let crossings = self.crossings();
            if crossings < best.0 {
                best = (crossings, self.layers.clone());
            }
        }
        self.layers = best.1;
    }

    /// Returns the place of each box in its layer, from 0 to 1.
    fn places(&self) -> Vec<f64> {
        let mut places = vec![0.0; self.heights.len()];
        for layer in &self.layers {
            for (each, place) in layer.iter().zip(0..) {
                places[*each] = (f64::from(place) + 0.5) / layer.len() as f64;
            }
        }
        places
    }

    /// Counts the pairs of lines that cross between layers: inversions, with a tree of sums (Barth, Juenger, Mutzel 2002).
    fn crossings(&self) -> usize {
        let mut position = vec![0; self.heights.len()];
        self.layers
            .iter()
            .for_each(|layer| layer.iter().zip(0..).for_each(|(each, place)| position[*each] = place));
        let mut crossings = 0;
        for layer in &self.layers {
            let mut ends: Vec<usize> = Vec::new();
            for each in layer {
                let mut right: Vec<usize> = self.right[*each].iter().map(|right| position[*right]).collect();
                right.sort_unstable();
                ends.extend(right);
            }
            let mut sums = vec![0_usize; ends.iter().max().map_or(0, |last| last + 2)];
            for (seen, end) in ends.iter().enumerate() {
                let mut below = 0;
                let mut at = end + 1;
                while at > 0 {
                    below += sums[at];
                    at &= at - 1;
                }
                crossings += seen - below;
                at = end + 1;
                while at < sums.len() {
                    sums[at] += 1;
                    at += at & at.wrapping_neg();
                }
            }
        }
        crossings
    }

    /// Returns the heights at which boxes have their centers: near their neighbours, in order, without overlap.
    fn centers(&self) -> Vec<f64> {
        let mut centers = vec![0.0; self.heights.len()];
        for layer in &self.layers {
            self.spread(layer, &mut centers);
        }
        for round in 0..ROUNDS {
            let to_right = round % 2 == 0;
            let layers: Vec<&Vec<usize>> = match to_right {
                true => self.layers.iter().collect(),
                false => self.layers.iter().rev().collect(),
            };
            for layer in layers {
                let neighbours = if to_right { &self.left } else { &self.right };
                let wanted: BTreeMap<usize, f64> = layer
                    .iter()
                    .filter_map(|each| Some((*each, mean(&neighbours[*each], &centers)?)))
                    .collect();
                wanted.into_iter().for_each(|(each, center)| centers[each] = center);
                self.spread(layer, &mut centers);
            }
        }
        let tops = centers.iter().zip(&self.heights).map(|(center, height)| center - height / 2.0);
        let top = tops.fold(f64::INFINITY, f64::min);
        centers.iter().map(|center| center - top + MARGIN).collect()
    }

    /// Moves the boxes of a layer apart, as little as possible: the means of blocks that touch each other (isotonic
    /// regression).
    fn spread(&self, layer: &[usize], centers: &mut [f64]) {
        let mut offsets = Vec::with_capacity(layer.len());
        let mut offset = 0.0;
        for (index, each) in layer.iter().enumerate() {
            if let Some(above) = index.checked_sub(1).map(|above| layer[above]) {
                offset += (self.heights[above] + self.heights[*each]) / 2.0 + BOX_GAP;
            }
            offsets.push(offset);
        }
        // Sum and count of each block.
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for (each, offset) in layer.iter().zip(&offsets) {
            let mut block = (centers[*each] - offset, 1);
            while let Some((sum, count)) =
                blocks.pop_if(|last| last.0 / last.1 as f64 >= block.0 / block.1 as f64)
            {
                block = (sum + block.0, count + block.1);
            }
            blocks.push(block);
        }
        let starts = blocks.iter().flat_map(|(sum, count)| std::iter::repeat_n(sum / *count as f64, *count));
        for ((each, offset), start) in layer.iter().zip(&offsets).zip(starts) {
            centers[*each] = start + offset;
        }
    }
}

/// Returns the layer of each step: the number of steps on the longest way to it. The steps have no cycle.
fn longest_paths(before: &[Vec<u32>]) -> Vec<usize> {
    let mut layers = vec![0; before.len()];
    let mut waits: Vec<usize> = before.iter().map(Vec::len).collect();
    let mut readers = vec![Vec::new(); before.len()];
    before
        .iter()
        .enumerate()
        .for_each(|(to, all)| all.iter().for_each(|from| readers[*from as usize].push(to)));
    let mut free: Vec<usize> = (0..before.len()).filter(|step| waits[*step] == 0).collect();
    while let Some(step) = free.pop() {
        for reader in &readers[step] {
            layers[*reader] = layers[*reader].max(layers[step] + 1);
            waits[*reader] -= 1;
            if waits[*reader] == 0 {
                free.push(*reader);
            }
        }
    }
    layers
}

fn mean(neighbours: &[usize], places: &[f64]) -> Option<f64> {
    let sum: f64 = neighbours.iter().map(|each| places[*each]).sum();
    (!neighbours.is_empty()).then(|| sum / neighbours.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::{Layout, Pixels};

    #[test]
    fn boxes_do_not_overlap_or_go_left() {
        let before: Vec<Vec<u32>> = (0..60_u32)
            .map(|step| (0..step).filter(|other| (other * 7 + step * 5) % 11 == 0).collect())
            .collect();
        let sizes = vec![Pixels { x: 100.0, y: 30.0 }; before.len()];
        let layout = Layout::new(&before, &sizes, 10_000).unwrap();
        for line in &layout.lines {
            assert!(layout.corners[line.from].x + 100.0 < layout.corners[line.to].x);
        }
        for (index, one) in layout.corners.iter().enumerate() {
            assert!(one.x >= 0.0 && one.y >= 0.0 && one.x < layout.size.x && one.y < layout.size.y);
            for other in &layout.corners[index + 1..] {
                assert!(one.x != other.x || (one.y - other.y).abs() >= 30.0, "{one:?} {other:?}");
            }
        }
        assert!(Layout::new(&before, &sizes, 10).is_none());
    }

    #[test]
    fn straight_chain_stays_straight() {
        let sizes = vec![Pixels { x: 10.0, y: 10.0 }; 4];
        let crossed = vec![vec![], vec![], vec![1], vec![0]];
        let layout = Layout::new(&crossed, &sizes, 100).unwrap();
        assert_eq!(layout.corners[0].y, layout.corners[3].y);
        assert_eq!(layout.corners[1].y, layout.corners[2].y);
    }
}
