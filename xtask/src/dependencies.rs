//! Check of docs/dependencies.md: exactly one row for every external crate on which a package of
//! the workspace depends.

use std::collections::BTreeSet;

use crate::metadata::Metadata;

pub(crate) const DOCUMENT: &str = "docs/dependencies.md";

pub(crate) fn check(metadata: &Metadata, document: &str) -> Vec<String> {
    let used: BTreeSet<&str> = metadata
        .members()
        .flat_map(|package| &package.dependencies)
        .filter(|dependency| dependency.external)
        .map(|dependency| dependency.name.as_str())
        .collect();
    let described: BTreeSet<&str> = document.lines().filter_map(row).collect();
    let missing = used.difference(&described).map(|name| {
        format!(
            "{DOCUMENT} has no row for `{name}`: add its purpose, the reason for the choice, and its own dependencies"
        )
    });
    let stale = described.difference(&used).map(|name| format!("{DOCUMENT} describes `{name}`, which no package uses"));
    missing.chain(stale).collect()
}

fn row(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("| `")?;
    rest.split_once("` |").map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::Kind;
    use crate::metadata::tests::member;

    fn using(names: &[&str]) -> Metadata {
        let edges: Vec<_> = names.iter().map(|name| (*name, Kind::Normal, true)).collect();
        Metadata { packages: vec![member("own", "/w/crates/own", &edges)] }
    }

    #[test]
    fn rows_and_dependencies_must_agree() {
        let document = "# Title\n\n| crate | for |\n|---|---|\n| `libc` | system calls |\n";
        assert!(check(&using(&["libc"]), document).is_empty());
        let missing = check(&using(&["libc", "rand"]), document);
        assert!(missing.len() == 1 && missing[0].contains("no row for `rand`"), "{missing:?}");
        let stale = check(&using(&[]), document);
        assert!(stale.len() == 1 && stale[0].contains("describes `libc`"), "{stale:?}");
    }
}
