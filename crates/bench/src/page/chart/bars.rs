//! Charts of horizontal bars that start at 0.

use std::fmt::Write;

use super::{Plot, SPAN, Scale, Style, bands, escaped, grid, range, readable, short};

/// A bar whose length is `value`. A thin line extends from the end of the bar to `spread`.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) spread: Option<f64>,
    pub(crate) style: Style,
}

const ROW: f64 = 34.0;
const RIGHT: f64 = 64.0;

/// Draws bars. Bars of very different lengths get charts with separate scales.
pub(crate) fn bars(unit: &str, bars: &[Bar]) -> String {
    plots(unit, bars).iter().map(Plot::inline).collect()
}

pub(crate) fn picture(title: &str, unit: &str, panels: &[(String, Vec<Bar>)], style: &str) -> String {
    const WIDTH: f64 = 860.0;
    const MARGIN: f64 = 16.0;
    let mut content = format!("<text class=\"head\" x=\"{MARGIN}\" y=\"26\">{}</text>", escaped(title));
    let mut y = 40.0;
    for (title, bars) in panels {
        let _ = write!(content, "<text class=\"panel\" x=\"{MARGIN}\" y=\"{:.0}\">{}</text>", y + 16.0, escaped(title));
        y += 26.0;
        for Plot { margins: (left, right), height, content: plot } in plots(unit, bars) {
            let (left, width) = (MARGIN + left, WIDTH - 2.0 * MARGIN - left - right);
            let _ = write!(
                content,
                "<svg x=\"{left}\" y=\"{y:.0}\" width=\"{width}\" height=\"{height:.0}\" overflow=\"visible\">{plot}</svg>"
            );
            y += height + 8.0;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{WIDTH}\" height=\"{y:.0}\" viewBox=\"0 0 {WIDTH} {y:.0}\">\
         <style>{style}</style><rect class=\"paper\" width=\"{WIDTH}\" height=\"{y:.0}\"/>{content}</svg>\n"
    )
}

fn plots(unit: &str, bars: &[Bar]) -> Vec<Plot> {
    let ranges: Vec<(f64, f64)> = bars.iter().map(|bar| (bar.value, bar.value)).collect();
    let bands = bands(&ranges, 4.0).into_iter();
    bands.filter_map(|band| plot(unit, &band.iter().map(|index| &bars[*index]).collect::<Vec<_>>())).collect()
}

fn plot(unit: &str, bars: &[&Bar]) -> Option<Plot> {
    let most = bars.iter().filter(|bar| bar.value.is_finite()).map(|bar| bar.value).fold(0.0, f64::max);
    if most <= 0.0 {
        return None;
    }
    let end = bars.iter().filter_map(|bar| bar.spread).filter(|spread| spread.is_finite()).fold(most, f64::max);
    let scale = Scale::linear(end.min(2.0 * most).min(SPAN * most));
    let (smallest, _) = range(bars.iter().map(|bar| bar.value));
    let (unit, factor) = readable(unit, smallest, most);
    let bottom = bars.len() as f64 * ROW + 2.0;
    let mut svg = String::new();
    grid(&mut svg, &scale, factor, 0.0, bottom);
    let _ = write!(
        svg,
        "<text class=\"tick\" x=\"100%\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
        bottom + 28.0,
        escaped(&unit)
    );
    for (index, bar) in bars.iter().enumerate() {
        one(&mut svg, bar, index as f64 * ROW, &scale, factor, &unit);
    }
    Some(Plot { margins: (4.0, RIGHT), height: bottom + 34.0, content: svg })
}

fn one(svg: &mut String, bar: &Bar, y: f64, scale: &Scale, factor: f64, unit: &str) {
    let (x, number) = (100.0 * scale.part(bar.value.max(0.0)), short(bar.value * factor));
    let name = escaped(&bar.name);
    let _ = write!(
        svg,
        "<text class=\"name\" x=\"0\" y=\"{:.1}\">{name}</text>\
         <rect class=\"f{}\" x=\"0\" y=\"{:.1}\" width=\"{x:.2}%\" height=\"13\"><title>{name}: {number} {}</title></rect>",
        y + 13.0,
        bar.style.colour,
        y + 17.0,
        escaped(unit)
    );
    if let Some(spread) = bar.spread.filter(|spread| *spread > bar.value) {
        let (to, line) = (100.0 * scale.part(spread), y + 30.0);
        let _ = write!(
            svg,
            "<line class=\"spread\" x1=\"{x:.2}%\" y1=\"{line:.1}\" x2=\"{to:.2}%\" y2=\"{line:.1}\"/>\
             <svg x=\"{to:.2}%\" y=\"{line:.1}\" overflow=\"visible\"><path class=\"spread\" d=\"{}\"><title>{name}, p99: {} {}\
             </title></path></svg>",
            if spread > scale.end() { "M-4 -4L1 0L-4 4" } else { "M0 -3V4" },
            short(spread * factor),
            escaped(unit)
        );
    }
    let _ = write!(svg, "<text class=\"value\" x=\"{x:.2}%\" dx=\"5\" y=\"{:.1}\">{number}</text>", y + 26.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(name: &str, value: f64, spread: Option<f64>) -> Bar {
        Bar { name: name.into(), value, spread, style: Style::of("Corelane") }
    }

    #[test]
    fn bars_have_escaped_names_and_tooltips() {
        let svg = bars("us", &[bar("a <b>", 5.0, Some(500.0))]);
        assert!(svg.contains("a &lt;b&gt;: 5 us") && svg.contains("p99: 500 us") && svg.contains("f0"), "{svg}");
        assert_eq!(bars("us", &[]), "");
        assert_eq!(bars("us", &[bar("a", f64::NAN, None), bar("b", 0.0, None)]), "");
    }

    #[test]
    fn number_of_a_bar_is_at_its_end() {
        let svg = bars("us", &[bar("a", 5.0, Some(9.0))]);
        assert!(svg.contains("width=\"50.00%\""), "{svg}");
        assert!(svg.contains("<text class=\"value\" x=\"50.00%\" dx=\"5\" y=\"26.0\">5</text>"), "{svg}");
        assert!(svg.contains("x2=\"90.00%\""), "{svg}");
    }

    #[test]
    fn spread_beyond_the_chart_ends_in_an_arrow() {
        let arrows = |spread| bars("us", &[bar("a", 5.0, Some(spread))]).matches("M-4 -4L1 0L-4 4").count();
        assert_eq!((arrows(9.0), arrows(11.0)), (0, 1));
    }

    #[test]
    fn bars_of_very_different_lengths_have_separate_scales() {
        let svg = bars("us", &[bar("remote", 10.0, None), bar("local", 0.01, None)]);
        assert_eq!(svg.matches("<svg class=\"chart\"").count(), 2, "{svg}");
        assert!(svg.contains("local: 10 ns") && svg.contains("remote: 10 us"), "{svg}");
    }

    #[test]
    fn picture_has_a_size_a_style_and_its_panels() {
        let panels =
            [("octet".to_owned(), vec![bar("a", 5.0, None)]), ("<long>".to_owned(), vec![bar("b", 2.0, None)])];
        let svg = picture("Medians", "us", &panels, ".f0{}");
        for part in ["viewBox=\"0 0 860 ", "<style>.f0{}</style>", "Medians", "octet", "&lt;long&gt;", "b: 2 us"] {
            assert!(svg.contains(part), "{part} in {svg}");
        }
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
