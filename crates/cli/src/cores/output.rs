//! Formats times and tables, and writes files, for the subcommands of `corelane cores`.

use std::io::{self, Write};

use corelane_sched::task::Nanos;

use crate::text::excerpt;

pub(super) fn write_file(name: &str, text: &str) -> Result<(), String> {
    std::fs::write(name, text).map_err(|error| format!("{}: {error}", excerpt(name)))
}

/// Formats a time in milliseconds, rounded up to the microsecond.
pub(crate) fn milliseconds(time: Nanos) -> String {
    let micros = time.div_ceil(1_000);
    format!("{}.{:03}", micros / 1_000, micros % 1_000)
}

pub(crate) fn write_table(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line.push_str(&format!("  {cell:>width$}"));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_up_to_microseconds() {
        assert_eq!(milliseconds(0), "0.000");
        assert_eq!(milliseconds(1), "0.001");
        assert_eq!(milliseconds(20_500_000), "20.500");
    }
}
