//! Figures as SVG: bars with their spread, lines along an axis, distributions. Pure functions over
//! text.

use std::fmt::Write;

/// Width of every figure in its own units.
const WIDTH: f64 = 980.0;

/// A bar. Its length is the value; a thin line extends to `spread`.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) spread: Option<f64>,
    pub(crate) colour: usize,
}

/// A line through points that are sorted by x.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) colour: usize,
    pub(crate) dashed: bool,
}

/// Title and scale of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    pub(crate) title: &'a str,
    pub(crate) logarithmic: bool,
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Formats a number for readers, with three or four significant digits.
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

/// Draws horizontal bars from 0.
pub(crate) fn bars(unit: &str, bars: &[Bar]) -> String {
    const NAMES: f64 = 400.0;
    const ROW: f64 = 22.0;
    let most = bars.iter().filter(|bar| bar.value.is_finite()).map(|bar| bar.value).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    // A spread may be far out. It is cut at the end of the figure, and drawn as cut.
    let end = bars.iter().filter_map(|bar| bar.spread).filter(|spread| spread.is_finite()).fold(most, f64::max);
    let end = nice_end(end.min(3.0 * most));
    let (left, right) = (NAMES + 8.0, WIDTH - 70.0);
    let at = |value: f64| left + (value / end).clamp(0.0, 1.0) * (right - left);
    let height = bars.len() as f64 * ROW + 34.0;
    let mut svg = open(height);
    for tick in ticks(0.0, end, 6) {
        let x = at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"4\" x2=\"{x:.1}\" y2=\"{:.1}\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" \
             text-anchor=\"middle\">{}</text>",
            height - 28.0,
            height - 14.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"{right:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        height - 2.0,
        escaped(unit)
    );
    for (index, bar) in bars.iter().enumerate() {
        let y = index as f64 * ROW + 6.0;
        let x = at(bar.value);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{NAMES}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
             <rect class=\"f{}\" x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"14\" rx=\"2\"><title>{}: {} {}</title></rect>",
            y + 11.0,
            escaped(&shortened(&bar.name, 64)),
            bar.colour % COLOURS,
            (x - left).max(1.0),
            escaped(&bar.name),
            short(bar.value),
            escaped(unit)
        );
        let mut label = x;
        if let Some(spread) = bar.spread.filter(|spread| *spread > bar.value) {
            let to = at(spread);
            label = to;
            let _ = write!(
                svg,
                "<line class=\"spread{}\" x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{to:.1}\" y2=\"{:.1}\"/>",
                if spread > end { " cut" } else { "" },
                y + 7.0,
                y + 7.0
            );
        }
        let _ = write!(
            svg,
            "<text class=\"value\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            label + 5.0,
            y + 11.0,
            short(bar.value)
        );
    }
    svg + "</svg>\n"
}

/// A row of dots, each with the index of its series and its time in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Dots {
    pub(crate) name: String,
    pub(crate) dots: Vec<(usize, f64)>,
}

/// Draws rows of dots along a logarithmic axis of microseconds. The opposite axis shows calls per
/// second. Each of `series` has a colour in the legend beneath.
pub(crate) fn dots(unit: &str, series: &[String], rows: &[Dots]) -> String {
    const NAMES: f64 = 150.0;
    const ROW: f64 = 22.0;
    let times = rows.iter().flat_map(|row| &row.dots).map(|dot| dot.1).filter(|time| time.is_finite());
    let Some(scale) = Scale::of(times, Axis { title: unit, logarithmic: true }) else { return String::new() };
    let (left, right, top) = (NAMES + 14.0, WIDTH - 30.0, 34.0);
    let at = |time: f64| left + scale.part(time) * (right - left);
    let bottom = top + ROW * rows.len() as f64;
    let mut svg = open(bottom + 50.0 + 18.0 * series.len().div_ceil(2) as f64);
    for tick in scale.ticks() {
        let x = at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\"/>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            short(tick),
            top - 6.0,
            short(1e6 / tick)
        );
    }
    for (y, text) in [(12.0, "per second"), (bottom + 28.0, unit)] {
        let text = escaped(text);
        let _ = write!(svg, "<text class=\"tick\" x=\"{right:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>");
    }
    for (index, Dots { name, dots }) in rows.iter().enumerate() {
        let y = top + ROW * (index as f64 + 0.5);
        let _ = write!(
            svg,
            "<text class=\"name\" x=\"{NAMES}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            escaped(name)
        );
        for &(number, time) in dots.iter().filter(|dot| dot.1.is_finite()) {
            let who = series.get(number).map_or("", String::as_str);
            let title = format!("{who}, {name}: {} {unit}, {} per second", short(time), short(1e6 / time));
            dot(&mut svg, number, at(time), y, &title);
        }
    }
    for (number, name) in series.iter().enumerate() {
        let x = left + (number % 2) as f64 * (right - left) / 2.0;
        let y = bottom + 46.0 + 18.0 * (number / 2) as f64;
        dot(&mut svg, number, x, y, name);
        let name = escaped(&shortened(name, 60));
        let _ = write!(svg, "<text class=\"name\" x=\"{:.1}\" y=\"{:.1}\">{name}</text>", x + 10.0, y + 4.0);
    }
    svg + "</svg>\n"
}

/// Draws a dot: filled while there are unused colours, then hollow.
fn dot(svg: &mut String, number: usize, x: f64, y: f64, title: &str) {
    let colour = number % COLOURS;
    let class =
        if number < COLOURS { format!("class=\"f{colour}\"") } else { format!("class=\"l{colour}\" fill=\"none\"") };
    let title = escaped(title);
    let _ = write!(svg, "<circle {class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{title}</title></circle>");
}

/// Draws lines along x, with a legend beneath.
pub(crate) fn lines(x_axis: Axis<'_>, y_axis: Axis<'_>, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite());
    let Some((x_scale, y_scale)) =
        Scale::of(points().map(|point| point.0), x_axis).zip(Scale::of(points().map(|point| point.1), y_axis))
    else {
        return String::new();
    };
    let (left, right, top, bottom) = (64.0, WIDTH - 20.0, 12.0, 270.0);
    let height = bottom + 44.0 + 18.0 * lines.len().div_ceil(2) as f64;
    let x_at = |x: f64| left + x_scale.part(x) * (right - left);
    let y_at = |y: f64| bottom - y_scale.part(y) * (bottom - top);
    let mut svg = open(height);
    for tick in x_scale.ticks() {
        let x = x_at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" \
             y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            bottom + 14.0,
            short(tick)
        );
    }
    for tick in y_scale.ticks() {
        let y = y_at(tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{:.1}\" \
             y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.0,
            short(tick)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text class=\"tick\" x=\"14\" y=\"{top}\" text-anchor=\"end\" transform=\"rotate(-90 14 {top})\">{}</text>",
        bottom + 30.0,
        escaped(x_axis.title),
        escaped(y_axis.title)
    );
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, line, &x_at, &y_at);
        let (column, row) = ((index % 2) as f64, (index / 2) as f64);
        let (x, y) = (left + column * (right - left) / 2.0, bottom + 50.0 + 18.0 * row);
        let _ = write!(
            svg,
            "<line class=\"l{}{}\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/><text class=\"name\" x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>",
            line.colour % COLOURS,
            if line.dashed { " dashed" } else { "" },
            x + 22.0,
            x + 28.0,
            y + 4.0,
            escaped(&shortened(&line.name, 60))
        );
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, line: &Line, x_at: &dyn Fn(f64) -> f64, y_at: &dyn Fn(f64) -> f64) {
    let mut path = String::new();
    for &(x, y) in line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        let _ = write!(path, "{}{:.1} {:.1}", if path.is_empty() { "M" } else { "L" }, x_at(x), y_at(y));
    }
    let _ = write!(
        svg,
        "<path class=\"l{}{}\" d=\"{path}\"><title>{}</title></path>",
        line.colour % COLOURS,
        if line.dashed { " dashed" } else { "" },
        escaped(&line.name)
    );
    // With many points the line alone is drawn.
    if line.points.len() <= 16 {
        for &(x, y) in line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
            let _ = write!(
                svg,
                "<circle class=\"f{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.6\"><title>{}: {} at {}</title></circle>",
                line.colour % COLOURS,
                x_at(x),
                y_at(y),
                escaped(&line.name),
                short(y),
                short(x)
            );
        }
    }
}

pub(crate) const COLOURS: usize = 8;

fn open(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" preserveAspectRatio=\"xMinYMin\">")
}

/// Shortens a text to at most `most` characters.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

/// Mapping of numbers to positions on an axis.
#[derive(Clone, Copy, Debug)]
struct Scale {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64> + Clone, axis: Axis<'_>) -> Option<Scale> {
        // Only positive numbers have a logarithm; 0 is drawn at the low end.
        let positive = values.clone().filter(|value| *value > 0.0);
        let low = if axis.logarithmic { positive.fold(f64::INFINITY, f64::min) } else { 0.0 };
        let high = values.fold(f64::NEG_INFINITY, f64::max);
        if !low.is_finite() || !high.is_finite() {
            return None;
        }
        if axis.logarithmic {
            let high = if high > low { high } else { low * 10.0 };
            return Some(Scale { low, high, logarithmic: true });
        }
        Some(Scale { low, high: nice_end(high), logarithmic: false })
    }

    fn part(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        part.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        if !self.logarithmic {
            return ticks(self.low, self.high, 6);
        }
        let decades = (self.high / self.low).log10();
        let within = |tick: &f64| *tick >= self.low * 0.999 && *tick <= self.high * 1.001;
        let powers = |factors: &[f64], step: i32| {
            let first = self.low.log10().floor() as i32;
            let last = self.high.log10().ceil() as i32;
            let mut found = Vec::new();
            for power in (first..=last).step_by(step.max(1) as usize) {
                found.extend(factors.iter().map(|factor| factor * 10f64.powi(power)).filter(within));
            }
            found
        };
        if decades > 9.0 {
            powers(&[1.0], 2)
        } else if decades > 3.0 {
            powers(&[1.0], 1)
        } else {
            powers(&[1.0, 2.0, 5.0], 1)
        }
    }
}

/// Returns the next round number that is not below `value`: a factor in the list times a power of
/// ten.
fn nice_end(value: f64) -> f64 {
    if value <= 0.0 || !value.is_finite() {
        return 1.0;
    }
    let power = 10f64.powf(value.log10().floor());
    [1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .iter()
        .map(|factor| factor * power)
        .find(|end| *end >= value * 0.999_999)
        .unwrap_or(value)
}

/// Returns approximately `about` round numbers from `low` to `high`.
fn ticks(low: f64, high: f64, about: usize) -> Vec<f64> {
    let rough = (high - low) / about as f64;
    if rough <= 0.0 || !rough.is_finite() {
        return vec![low];
    }
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0].iter().map(|factor| factor * power).find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(rough);
    let count = ((high - low) / step * 1.000_001) as usize;
    (0..=count).map(|number| low + number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
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
    fn axes_have_round_numbers() {
        assert_eq!(nice_end(5.3), 6.0);
        assert_eq!(nice_end(0.02), 0.02);
        assert_eq!(ticks(0.0, 10.0, 5), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let axis = Axis { title: "x", logarithmic: true };
        let scale = Scale::of([1.0, 1_000_000.0].into_iter(), axis).unwrap();
        assert_eq!(scale.ticks().len(), 7);
        assert!((scale.part(1000.0) - 0.5).abs() < 1e-9);
        assert!(Scale::of([0.0].into_iter(), axis).is_none());
        assert!(Scale::of(std::iter::empty(), axis).is_none());
    }

    #[test]
    fn dots_have_their_row_their_colour_and_both_units() {
        let series: Vec<String> = (0..9).map(|number| format!("orb {number}")).collect();
        let row = |name: &str, dots| Dots { name: name.to_owned(), dots };
        let rows = [row("void", vec![(0, 5.0), (8, 50.0)]), row("<long>", vec![(0, f64::NAN)])];
        let svg = dots("us per call", &series, &rows);
        // Two dots with numbers, and the legend.
        assert_eq!(svg.matches("<circle").count(), 2 + 9, "{svg}");
        assert!(svg.contains("orb 8, void: 50 us per call, 20000 per second") && svg.contains("&lt;long&gt;"), "{svg}");
        assert!(svg.contains("class=\"l0\" fill=\"none\"") && !svg.contains("NaN"), "{svg}");
        assert_eq!(dots("us", &[], &[]), "");
    }

    #[test]
    fn figures_say_what_they_show_and_escape_it() {
        let bar = Bar { name: "a <b>".into(), value: 5.0, spread: Some(500.0), colour: 9 };
        let svg = bars("us", &[bar]);
        assert!(svg.contains("a &lt;b&gt;") && svg.contains("spread cut") && svg.contains("f1"), "{svg}");
        assert_eq!(bars("us", &[]), "");
        let line = Line { name: "x&y".into(), points: vec![(1.0, 2.0), (10.0, f64::NAN)], colour: 0, dashed: true };
        let linear = Axis { title: "n", logarithmic: false };
        let svg = lines(linear, linear, std::slice::from_ref(&line));
        assert!(svg.contains("x&amp;y") && svg.contains("dashed") && !svg.contains("NaN"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 1);
        assert_eq!(lines(linear, linear, &[]), "");
    }
}
