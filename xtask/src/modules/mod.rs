//! Checks of modules: uses between files, layers inside the ORB, circles of files, and names of
//! types.
//!
//! Code that is compiled only for tests does not count.

mod graph;
mod layers;
mod names;
mod source;

use std::path::{Path, PathBuf};

use graph::Graph;
use names::TypeNames;

/// A circle of at least this number of files is refused.
const CIRCLE_FILES: usize = 8;

/// A circle of files with at least this number of lines is refused.
const CIRCLE_LINES: usize = 3500;

/// Returns the circles that are too large, and a description of the largest circle.
pub(crate) fn circles(root: &Path) -> Result<(Vec<String>, String), String> {
    let mut found = Vec::new();
    let mut largest = (0, 0, String::new());
    for folder in crate_folders(root)? {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let graph = Graph::new(&source::read(&folder.join("src"))?);
        for circle in graph.circles() {
            let (files, lines) = (circle.len(), graph.lines(&circle));
            if files >= CIRCLE_FILES || lines >= CIRCLE_LINES {
                found.push(format!(
                    "crates/{name}: {files} files with {lines} lines import one another: {}",
                    graph.names(&circle).join(" ")
                ));
            }
            largest = largest.max((files, lines, name.clone()));
        }
    }
    let (files, lines, name) = largest;
    Ok((found, format!("largest circle: {files} files, {lines} lines, in crates/{name}")))
}

pub(crate) fn orb_layers(root: &Path) -> Result<(Vec<String>, String), String> {
    let graph = Graph::new(&source::read(&root.join("crates/orb/src"))?);
    Ok((layers::check(&graph, layers::ORB), layers::shown(&graph, layers::ORB)))
}

pub(crate) fn type_names(root: &Path) -> Result<(Vec<String>, String), String> {
    let names = TypeNames::read(root, &crate_folders(root)?)?;
    Ok((names.conflicts(), format!("{} names", names.len())))
}

pub(crate) fn repeated_type_names(root: &Path) -> Result<String, String> {
    let list = TypeNames::read(root, &crate_folders(root)?)?.list();
    Ok(format!("{} names\n{}", list.len(), list.join("\n")))
}

fn crate_folders(root: &Path) -> Result<Vec<PathBuf>, String> {
    let crates = root.join("crates");
    let entries = std::fs::read_dir(&crates).map_err(|error| format!("{}: {error}", crates.display()))?;
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}
