//! One compilation, from a file to its resolved model and diagnostics.

use crate::ast::Declaration;
use crate::diagnostic::Diagnostics;
use crate::disk::{DiskFiles, read_bounded};
use crate::lex::preprocessor::{FileSource, Preprocessed, PreprocessorInputs, preprocess};
use crate::limits::CompilerLimits;
use crate::model::Model;
use crate::parse::parse;
use crate::resolve::resolve;
use crate::source::SourceMap;
use crate::symbol::Symbols;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The settings of a compilation.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    /// Folders searched for included files, in order. Default: empty.
    pub include: Vec<PathBuf>,
    /// Predefined macros: `NAME` or `NAME=VALUE`. Default: empty.
    pub defines: Vec<String>,
    /// Accepts features of IDL 4 that CORBA 3 forbids, such as empty structures and octets as
    /// discriminators. Default: `false`.
    pub is_idl_4_enabled: bool,
    /// Treats names that differ only in case as different names, with a warning. If false, two such
    /// names in one scope are an error. Default: `false`.
    pub is_case_sensitive: bool,
    /// Traits of other crates that generated types derive, such as `serde::Serialize`. Default:
    /// empty.
    pub derives: Vec<String>,
    /// IDL modules and files whose Rust code exists elsewhere, each with its Rust path. A module is
    /// written `A::B`; a file is named by the end of its path. Default: empty.
    pub externals: Vec<(String, String)>,
    /// Bounds on the source. Default: [`CompilerLimits::default`].
    pub limits: CompilerLimits,
}

/// The result of preprocessing, parsing and resolving one file.
#[derive(Debug)]
pub struct Compilation {
    /// The source files.
    pub sources: SourceMap,
    /// The texts of names and literals.
    pub symbols: Symbols,
    /// The declarations, without those that the compiler refused.
    pub model: Model,
    /// Errors and warnings.
    pub diagnostics: Diagnostics,
    pub(crate) text: Preprocessed,
    pub(crate) longest_output: usize,
    pub(crate) derives: Vec<String>,
    pub(crate) externals: Vec<(String, String)>,
}

impl CompileOptions {
    /// Applies a command-line argument and returns true if it is a compilation option: `-I DIR`,
    /// `-D NAME[=VALUE]`, `--idl-4` or `--case-sensitive`. The value of `-I` or `-D` is the end of
    /// `word` (`-Iidl`) or the next item of `rest`.
    ///
    /// # Errors
    ///
    /// A message, if the argument needs a value and there is none.
    pub fn parse_argument(&mut self, word: &OsStr, rest: &mut dyn Iterator<Item = OsString>) -> Result<bool, String> {
        let text = word.to_string_lossy();
        let mut value = |name: &str| match text.get(name.len()..).filter(|value| !value.is_empty()) {
            Some(value) => Ok(OsString::from(value)),
            None => rest.next().ok_or_else(|| format!("`{name}` needs a value")),
        };
        if text == "--idl-4" {
            self.is_idl_4_enabled = true;
        } else if text == "--case-sensitive" {
            self.is_case_sensitive = true;
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
    /// Compiles a file. Included files come from the file's folder and from the search folders.
    ///
    /// # Errors
    ///
    /// The error of reading the file. Errors in the source are among the
    /// [`diagnostics`](Self::diagnostics).
    pub fn from_file(path: &Path, options: &CompileOptions) -> std::io::Result<Self> {
        Ok(Self::of_file_with_tree(path, options)?.0)
    }

    /// Returns the compilation and the syntax tree, so that the caller can skip freeing the tree.
    pub(crate) fn of_file_with_tree(
        path: &Path,
        options: &CompileOptions,
    ) -> std::io::Result<(Self, Vec<Declaration>)> {
        Ok(Self::with_tree(path, read_bounded(path)?, options, &DiskFiles))
    }

    /// Preprocesses, parses and resolves a text. For a refused text, the
    /// [`diagnostics`](Self::diagnostics) contain errors and the model is incomplete.
    #[must_use]
    pub fn from_text(path: &Path, text: Vec<u8>, options: &CompileOptions, files: &dyn FileSource) -> Self {
        Self::with_tree(path, text, options, files).0
    }

    fn with_tree(
        path: &Path,
        text: Vec<u8>,
        options: &CompileOptions,
        files: &dyn FileSource,
    ) -> (Self, Vec<Declaration>) {
        let (mut sources, mut symbols) = (SourceMap::default(), Symbols::default());
        let mut diagnostics = Diagnostics::default();
        let limits = &options.limits;
        if options.is_case_sensitive {
            symbols.keep_case();
        }
        let environment = PreprocessorInputs {
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
        let model = resolve(&tree, limits, options.is_idl_4_enabled, &mut symbols, &mut diagnostics);
        diagnostics.sort(&sources);
        let (derives, externals) = (options.derives.clone(), options.externals.clone());
        let compilation = Self {
            sources,
            symbols,
            model,
            diagnostics,
            text,
            longest_output: limits.max_output_bytes,
            derives,
            externals,
        };
        (compilation, tree)
    }

    /// Returns true if there are no errors.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.diagnostics.error_count() == 0
    }

    /// Iterates over the files that were read, the main file first, without built-in files.
    pub fn files_read(&self) -> impl Iterator<Item = &Path> {
        let real = |path: &&Path| !path.starts_with("<built in>") && *path != Path::new("<command line>");
        self.sources.files().iter().map(|file| file.path.as_path()).filter(real)
    }
}
