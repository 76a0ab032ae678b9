//! Charts of rows of marks along a logarithmic axis, with one mark for each series.

use std::fmt::Write;

use super::{Plot, Scale, Style, bands, escaped, grid, legend, mark, range, readable, short};

/// A row of marks: for each mark, the index of its series and its time in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct DotRow {
    pub(crate) name: String,
    pub(crate) marks: Vec<(usize, f64)>,
}

/// Draws the rows as dots on a time axis. The opposite axis shows calls per second. Rows of very
/// different times have separate axes.
pub(crate) fn dots(unit: &str, series: &[(String, Style)], rows: &[DotRow]) -> String {
    let ranges: Vec<(f64, f64)> = rows.iter().map(|row| range(row.marks.iter().map(|mark| mark.1))).collect();
    let plots = bands(&ranges, 2.0).into_iter().filter_map(|band| {
        let rows: Vec<&DotRow> = band.iter().map(|at| &rows[*at]).collect();
        plot(unit, series, &rows)
    });
    let plots: String = plots.map(|plot| plot.inline()).collect();
    if plots.is_empty() {
        return plots;
    }
    let samples = series.iter().map(|(name, style)| {
        let mut sample = String::new();
        mark(&mut sample, *style, 50.0, 6.0, "");
        (sample, name.clone())
    });
    plots + &legend(samples)
}

fn plot(unit: &str, series: &[(String, Style)], rows: &[&DotRow]) -> Option<Plot> {
    const ROW: f64 = 24.0;
    const TOP: f64 = 34.0;
    const CHARACTER: f64 = 7.2;
    let times = rows.iter().flat_map(|row| &row.marks).map(|mark| mark.1).filter(|time| time.is_finite());
    let scale = Scale::of(times.clone(), true)?;
    let (smallest, largest) = range(times);
    let (unit, factor) = readable(unit, smallest, largest);
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
    for (index, &row) in rows.iter().enumerate() {
        let DotRow { name, marks } = row;
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
    Some(Plot { margins: (left, 20.0), height: bottom + 34.0, content: svg })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_a_row_a_colour_and_both_units() {
        let names: Vec<String> = (0..9).map(|number| format!("omniORB {number}")).collect();
        let styles = Style::of_all(names.iter().map(|_| "omniORB"));
        let series: Vec<(String, Style)> = names.into_iter().zip(styles).collect();
        let row = |name: &str, marks| DotRow { name: name.to_owned(), marks };
        let rows = [row("void", vec![(0, 5.0), (8, 50.0)]), row("<long>", vec![(0, f64::NAN)])];
        let svg = dots("us per call", &series, &rows);
        assert_eq!(svg.matches("<path").count(), 2 + 9, "{svg}");
        assert!(svg.contains("omniORB 8, void: 50 us per call, 20000 per second"), "{svg}");
        assert!(svg.contains("&lt;long&gt;") && svg.contains("l1 hollow") && !svg.contains("NaN"), "{svg}");
        assert_eq!(dots("us", &[], &[]), "");
    }

    #[test]
    fn rows_of_very_different_times_have_separate_axes() {
        let series = [("omniORB".to_owned(), Style::of("omniORB")), ("Corelane".to_owned(), Style::of("Corelane"))];
        let row = |name: &str, time| DotRow { name: name.to_owned(), marks: vec![(0, time), (1, 1.2 * time)] };
        let svg = dots("us", &series, &[row("octet", 8.0), row("octets16777216", 3000.0), row("long", 9.0)]);
        assert_eq!(svg.matches("<svg class=\"chart\"").count(), 2, "{svg}");
        assert!(svg.contains("Corelane, octets16777216: 3.6 ms") && svg.contains("omniORB, long: 9 us"), "{svg}");
        assert_eq!(svg.matches("<span>").count(), 2, "{svg}");
    }
}
