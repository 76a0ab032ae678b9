//! Charts as SVG: bars with their spread, lines along an axis, rows of marks.
//!
//! Each of the ORBs in [`ORBS`] has one colour in all charts; all other products share one.

mod bars;
mod dots;
mod lines;
mod scale;

use std::fmt::Write;

pub(crate) use bars::{Bar, bars, picture};
pub(crate) use dots::{DotRow, dots};
pub(crate) use lines::{Axis, AxisScale, Line, lines};
use scale::Scale;

/// Maximum ratio of two numbers on one linear scale.
const SPAN: f64 = 30.0;

/// Products with a separate colour, in the order of the colours in the style sheet.
const ORBS: [&str; 5] = ["Corelane", "omniORB", "JacORB", "Ice", "TAO"];
const BASELINE: usize = 7;
const OTHER: usize = 6;

const SHAPES: usize = 8;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    colour: usize,
    shape: usize,
}

impl Style {
    pub(crate) fn of(peer: &str) -> Style {
        let known = ORBS.iter().position(|orb| *orb == peer);
        Style { colour: known.unwrap_or(if peer == "floor" { BASELINE } else { OTHER }), shape: 0 }
    }

    /// Returns the style of each peer. Variants of one ORB have one colour, and shapes that repeat
    /// after [`SHAPES`] variants.
    pub(crate) fn of_all<'n>(peers: impl Iterator<Item = &'n str>) -> Vec<Style> {
        let mut used = [0; BASELINE + 1];
        let styles = peers.map(|peer| {
            let Style { colour, .. } = Style::of(peer);
            used[colour] += 1;
            Style { colour, shape: (used[colour] - 1) % SHAPES }
        });
        styles.collect()
    }
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        _ if !value.is_finite() => "-".to_owned(),
        0.0 => "0".to_owned(),
        size if size >= 1e6 => trimmed(&format!("{:.1}", value / 1e6)) + "M",
        size if size >= 1e5 => format!("{:.0}k", value / 1e3),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 100.0 => trimmed(&format!("{value:.1}")),
        size if size >= 0.1 => trimmed(&format!("{value:.2}")),
        _ => trimmed(&format!("{value:.4}")),
    }
}

fn trimmed(text: &str) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a readable unit for a time in microseconds, and the factor from microseconds to this
/// unit. Returns other units unchanged, with the factor 1.
fn readable(unit: &str, smallest: f64, largest: f64) -> (String, f64) {
    let Some(rest) = unit.strip_prefix("us").filter(|rest| !rest.starts_with(char::is_alphabetic)) else {
        return (unit.to_owned(), 1.0);
    };
    if largest < 1.0 {
        (format!("ns{rest}"), 1e3)
    } else if smallest >= 1e3 {
        (format!("ms{rest}"), 1e-3)
    } else {
        (unit.to_owned(), 1.0)
    }
}

/// Splits ranges of numbers into bands, one for each scale, and returns the indices of each band's
/// ranges. A band spans at most a factor of [`SPAN`], unless its numbers leave no gap of at least
/// the factor `gap`.
fn bands(ranges: &[(f64, f64)], gap: f64) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..ranges.len()).collect();
    order.sort_by(|a, b| ranges[*a].0.total_cmp(&ranges[*b].0));
    let mut pending = vec![order];
    let mut done: Vec<Vec<usize>> = Vec::new();
    while let Some(band) = pending.pop() {
        match widest_gap(&band, ranges, gap) {
            Some(at) => {
                let (low, high) = band.split_at(at);
                pending.push(low.to_vec());
                pending.push(high.to_vec());
            }
            None => done.push(band),
        }
    }
    done.iter_mut().for_each(|band| band.sort_unstable());
    done.retain(|band| !band.is_empty());
    done.sort_unstable();
    done
}

fn widest_gap(band: &[usize], ranges: &[(f64, f64)], gap: f64) -> Option<usize> {
    let positive = |index: &&usize| ranges[**index].0 > 0.0 && ranges[**index].1.is_finite();
    let lowest = band.iter().find(positive).map(|index| ranges[*index].0)?;
    let highest = band.iter().filter(positive).map(|index| ranges[*index].1).fold(0.0, f64::max);
    if highest <= SPAN * lowest {
        return None;
    }
    let (mut end, mut best) = (0.0_f64, None);
    for (at, index) in band.iter().enumerate() {
        let (low, high) = ranges[*index];
        if low <= 0.0 || !high.is_finite() {
            continue;
        }
        let ratio = low / end;
        if end > 0.0 && ratio >= gap && best.is_none_or(|(_, widest)| ratio > widest) {
            best = Some((at, ratio));
        }
        end = end.max(high);
    }
    best.map(|(at, _)| at)
}

struct Plot {
    margins: (f64, f64),
    height: f64,
    content: String,
}

impl Plot {
    fn inline(&self) -> String {
        let Plot { margins: (left, right), height, content } = self;
        format!(
            "<svg class=\"chart\" role=\"img\" style=\"padding:0 {right:.0}px 0 {left:.0}px;height:{height:.0}px\">{content}</svg>\n"
        )
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let positive = values.filter(|value| value.is_finite() && *value > 0.0);
    positive.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)))
}

fn mark(svg: &mut String, style: Style, x: f64, y: f64, title: &str) {
    let path = match style.shape % 4 {
        0 => "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z",
        1 => "M-3.5 -3.5h7v7h-7Z",
        2 => "M0 -4.5L4.4 3.4H-4.4Z",
        _ => "M0 -5L5 0L0 5L-5 0Z",
    };
    let class = if style.shape < 4 { format!("f{}", style.colour) } else { format!("l{} hollow", style.colour) };
    let _ = write!(
        svg,
        "<svg x=\"{x:.2}%\" y=\"{y:.1}\" overflow=\"visible\"><path class=\"{class}\" d=\"{path}\">{}</path></svg>",
        if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) }
    );
}

fn grid(svg: &mut String, scale: &Scale, factor: f64, top: f64, bottom: f64) {
    for tick in scale.ticks() {
        let x = 100.0 * scale.part(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.2}%\" y1=\"{top:.1}\" x2=\"{x:.2}%\" y2=\"{bottom:.1}\"/>\
             <text class=\"tick\" x=\"{x:.2}%\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            short(tick * factor)
        );
    }
}

fn legend(entries: impl Iterator<Item = (String, String)>) -> String {
    let mut text = String::from("<div class=\"legend\">");
    for (sample, name) in entries {
        let _ = write!(text, "<span><svg width=\"30\" height=\"12\">{sample}</svg>{}</span>", escaped(&name));
    }
    text + "</div>\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_or_four_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.00123, "0.0012"),
            (5.0, "5"),
            (5.126, "5.13"),
            (123.456, "123.5"),
            (12345.6, "12346"),
            (123_456.0, "123k"),
            (1_000_000.0, "1M"),
            (16_777_216.0, "16.8M"),
            (100.0, "100"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn times_have_the_unit_of_their_magnitude() {
        assert_eq!(readable("us", 0.1, 0.5), ("ns".to_owned(), 1e3));
        assert_eq!(readable("us per call", 0.1, 2e4), ("us per call".to_owned(), 1.0));
        assert_eq!(readable("us, median", 1e3, 2e4), ("ms, median".to_owned(), 1e-3));
        assert_eq!(readable("KiB", 0.1, 0.5), ("KiB".to_owned(), 1.0));
        assert_eq!(readable("used", 0.1, 0.5), ("used".to_owned(), 1.0));
    }

    #[test]
    fn nanoseconds_and_microseconds_have_separate_scales() {
        let points = |values: &[f64]| values.iter().map(|value| (*value, *value)).collect::<Vec<_>>();
        let of = |values: &[f64]| bands(&points(values), 4.0);
        assert_eq!(of(&[10.0, 0.01, 12.0, 0.02]), [vec![0, 2], vec![1, 3]]);
        assert_eq!(of(&[10.0, 200.0]), [[0, 1]]);
        assert_eq!(of(&[0.01, 10.0, 10_000.0]), [[0], [1], [2]]);
        assert_eq!(of(&[1.0, 3.0, 9.0, 27.0, 81.0]), [[0, 1, 2, 3, 4]]);
        assert_eq!(of(&[0.0, f64::NAN, 5.0]), [[0, 1, 2]]);
        assert_eq!(of(&[]), Vec::<Vec<usize>>::new());
        assert_eq!(bands(&[(1.0, 50.0), (40.0, 60.0), (1000.0, 1100.0)], 4.0), [vec![0, 1], vec![2]]);
    }

    #[test]
    fn orb_has_one_colour_and_its_variants_differ_by_shape() {
        let styles = Style::of_all(["floor", "Corelane", "omniORB", "Corelane", "floor"].into_iter());
        assert_eq!(styles.iter().map(|style| style.colour).collect::<Vec<_>>(), [7, 0, 1, 0, 7]);
        assert_eq!(styles.iter().map(|style| style.shape).collect::<Vec<_>>(), [0, 0, 0, 1, 1]);
        assert_eq!(Style::of("omniORB"), styles[2]);
    }
}
