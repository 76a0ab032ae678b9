//! One compilation: a file to its resolved model, with everything that has to be said about it.

use crate::ast::Declaration;
use crate::build::{DiskFiles, read_bounded};
use crate::diagnostic::Diagnostics;
use crate::lex::preprocessor::{Environment, Files, Preprocessed, preprocess};
use crate::limits::Limits;
use crate::model::Model;
use crate::parse::parse;
use crate::resolve::resolve;
use crate::source::SourceMap;
use crate::symbol::Symbols;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// How to compile.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Folders in which included files are searched, in order.
    pub include: Vec<PathBuf>,
    /// Macros defined from outside: `NAME` or `NAME=VALUE`.
    pub defines: Vec<String>,
    /// Whether what IDL 4 adds is legal where CORBA 3 forbids it: empty structures, octets as discriminators.
    pub idl_4: bool,
    /// Bounds on the text.
    pub limits: Limits,
}

/// What the front end makes of a text.
#[derive(Debug)]
pub struct Compilation {
    /// The files read.
    pub sources: SourceMap,
    /// Names and literals.
    pub symbols: Symbols,
    /// All that is declared, as far as it was understood.
    pub model: Model,
    /// All that is to be said.
    pub diagnostics: Diagnostics,
    pub(crate) text: Preprocessed,
    pub(crate) longest_output: usize,
}

impl Options {
    /// Takes an argument of a command line if it says how to compile: `-I DIR`, `-D NAME[=VALUE]`, both also in one word, or
    /// `--idl-4`. What follows it is taken from `rest`. Answers whether the argument was one of these.
    ///
    /// # Errors
    ///
    /// The argument needs a value, and there is none.
    pub fn take(&mut self, word: &OsStr, rest: &mut dyn Iterator<Item = OsString>) -> Result<bool, String> {
        let text = word.to_string_lossy();
        let mut value = |name: &str| match text.get(name.len()..).filter(|value| !value.is_empty()) {
            Some(value) => Ok(OsString::from(value)),
            None => rest.next().ok_or_else(|| format!("`{name}` needs a value")),
        };
        if text == "--idl-4" {
            self.idl_4 = true;
        } else if text.starts_with("-I") {
            self.include.push(value("-I")?.into());
        } else if text.starts_with("-D") {
            self.defines.push(value("-D")?.to_string_lossy().into_owned());
        } else {
            return Ok(false);
        }
        Ok(true)
    }
}

impl Compilation {
    /// Compiles a file, with the files beside it and those in the search folders.
    ///
    /// # Errors
    ///
    /// The file cannot be read. What is wrong in it is among the [`diagnostics`](Self::diagnostics).
    pub fn of_file(path: &Path, options: &Options) -> std::io::Result<Self> {
        Ok(Self::of_file_with_tree(path, options)?.0)
    }

    /// The same with the tree that it was made from, for whoever does not want to free that.
    pub(crate) fn of_file_with_tree(path: &Path, options: &Options) -> std::io::Result<(Self, Vec<Declaration>)> {
        Ok(Self::with_tree(path, read_bounded(path)?, options, &DiskFiles))
    }

    /// Preprocesses, parses and resolves a text. It always answers: where the text is refused,
    /// [`diagnostics`](Self::diagnostics) has errors and the model is what is left.
    #[must_use]
    pub fn of_text(path: &Path, text: Vec<u8>, options: &Options, files: &dyn Files) -> Self {
        Self::with_tree(path, text, options, files).0
    }

    fn with_tree(path: &Path, text: Vec<u8>, options: &Options, files: &dyn Files) -> (Self, Vec<Declaration>) {
        let (mut sources, mut symbols) = (SourceMap::default(), Symbols::default());
        let mut diagnostics = Diagnostics::default();
        let limits = &options.limits;
        let environment = Environment {
            include: &options.include,
            defines: &options.defines,
            limits,
            files,
            sources: &mut sources,
            symbols: &mut symbols,
            diagnostics: &mut diagnostics,
        };
        let text = preprocess(environment, path, text);
        let tree = parse(&text, limits, &mut symbols, &mut diagnostics);
        let model = resolve(&tree, limits, options.idl_4, &mut symbols, &mut diagnostics);
        (Self { sources, symbols, model, diagnostics, text, longest_output: limits.output }, tree)
    }

    /// Whether nothing was refused.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.diagnostics.errors() == 0
    }

    /// The files that were read, the main one first; those that the compiler brings with it not.
    pub fn files_read(&self) -> impl Iterator<Item = &Path> {
        let real = |path: &&Path| !path.starts_with("<built in>") && *path != Path::new("<command line>");
        self.sources.files().iter().map(|file| file.path.as_path()).filter(real)
    }

    /// The Rust code of the model. What has no form in Rust yet is an error of [`diagnostics`](Self::diagnostics).
    #[must_use]
    pub fn to_rust(&mut self) -> String {
        crate::rust::generate(self)
    }
}
