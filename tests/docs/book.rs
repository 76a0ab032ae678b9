//! docs/README.md lists every page, and links between the pages lead to existing pages and
//! headings.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder").to_path_buf()
}

fn pages(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn links(page: &str) -> Vec<String> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let parts = line.split("](").skip(1).filter(|_| !is_code);
        found.extend(parts.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.to_owned()));
    }
    found
}

fn anchors(page: &str) -> BTreeSet<String> {
    let headings = page.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    let anchor = |heading: &str| {
        let kept = heading.to_lowercase().replace(' ', "-");
        kept.chars().filter(|character| character.is_alphanumeric() || "-_".contains(*character)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn book_lists_every_page() {
    let docs = root().join("docs");
    let linked: BTreeSet<String> = links(&read(&docs.join("README.md"))).into_iter().collect();
    let linked: BTreeSet<&str> = linked.iter().map(|link| link.split('#').next().unwrap_or_default()).collect();
    let names = pages(&docs);
    assert!(names.len() > 20, "{names:?}");
    for page in names {
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(name == "README.md" || linked.contains(name.as_str()), "docs/README.md has no link to {name}");
    }
}

#[test]
fn links_lead_to_pages_and_headings() {
    let root = root();
    let mut checked = 0;
    for folder in
        [root.clone(), root.join("docs"), root.join("docs/decisions"), root.join("tests"), root.join("interop")]
    {
        for page in pages(&folder) {
            let text = read(&page);
            for link in links(&text) {
                if link.contains("://") || link.starts_with("mailto:") {
                    continue;
                }
                let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
                let target = if path.is_empty() { page.clone() } else { folder.join(path) };
                assert!(target.exists(), "{}: {link}", page.display());
                if !anchor.is_empty() && target.extension().is_some_and(|extension| extension == "md") {
                    assert!(anchors(&read(&target)).contains(anchor), "{}: {link} has no heading", page.display());
                }
                checked += 1;
            }
        }
    }
    assert!(checked > 150, "{checked}");
}

#[test]
fn headings_have_anchors() {
    let page = "# A `b` page\n## What, then?\n[x](y.md#z)\n```\n[no](link)\n```\n";
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), ["a-b-page", "what-then"]);
    assert_eq!(links(page), ["y.md#z"]);
}
