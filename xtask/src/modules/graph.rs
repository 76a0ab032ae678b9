//! The graph of the files of a crate: which file uses which.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{File, Module, Segments, Source};

/// Maximum number of re-exports that are followed to a definition, because re-exports can form a
/// circle.
const MAX_REEXPORTS: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) files: Vec<String>,
    lines: Vec<usize>,
    edges: Vec<BTreeSet<usize>>,
}

impl Graph {
    pub(super) fn new(source: &Source) -> Self {
        let mut edges = vec![BTreeSet::new(); source.files.len()];
        for (path, module) in &source.modules {
            let resolver = Resolver { source, module, path };
            let targets = module.uses.iter().filter_map(|used| resolver.file_of(used));
            edges[module.file].extend(targets.filter(|target| *target != module.file));
        }
        let (files, lines) = source.files.iter().map(|File { name, lines }| (name.clone(), *lines)).unzip();
        Graph { files, lines, edges }
    }

    pub(super) fn edges(&self) -> impl Iterator<Item = (&str, &str)> {
        let names = move |(from, targets): (usize, &BTreeSet<usize>)| {
            targets.iter().map(move |to| (self.files[from].as_str(), self.files[*to].as_str())).collect::<Vec<_>>()
        };
        self.edges.iter().enumerate().flat_map(names)
    }

    /// Returns the circles: maximal sets of two or more files that all reach one another.
    pub(super) fn circles(&self) -> Vec<Vec<usize>> {
        let reached: Vec<BTreeSet<usize>> = (0..self.files.len()).map(|file| self.reachable(file)).collect();
        let mut circles = BTreeMap::new();
        for file in 0..self.files.len() {
            let circle: Vec<usize> =
                reached[file].iter().copied().filter(|other| reached[*other].contains(&file)).collect();
            if circle.len() > 1 {
                circles.insert(circle[0], circle);
            }
        }
        circles.into_values().collect()
    }

    fn reachable(&self, file: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open: Vec<usize> = self.edges[file].iter().copied().collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(&self.edges[next]);
            }
        }
        found
    }

    pub(super) fn lines(&self, files: &[usize]) -> usize {
        files.iter().map(|file| self.lines[*file]).sum()
    }

    pub(super) fn names(&self, files: &[usize]) -> Vec<&str> {
        files.iter().map(|file| self.files[*file].as_str()).collect()
    }
}

struct Resolver<'s> {
    source: &'s Source,
    module: &'s Module,
    path: &'s Segments,
}

impl Resolver<'_> {
    /// Returns the file that defines an item, or `None` if the item belongs to another crate.
    fn file_of(&self, written: &Segments) -> Option<usize> {
        let absolute = self.absolute(self.path, self.module, written)?;
        match absolute.as_slice() {
            [name] if self.source.macros.contains_key(name) => self.source.macros.get(name).copied(),
            _ => self.definition(&absolute, MAX_REEXPORTS),
        }
    }

    fn absolute(&self, at: &Segments, module: &Module, written: &Segments) -> Option<Segments> {
        let (first, rest) = written.split_first()?;
        let join = |base: &[String]| Some([base, rest].concat());
        match first.as_str() {
            "crate" => join(&[]),
            "self" => join(at),
            "super" => {
                let mut inner = vec!["self".to_owned()];
                inner.extend_from_slice(rest);
                let parent = at.split_last()?.1.to_vec();
                self.absolute(&parent, module, &inner)
            }
            name => {
                let child = [at.as_slice(), std::slice::from_ref(first)].concat();
                if self.source.modules.contains_key(&child) {
                    return join(&child);
                }
                let imported = module.imports.get(name)?;
                // An import whose path begins with the imported name leads to another crate.
                if imported.first() == Some(first) {
                    return None;
                }
                join(&self.absolute(at, module, imported)?)
            }
        }
    }

    fn definition(&self, absolute: &[String], reexports_left: usize) -> Option<usize> {
        let depth = (0..=absolute.len()).rev().find(|length| self.source.modules.contains_key(&absolute[..*length]))?;
        let (path, rest) = absolute.split_at(depth);
        let module = &self.source.modules[path];
        let Some(name) = rest.first() else { return Some(module.file) };
        if module.definitions.contains(name) || reexports_left == 0 {
            return Some(module.file);
        }
        let path = path.to_vec();
        let follow = |through: &Segments, rest: &[String]| {
            let base = self.absolute(&path, module, through)?;
            self.definition(&[&base, rest].concat(), reexports_left - 1)
        };
        if let Some(import) = module.imports.get(name) {
            // An item of another crate counts as an item of the module that imports it.
            return follow(import, &rest[1..]).or(Some(module.file));
        }
        let through_glob = module.globs.iter().find_map(|glob| {
            let base = self.absolute(&path, module, glob)?;
            let exporter = self.source.modules.get(&base)?;
            (exporter.definitions.contains(name) || exporter.imports.contains_key(name)).then(|| follow(glob, rest))?
        });
        through_glob.or(Some(module.file))
    }
}

#[cfg(test)]
mod tests {
    use super::super::source::tests::parsed;
    use super::*;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        Graph::new(&parsed(files)).edges().map(|(from, to)| format!("{from} -> {to}")).collect()
    }

    #[test]
    fn path_resolves_through_reexports_to_the_defining_file() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b; mod c; pub use a::Thing;"),
            ("a/mod.rs", "mod inner; pub use inner::Thing;"),
            ("a/inner.rs", "pub struct Thing;"),
            ("b.rs", "use crate::a::Thing; fn f(_: Thing) {}"),
            ("c.rs", "fn f(_: crate::Thing, _: super::b::X, _: std::rc::Rc<u8>) {}"),
        ]);
        assert_eq!(found, ["b.rs -> a/inner.rs", "c.rs -> a/inner.rs", "c.rs -> b.rs"]);
    }

    #[test]
    fn path_resolves_through_imported_modules_and_globs() {
        let found = edges(&[
            ("lib.rs", "mod a; mod b; mod c; mod e;"),
            ("a.rs", "pub fn f() { let c = 1; c; } #[macro_export] macro_rules! m { () => {} }"),
            ("b.rs", "use crate::a; fn g() { a::f(); }"),
            ("c.rs", "use super::b::*; pub use crate::a::*; mod d { fn h() { crate::c::f(); crate::e::k(); } }"),
            ("e.rs", "crate::m! {}"),
        ]);
        assert_eq!(found, ["b.rs -> a.rs", "c.rs -> a.rs", "c.rs -> b.rs", "c.rs -> e.rs", "e.rs -> a.rs"]);
    }

    #[test]
    fn circle_has_all_files_that_reach_one_another() {
        let graph = Graph::new(&parsed(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::{a, d};\npub struct C;"),
            ("d.rs", ""),
        ]));
        let circles = graph.circles();
        assert_eq!(circles.len(), 1);
        assert_eq!((graph.names(&circles[0]), graph.lines(&circles[0])), (vec!["a.rs", "b.rs", "c.rs"], 4));
    }
}
