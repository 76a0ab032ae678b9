//! Charts of lines along an axis, with a legend.

use std::fmt::Write;

use super::{Plot, SPAN, Scale, Style, bands, escaped, grid, legend, mark, range, readable, short};

#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) style: Style,
    pub(crate) dashed: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis<'a> {
    pub(crate) title: &'a str,
    pub(crate) scale: AxisScale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AxisScale {
    Linear,
    Logarithmic,
    /// Logarithmic if the ratio of two numbers exceeds [`SPAN`], else linear.
    BySpan,
}

impl AxisScale {
    fn is_logarithmic(self, values: impl Iterator<Item = f64>) -> bool {
        let (low, high) = range(values);
        self == AxisScale::Logarithmic || self == AxisScale::BySpan && high > SPAN * low
    }
}

/// Maximum number of points of a line that has a mark at each point. A longer line has about
/// [`LONG_LINE_MARKS`] marks.
const MAX_POINTS_WITH_MARKS: usize = 16;
const LONG_LINE_MARKS: usize = 5;

const HEIGHT: f64 = 260.0;

/// Draws lines. Lines whose values differ by more than a factor of [`SPAN`], with a gap between
/// them, have separate charts.
pub(crate) fn lines(x_axis: Axis<'_>, y_axis: Axis<'_>, lines: &[Line]) -> String {
    let along_x = y_axis.title.starts_with('%');
    let time = |point: &(f64, f64)| if along_x { point.0 } else { point.1 };
    let ranges: Vec<(f64, f64)> = lines.iter().map(|line| range(line.points.iter().map(time))).collect();
    let split = bands(&ranges, 4.0);
    split.iter().map(|band| chart(x_axis, y_axis, &band.iter().map(|at| &lines[*at]).collect::<Vec<_>>())).collect()
}

fn chart(x_axis: Axis<'_>, y_axis: Axis<'_>, lines: &[&Line]) -> String {
    const TOP: f64 = 24.0;
    let points = || lines.iter().flat_map(|line| &line.points).filter(|(x, y)| x.is_finite() && y.is_finite());
    let (xs, ys) = (points().map(|point| point.0), points().map(|point| point.1));
    // A logarithmic axis has no position for 0, so an axis with 0 is linear.
    let from_zero = xs.clone().any(|x| x <= 0.0);
    let Some((x_scale, y_scale)) = Scale::of(xs.clone(), !from_zero && x_axis.scale.is_logarithmic(xs.clone()))
        .zip(Scale::of(ys.clone(), y_axis.scale.is_logarithmic(ys.clone())))
    else {
        return String::new();
    };
    let unit = |axis: Axis<'_>, (low, high): (f64, f64)| readable(axis.title, low, high);
    let ((x_unit, x_factor), (y_unit, y_factor)) = (unit(x_axis, range(xs)), unit(y_axis, range(ys)));
    let bottom = TOP + HEIGHT;
    let mut svg = String::new();
    grid(&mut svg, &x_scale, x_factor, TOP, bottom);
    for tick in y_scale.ticks() {
        let y = bottom - y_scale.part(tick) * HEIGHT;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"0\" y1=\"{y:.1}\" x2=\"100%\" y2=\"{y:.1}\"/>\
             <text class=\"tick\" x=\"-6\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            short(tick * y_factor)
        );
    }
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"100%\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
         <text class=\"tick\" x=\"-6\" y=\"12\">{}</text>",
        bottom + 28.0,
        escaped(&x_unit),
        escaped(&y_unit)
    );
    for line in lines {
        draw(&mut svg, line, &x_scale, &y_scale, bottom);
    }
    for line in lines {
        marks(&mut svg, line, (&x_scale, x_factor), (&y_scale, y_factor), bottom);
    }
    let samples = lines.iter().map(|line| {
        let mut sample = format!(
            "<line class=\"l{}{}\" x1=\"0\" y1=\"6\" x2=\"30\" y2=\"6\"/>",
            line.style.colour,
            if line.dashed { " dashed" } else { "" }
        );
        mark(&mut sample, line.style, 50.0, 6.0, "");
        (sample, line.name.clone())
    });
    Plot { margins: (52.0, 24.0), height: bottom + 34.0, content: svg }.inline() + &legend(samples)
}

fn draw(svg: &mut String, line: &Line, x_scale: &Scale, y_scale: &Scale, bottom: f64) {
    let mut path = String::new();
    for &(x, y) in line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()) {
        let (x, y) = (1000.0 * x_scale.part(x), bottom - y_scale.part(y) * HEIGHT);
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
    }
    let _ = write!(
        svg,
        "<svg width=\"100%\" height=\"{bottom:.0}\" viewBox=\"0 0 1000 {bottom:.0}\" preserveAspectRatio=\"none\" overflow=\"visible\">\
         <path class=\"l{} curve{}\" d=\"{path}\"><title>{}</title></path></svg>",
        line.style.colour,
        if line.dashed { " dashed" } else { "" },
        escaped(&line.name)
    );
}

fn marks(
    svg: &mut String,
    line: &Line,
    (x_scale, x_factor): (&Scale, f64),
    (y_scale, y_factor): (&Scale, f64),
    bottom: f64,
) {
    let points: Vec<&(f64, f64)> = line.points.iter().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
    let step = if points.len() <= MAX_POINTS_WITH_MARKS { 1 } else { points.len() / LONG_LINE_MARKS };
    for &&(x, y) in points.iter().skip(step / 2).step_by(step) {
        let title = format!("{}: {} at {}", line.name, short(y * y_factor), short(x * x_factor));
        mark(svg, line.style, 100.0 * x_scale.part(x), bottom - y_scale.part(y) * HEIGHT, &title);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: Axis<'_> = Axis { title: "n", scale: AxisScale::Linear };
    const TIME: Axis<'_> = Axis { title: "us", scale: AxisScale::Logarithmic };

    fn line(name: &str, points: &[(f64, f64)]) -> Line {
        Line { name: name.into(), points: points.to_vec(), style: Style::of("Corelane"), dashed: true }
    }

    #[test]
    fn lines_have_escaped_names_and_tooltips() {
        let svg = lines(LINEAR, LINEAR, &[line("x&y", &[(1.0, 2.0), (10.0, f64::NAN)])]);
        assert!(svg.contains("x&amp;y") && !svg.contains("NaN"), "{svg}");
        assert_eq!((svg.matches(" dashed\"").count(), svg.matches("class=\"f0\"").count()), (2, 2), "{svg}");
        assert_eq!(lines(LINEAR, LINEAR, &[]), "");
    }

    #[test]
    fn lines_of_very_different_times_have_separate_charts() {
        let all = [line("local", &[(1.0, 0.01), (2.0, 0.02)]), line("remote", &[(1.0, 10.0), (2.0, 20.0)])];
        let svg = lines(LINEAR, TIME, &all);
        assert_eq!(svg.matches("<svg class=\"chart\"").count(), 2);
        assert!(svg.contains(">ns</text>") && svg.contains("local: 10 at 1"), "{svg}");
        let all = [line("small", &[(1.0, 0.01)]), line("grows", &[(1.0, 0.02), (2.0, 20.0)])];
        assert_eq!(lines(LINEAR, TIME, &all).matches("<svg class=\"chart\"").count(), 1);
    }

    #[test]
    fn wide_spans_are_logarithmic_unless_they_contain_zero() {
        let by_span = |values: &[f64]| AxisScale::BySpan.is_logarithmic(values.iter().copied());
        assert!(by_span(&[1.0, 31.0]) && !by_span(&[1.0, 29.0]) && !by_span(&[]));
        let axis = Axis { title: "n", scale: AxisScale::BySpan };
        let hundred = |points: &[(f64, f64)]| lines(axis, LINEAR, &[line("a", points)]).contains(">100</text>");
        assert!(hundred(&[(1.0, 1.0), (1000.0, 1.0)]));
        assert!(!hundred(&[(0.0, 1.0), (1000.0, 1.0)]));
    }

    #[test]
    fn distributions_of_very_different_times_have_separate_charts() {
        let shares = Axis { title: "% of calls", scale: AxisScale::Linear };
        let all = [line("local", &[(0.01, 0.0), (0.02, 99.0)]), line("remote", &[(10.0, 0.0), (20.0, 99.0)])];
        assert_eq!(lines(TIME, shares, &all).matches("<svg class=\"chart\"").count(), 2);
    }

    #[test]
    fn long_line_has_few_marks() {
        let points: Vec<(f64, f64)> = (1..=100).map(|x| (f64::from(x), f64::from(x))).collect();
        let svg = lines(LINEAR, LINEAR, &[line("a", &points)]);
        assert_eq!(svg.matches("class=\"f0\"").count(), LONG_LINE_MARKS + 1, "{svg}");
    }
}
