//! Rows of marks along a logarithmic axis, one mark for each series.

use std::fmt::Write;

use super::{Plot, Scale, Style, escaped, grid, legend, mark, readable, short};

/// A row of marks, each with the index of its series and its time in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) marks: Vec<(usize, f64)>,
}

/// Draws rows of marks along a logarithmic axis of microseconds. The opposite axis shows calls per
/// second. Each of `series` is in the legend beneath.
pub(crate) fn dots(unit: &str, series: &[(String, Style)], rows: &[Row]) -> String {
    const ROW: f64 = 24.0;
    const TOP: f64 = 34.0;
    /// Width of a character of a row's name.
    const CHARACTER: f64 = 7.2;
    let times = rows.iter().flat_map(|row| &row.marks).map(|mark| mark.1).filter(|time| time.is_finite());
    let Some(scale) = Scale::of(times.clone(), true) else { return String::new() };
    let (unit, factor) = readable(unit, times.fold(0.0, f64::max));
    let left = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0) as f64 * CHARACTER + 12.0;
    let bottom = TOP + ROW * rows.len() as f64;
    let mut svg = String::new();
    grid(&mut svg, &scale, factor, TOP, bottom);
    for tick in scale.ticks() {
        let _ = write!(
            svg,
            "<text class=\"tick\" x=\"{:.2}%\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            100.0 * scale.part(tick),
            TOP - 6.0,
            short(1e6 / tick)
        );
    }
    for (y, text) in [(12.0, "per second"), (bottom + 28.0, unit.as_str())] {
        let text = escaped(text);
        let _ = write!(svg, "<text class=\"tick\" x=\"100%\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>");
    }
    for (index, Row { name, marks }) in rows.iter().enumerate() {
        let y = TOP + ROW * (index as f64 + 0.5);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"0\" y1=\"{y:.1}\" x2=\"100%\" y2=\"{y:.1}\"/>\
             <text class=\"name\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            y + 4.0,
            escaped(name)
        );
        for &(number, time) in marks.iter().filter(|mark| mark.1.is_finite()) {
            let Some((who, style)) = series.get(number) else { continue };
            let title = format!("{who}, {name}: {} {unit}, {} per second", short(time * factor), short(1e6 / time));
            mark(&mut svg, *style, 100.0 * scale.part(time), y, &title);
        }
    }
    let samples = series.iter().map(|(name, style)| {
        let mut sample = String::new();
        mark(&mut sample, *style, 50.0, 6.0, "");
        (sample, name.clone())
    });
    Plot { margins: (left, 20.0), height: bottom + 34.0, content: svg }.inline() + &legend(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_their_row_their_colour_and_both_units() {
        let names: Vec<String> = (0..9).map(|number| format!("omniORB {number}")).collect();
        let styles = Style::of_all(names.iter().map(|_| "omniORB"));
        let series: Vec<(String, Style)> = names.into_iter().zip(styles).collect();
        let row = |name: &str, marks| Row { name: name.to_owned(), marks };
        let rows = [row("void", vec![(0, 5.0), (8, 50.0)]), row("<long>", vec![(0, f64::NAN)])];
        let svg = dots("us per call", &series, &rows);
        // Two marks with numbers, and the legend.
        assert_eq!(svg.matches("<path").count(), 2 + 9, "{svg}");
        assert!(svg.contains("omniORB 8, void: 50 us per call, 20000 per second"), "{svg}");
        assert!(svg.contains("&lt;long&gt;") && svg.contains("l1 hollow") && !svg.contains("NaN"), "{svg}");
        assert_eq!(dots("us", &[], &[]), "");
    }
}
