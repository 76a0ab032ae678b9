//! One compilation: a file to its resolved model, with everything that has to be said about it.

use crate::diagnostic::Diagnostics;
use crate::lex::preprocessor::{Environment, Files, Preprocessed, preprocess};
use crate::limits::Limits;
use crate::model::Model;
use crate::parse::parse;
use crate::resolve::resolve;
use crate::source::SourceMap;
use crate::symbol::Symbols;
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

impl Compilation {
    /// Preprocesses, parses and resolves a text. It always answers: where the text is refused,
    /// [`diagnostics`](Self::diagnostics) has errors and the model is what is left.
    #[must_use]
    pub fn of_text(path: &Path, text: Vec<u8>, options: &Options, files: &dyn Files) -> Self {
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
        Self { sources, symbols, model, diagnostics, text, longest_output: limits.output }
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
