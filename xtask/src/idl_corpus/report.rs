//! Output of the comparison of two compilers, to the terminal and to files.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::{Row, Verdict};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    BothAccept,
    BothRefuse,
    OnlyTheyAccept,
    OnlyWeAccept,
}

fn kind(row: &Row) -> Kind {
    match (row.ours.accepted, row.theirs.as_ref().map_or(row.ours.accepted, |theirs| theirs.accepted)) {
        (true, true) => Kind::BothAccept,
        (false, false) => Kind::BothRefuse,
        (false, true) => Kind::OnlyTheyAccept,
        (true, false) => Kind::OnlyWeAccept,
    }
}

pub(super) fn table(rows: &[Row]) -> String {
    let mut projects: BTreeMap<&str, [usize; 6]> = BTreeMap::new();
    let mut all = [0; 6];
    for row in rows {
        let counts = projects.entry(&row.project).or_default();
        for counts in [counts, &mut all] {
            counts[0] += 1;
            counts[1 + kind(row) as usize] += 1;
            counts[5] += usize::from(row.ours.broken);
        }
    }
    let mut text = format!(
        "{:<44} {:>6} {:>9} {:>9} {:>13} {:>13} {:>7}\n",
        "project", "files", "accepted", "refused", "only omniidl", "only corelane", "broken"
    );
    for (name, counts) in projects.into_iter().chain([("all", all)]) {
        let [files, both, neither, they, we, broken] = counts;
        let _ = writeln!(text, "{name:<44} {files:>6} {both:>9} {neither:>9} {they:>13} {we:>13} {broken:>7}");
    }
    text
}

pub(super) fn write(rows: &[Row], folder: &Path) -> std::io::Result<()> {
    let mut files = String::new();
    let mut lists: BTreeMap<Kind, Vec<String>> = BTreeMap::new();
    for row in rows {
        let none = Verdict::default();
        let theirs = row.theirs.as_ref().unwrap_or(&none);
        let word = |verdict: &Verdict| if verdict.accepted { "accepted" } else { "refused" };
        let path = row.path.display();
        let _ =
            writeln!(files, "{path}\t{}\t{}\t{}\t{}", word(&row.ours), word(theirs), row.ours.reason, theirs.reason);
        let line = match kind(row) {
            Kind::OnlyWeAccept => format!("{}\t{path}", theirs.reason),
            _ => format!("{}\t{path}\t{}", row.ours.reason, theirs.reason),
        };
        lists.entry(kind(row)).or_default().push(line);
    }
    std::fs::write(folder.join("files.tsv"), files)?;
    for (name, kind) in [
        ("only-omniidl.tsv", Kind::OnlyTheyAccept),
        ("only-corelane.tsv", Kind::OnlyWeAccept),
        ("refused.tsv", Kind::BothRefuse),
    ] {
        let mut lines = lists.remove(&kind).unwrap_or_default();
        lines.sort();
        std::fs::write(folder.join(name), lines.join("\n") + "\n")?;
    }
    Ok(())
}

/// Returns the first error in the output, or the first line if no line looks like an error. Adds
/// the location of the error if the next line has it.
pub(super) fn reason(said: &str) -> String {
    let mut lines = said.lines();
    let message = lines.by_ref().find(|line| {
        line.starts_with("error") || line.contains(" Error:") || line.contains("error:") || line.contains("rror in")
    });
    let place = lines.next().and_then(|line| line.trim_start().strip_prefix("--> "));
    let message = message.or_else(|| said.lines().next()).unwrap_or("said nothing").replace('\t', " ");
    match place {
        Some(place) => format!("{message} at {place}"),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: bool, theirs: bool) -> Row {
        let verdict = |accepted| Verdict { accepted, ..Verdict::default() };
        Row { project: "p".into(), path: "p/a.idl".into(), ours: verdict(ours), theirs: Some(verdict(theirs)) }
    }

    #[test]
    fn the_table_counts_each_kind() {
        let rows = [row(true, true), row(true, true), row(false, true), row(true, false), row(false, false)];
        let text = table(&rows);
        let words: Vec<&str> = text.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(words, ["all", "5", "2", "1", "1", "1", "0"]);
    }

    #[test]
    fn the_reason_is_the_first_error() {
        let ours = "warning: x\n --> a.idl:1:1\n\nerror: `A` is declared twice\n --> a.idl:3:4\n";
        assert_eq!(reason(ours), "error: `A` is declared twice at a.idl:3:4");
        let theirs = "a.idl:2: Warning: y\na.idl:3: Syntax error in definition\n";
        assert_eq!(reason(theirs), "a.idl:3: Syntax error in definition");
    }
}
