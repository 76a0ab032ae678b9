//! Finds the include folders that a file of the corpus needs.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};

pub(super) struct Folders {
    root: PathBuf,
    files: Vec<PathBuf>,
    by_name: HashMap<String, Vec<PathBuf>>,
    /// The names in each file's `#include` lines.
    includes: HashMap<PathBuf, Vec<String>>,
    given: Vec<PathBuf>,
}

impl Folders {
    pub(super) fn of(root: &Path, given: &[PathBuf]) -> Result<Self, String> {
        let mut folders = Self {
            root: root.to_owned(),
            files: Vec::new(),
            by_name: HashMap::new(),
            includes: HashMap::new(),
            given: given.to_vec(),
        };
        folders.walk(Path::new("")).map_err(|error| format!("{}: {error}", root.display()))?;
        folders.files.sort();
        folders.by_name.values_mut().for_each(|paths| paths.sort());
        Ok(folders)
    }

    fn walk(&mut self, folder: &Path) -> std::io::Result<()> {
        for entry in std::fs::read_dir(self.root.join(folder))? {
            let entry = entry?;
            let path = folder.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.walk(&path)?;
            } else if kind.is_file() {
                let text = std::fs::read(entry.path())?;
                self.includes.insert(path.clone(), included(&String::from_utf8_lossy(&text)));
                self.by_name.entry(entry.file_name().to_string_lossy().into_owned()).or_default().push(path.clone());
                if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("idl")) {
                    self.files.push(path);
                }
            }
        }
        Ok(())
    }

    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    pub(super) fn projects(&self) -> usize {
        self.files.iter().filter_map(|path| path.iter().next()).collect::<BTreeSet<_>>().len()
    }

    pub(super) fn include(&self, file: &Path) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        let mut seen = BTreeSet::from([file.to_owned()]);
        let mut waiting = vec![file.to_owned()];
        while let Some(path) = waiting.pop() {
            for name in self.includes.get(&path).into_iter().flatten() {
                let beside = path.parent().unwrap_or(Path::new("")).join(name);
                let found = if self.includes.contains_key(&beside) { Some(beside) } else { self.nearest(&path, name) };
                let Some(found) = found else { continue };
                let depth = Path::new(name).components().count();
                if let Some(folder) = found.ancestors().nth(depth).map(|folder| self.root.join(folder))
                    && !name.starts_with('.')
                    && !folders.contains(&folder)
                {
                    folders.push(folder);
                }
                if seen.insert(found.clone()) {
                    waiting.push(found);
                }
            }
        }
        folders.extend(self.given.iter().cloned());
        folders
    }

    fn nearest(&self, from: &Path, name: &str) -> Option<PathBuf> {
        let project = from.iter().next();
        let candidates = self.by_name.get(Path::new(name).file_name()?.to_str()?)?;
        let common = |path: &Path| path.iter().zip(from).take_while(|(one, two)| one == two).count();
        let fitting = candidates.iter().filter(|path| path.ends_with(name) && path.iter().next() == project);
        fitting.max_by_key(|path| (common(path), std::cmp::Reverse(path.iter().count()))).cloned()
    }
}

fn included(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?.trim_start();
        let close = if rest.starts_with('<') { '>' } else { '"' };
        let rest = rest.strip_prefix(['<', '"'])?;
        rest.split_once(close).map(|(name, _)| name.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_are_read_as_written() {
        let text = "#include <a/b.idl>\n  # include \"c.idl\" // why\n#define x\ninclude d\n#include MACRO\n";
        assert_eq!(included(text), ["a/b.idl", "c.idl"]);
    }

    #[test]
    fn nearest_file_of_the_project_is_included() {
        let paths = ["p/one/t.idl", "p/two/t.idl", "q/one/t.idl", "p/lib/deep/u.idl"].map(PathBuf::from);
        let mut folders = Folders {
            root: "/c".into(),
            files: Vec::new(),
            by_name: HashMap::from([("t.idl".to_owned(), paths[..3].to_vec()), ("u.idl".into(), paths[3..].to_vec())]),
            includes: HashMap::new(),
            given: vec!["/usr/idl".into()],
        };
        folders.includes.insert("p/two/main.idl".into(), vec!["t.idl".into(), "deep/u.idl".into()]);
        folders.includes.insert("p/lib/deep/u.idl".into(), vec!["one/t.idl".into()]);
        let include = folders.include(Path::new("p/two/main.idl"));
        assert_eq!(include, ["/c/p/two", "/c/p/lib", "/c/p", "/usr/idl"].map(PathBuf::from));
    }
}
